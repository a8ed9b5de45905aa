//! Faults of a node's disk.

use std::path::PathBuf;

use spillway_types::{ClusterId, DiskId, NodeId};
use thiserror::Error;

/// The log can't be used. A node with such a disk must not vote: it might take back what it has
/// promised.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DiskError {
    /// The system refused to read or write. Nothing that was not on disk before is acknowledged.
    #[error("{what}: {cause}. Mend the disk or make room, then start again")]
    Io {
        /// Operation that failed.
        what: String,
        /// Error text of the system.
        cause: String,
    },
    /// The disk lost or changed what it had confirmed.
    #[error(
        "{what}: the disk has lost or changed what it confirmed. This node can't keep its promises \
         and must not vote as itself again: remove it from the cluster, empty its folder, and let \
         it join as a new node"
    )]
    Damaged {
        /// Contradiction that was found.
        what: String,
    },
    /// Another process uses the folder.
    #[error("{} is in use by another process", .folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder is another node's.
    #[error(
        "the folder belongs to node {found}, this is node {expected}. Give each node a folder of \
         its own"
    )]
    OtherNode {
        /// Node that owns the folder.
        found: NodeId,
        /// Node that was to use the folder.
        expected: NodeId,
    },
    /// The folder is on another disk than the cluster knows this node by.
    #[error("the folder is disk {found}, not {expected}. Start without naming a disk")]
    OtherDisk {
        /// Disk that owns the folder.
        found: DiskId,
        /// Disk by which the cluster knows this node.
        expected: DiskId,
    },
    /// The folder belongs to another cluster.
    #[error(
        "the folder belongs to cluster {found}, not {expected}. Two clusters are never joined: \
         empty the folder to leave the old one"
    )]
    OtherCluster {
        /// Cluster that owns the folder.
        found: ClusterId,
        /// Cluster that was to use the folder.
        expected: ClusterId,
    },
    /// A later version has written here.
    #[error("{what}. Start the version that wrote it, or a later one")]
    Newer {
        /// Part that this version can't read.
        what: String,
    },
    /// Nothing is there where something has to be.
    #[error("{} holds no log", .folder.display())]
    Empty {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder holds a log where none may be.
    #[error("{} holds a log already", .folder.display())]
    Occupied {
        /// The folder.
        folder: PathBuf,
    },
    /// An earlier fault has stopped the log.
    #[error("the log has stopped: {0}")]
    Stopped(Box<Self>),
}

impl DiskError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |error| Self::Io { what, cause: error.to_string() }
    }

    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into() }
    }

    /// Returns the fault as an I/O error, openraft's type for failing storage.
    pub(crate) fn into_io(self) -> std::io::Error {
        std::io::Error::other(self)
    }
}
