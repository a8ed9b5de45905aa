//! Faults of a node's disk.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

use spillway_types::{ClusterId, DiskId, NodeId, NodeName};
use thiserror::Error;

/// Advice for a node whose state differs from that of its cluster.
const APART: &str = "This node takes no part any more. Keep a copy of its folder, which may hold \
                     orders that the cluster has lost. Then remove it from the cluster, empty its \
                     folder, and let it join as a new node";

/// The log can't be used. A node with such a disk must not vote: it might take back what it has
/// promised.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DiskError {
    /// The system refused to read or write. Nothing that was not on disk before is acknowledged.
    #[error("{what}: {cause}. {remedy}")]
    Io {
        /// Operation that failed.
        what: String,
        /// Error text of the system.
        cause: String,
        /// Remedy that an operator can apply.
        remedy: &'static str,
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
        "the folder belongs to node {found}, and this is node {expected}. Name {expected}'s own folder \
         as `data`, or an empty one to join as a new node"
    )]
    OtherNode {
        /// Node that owns the folder.
        found: NodeName,
        /// Node that was to use the folder.
        expected: NodeName,
    },
    /// The folder has another number than the cluster gave this node.
    #[error(
        "the folder belongs to node number {found}, and the cluster knows this node as {expected}. \
         Give each node a folder of its own"
    )]
    OtherNumber {
        /// Number in the folder.
        found: NodeId,
        /// Number of this node.
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
    /// The leader has other entries in the place of some that were carried out here.
    #[error(
        "the cluster has other entries in place of {from} to {committed}, which were committed and \
         carried out here: most of its other disks have lost them. {}",
        APART
    )]
    Overwritten {
        /// First entry that was to be dropped.
        from: u64,
        /// Last entry that this node knows as committed.
        committed: u64,
    },
    /// The state of this node differs from the cluster's.
    #[error("the state after entry {index} differs from the cluster's. {}", APART)]
    Apart {
        /// Index of the states that were compared.
        index: u64,
    },
    /// The folder does not hold the log of before any more.
    #[error(
        "the log in {} was removed or replaced while the node ran. Restart the node, which then \
         takes the folder as it is",
        .folder.display()
    )]
    Replaced {
        /// The folder.
        folder: PathBuf,
    },
    /// An earlier fault has stopped the log.
    #[error("the log has stopped: {0}")]
    Stopped(Box<Self>),
}

impl DiskError {
    /// Returns true if the state of this node is another one than its cluster's, so that it must not
    /// be used.
    #[must_use]
    pub fn is_apart(&self) -> bool {
        match self {
            Self::Overwritten { .. } | Self::Apart { .. } => true,
            Self::Stopped(first) => first.is_apart(),
            _ => false,
        }
    }

    /// Returns the fault for an operation, named by a verb and its object, that the system refused.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| {
            let cause = cause_of(error);
            Self::Io { what, remedy: remedy_of(&cause), cause: cause.to_string() }
        }
    }

    /// Returns the fault for an operation, named by a verb and its object, to which the disk has not
    /// answered for so long.
    pub fn hanging(what: impl Into<String>, waited: Duration) -> Self {
        let cause = format!("the disk has not answered for {} s", waited.as_secs());
        Self::io(what)(io::Error::new(ErrorKind::TimedOut, cause))
    }

    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into() }
    }

    /// Returns the fault of a log over whose content the database has panicked.
    #[must_use]
    pub fn unreadable() -> Self {
        Self::damaged("the log can't be read")
    }

    /// Returns the fault for an operation that did not take place because the log was closed.
    pub(crate) fn closed(what: impl Into<String>) -> Self {
        Self::io(what)(io::Error::other("the log is closed"))
    }

    /// Returns the fault as an I/O error, openraft's type for failing storage.
    pub(crate) fn into_io(self) -> io::Error {
        io::Error::other(self)
    }

    /// Returns true if the folder must not be touched: it is in use, or another node's. A node that
    /// starts with such a folder is set up wrongly. After every other fault it can serve without its
    /// log.
    #[must_use]
    pub fn is_of_another(&self) -> bool {
        match self {
            Self::InUse { .. }
            | Self::OtherNode { .. }
            | Self::OtherNumber { .. }
            | Self::OtherDisk { .. }
            | Self::OtherCluster { .. } => true,
            Self::Stopped(first) => first.is_of_another(),
            Self::Io { .. }
            | Self::Damaged { .. }
            | Self::Newer { .. }
            | Self::Empty { .. }
            | Self::Replaced { .. }
            | Self::Occupied { .. }
            | Self::Overwritten { .. }
            | Self::Apart { .. } => false,
        }
    }
}

/// Returns the system's error below those of the database that wrap it.
fn cause_of(error: io::Error) -> io::Error {
    let mut below: Option<&(dyn std::error::Error + 'static)> =
        error.get_ref().map(|inner| inner as _);
    while let Some(inner) = below {
        let found = match inner.downcast_ref::<redb::Error>() {
            Some(redb::Error::Io(found)) => Some(found),
            _ => inner.downcast_ref::<io::Error>(),
        };
        if let Some(code) = found.and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(code);
        }
        below = inner.source();
    }
    error
}

/// Returns what an operator can do about a cause. The log is opened again by itself after each of
/// them.
fn remedy_of(cause: &io::Error) -> &'static str {
    match cause.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            "Make room: the log then continues by itself"
        }
        ErrorKind::ReadOnlyFilesystem => {
            "Mount it for writing, or find out why the system made it read-only (`dmesg`): the log \
             then continues by itself"
        }
        ErrorKind::PermissionDenied => {
            "Let the node's user write there: the log then continues by itself"
        }
        // EMFILE and ENFILE have no kind of their own.
        _ if matches!(cause.raw_os_error(), Some(23 | 24)) => {
            "Raise the limit of open files: the log then continues by itself"
        }
        _ => {
            "Mend or replace the disk (`dmesg` says more): the log continues by itself once it \
             works"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(code: i32) -> String {
        // As the database hands it up.
        let error = redb::Error::Io(io::Error::from_raw_os_error(code));
        DiskError::io("writing the log")(io::Error::other(error)).to_string()
    }

    #[test]
    fn advice_fits_the_cause() {
        for (code, expected) in [
            (28, "Make room"),
            (122, "Make room"),
            (30, "Mount it for writing"),
            (13, "Let the node's user write there"),
            (24, "Raise the limit of open files"),
            (5, "Mend or replace the disk"),
        ] {
            let text = told(code);
            assert!(text.contains(expected), "{code}: {text}");
            assert!(text.contains(&io::Error::from_raw_os_error(code).to_string()), "{text}");
        }
    }
}
