//! Disaster recovery: new clusters made from the remains of old ones. Restore takes a backup file,
//! a forced new cluster takes one node's folder.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use spillway_types::{ClusterId, DiskId, NodeId, NodeName};
use tokio::task::spawn_blocking;

use crate::disk::{self, DiskError, Folder, LogChange, StoredSnapshot, owner_of};
use crate::ids::{Member, random_id};
use crate::raft::Members;
use crate::wire::{Ballot, EntryRecord, MembersRecord, Point};

/// First node of a new cluster, and its only voter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founder {
    /// Number of the node.
    pub node: NodeId,
    /// Name of the node. Its disk is the disk that owns the folder.
    pub name: NodeName,
    /// Region of the node.
    pub region: spillway_types::RegionName,
}

impl Founder {
    fn member(&self, disk: DiskId) -> Member {
        Member { name: self.name.clone(), region: self.region.clone(), disk }
    }
}

pub(crate) async fn write(
    file: &Path,
    disk: DiskId,
    snapshot: &StoredSnapshot,
) -> Result<(), DiskError> {
    let (file, snapshot) = (PathBuf::from(file), snapshot.clone());
    let writing = spawn_blocking(move || disk::write_snapshot(&file, disk, &snapshot));
    let written = writing.await.map_err(std::io::Error::other).and_then(|written| written);
    written.map_err(DiskError::io("writing the backup"))
}

/// Error of restoring a backup.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The backup or the folder can't be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The backup does not know the node. A new node has no right to be in the cluster, so an old
    /// one has to begin it.
    #[error("the backup knows no node {name}: begin with one of {}, the others join", list(.known))]
    NoSuchNode {
        /// Name of the node that was asked for.
        name: NodeName,
        /// Names of the nodes that the backup knows.
        known: Vec<NodeName>,
    },
}

fn list(names: &[NodeName]) -> String {
    names.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ")
}

/// Makes the folder of a new cluster from a backup: all the state, no log. The node `name` of the
/// old cluster becomes the only voter. The folder has to be empty. Blocks the thread.
///
/// The node keeps its number and the id of its disk, so that the state knows the node. That is safe
/// on another disk: the node made its old promises to a cluster with another id.
///
/// # Errors
/// Returns an error if the backup is damaged or does not know the node, or if the folder holds a
/// log already or is in use.
pub fn restore(
    backup: &Path,
    folder: &Path,
    name: &NodeName,
) -> Result<(ClusterId, Founder), RestoreError> {
    restore_snapshot(disk::read_snapshot(backup)?, folder, name)
}

/// Restores a cluster as [`restore`] does, from the bytes of a backup that were read or decrypted
/// from the file `backup`.
///
/// # Errors
/// Returns the errors of [`restore`].
pub fn restore_bytes(
    backup: &Path,
    bytes: Bytes,
    folder: &Path,
    name: &NodeName,
) -> Result<(ClusterId, Founder), RestoreError> {
    restore_snapshot(disk::parse_snapshot(backup, bytes)?, folder, name)
}

fn restore_snapshot(
    mut snapshot: StoredSnapshot,
    folder: &Path,
    name: &NodeName,
) -> Result<(ClusterId, Founder), RestoreError> {
    // A log that is there has made promises, which a restored state would break.
    if owner_of(folder)?.is_some() {
        return Err(DiskError::Occupied { folder: folder.into() }.into());
    }
    let last = snapshot.head.last.ok_or_else(|| DiskError::damaged("the backup is empty"))?;
    let (founder, disk) = founder(&snapshot, name)?;
    let cluster = new_cluster()?;
    let mut opened = Folder::open(folder, founder.node, Some(disk))?;
    // No node of the old cluster has a vote in the new one, so the founder alone is a majority.
    let members = MembersRecord::only(founder.node, &founder.member(disk));
    snapshot.head.members = members;
    snapshot.head.members_at = Some(last);
    // The snapshot first: a log that begins behind a snapshot which is not there counts as damaged.
    opened.snapshots.write(&snapshot).map_err(DiskError::io("writing the snapshot"))?;
    let ballot = Ballot { term: last.term, node: founder.node, is_won: false };
    opened.file.write(&[
        LogChange::Cluster(cluster),
        LogChange::Ballot(ballot),
        LogChange::Purge(last),
        LogChange::Committed(Some(last)),
    ])?;
    Ok((cluster, founder))
}

/// Returns the node of that name and its disk, as the backup has them.
fn founder(snapshot: &StoredSnapshot, name: &NodeName) -> Result<(Founder, DiskId), RestoreError> {
    let members = Members::try_from(snapshot.head.members.clone());
    let members = members.map_err(|bad| DiskError::damaged(bad.to_string()))?;
    match members.nodes().find(|(_, member)| member.name == *name) {
        Some((node, Member { name, region, disk })) => {
            let (name, region) = (name.clone(), region.clone());
            Ok((Founder { node: *node, name, region }, *disk))
        }
        None => {
            let known = members.nodes().map(|(_, member)| member.name.clone()).collect();
            Err(RestoreError::NoSuchNode { name: name.clone(), known })
        }
    }
}

/// Turns a node's folder into the folder of a new cluster with this node as the only voter, for
/// when most voters of the old cluster are lost for good. All entries of the node's log stay,
/// committed or not: no acknowledged write that reached this node is lost. Other nodes of the old
/// cluster can't join with their old folders. Blocks the thread.
///
/// # Errors
/// Returns an error if the folder is in use, is damaged, or holds no log.
pub fn force_new_cluster(folder: &Path, founder: &Founder) -> Result<ClusterId, DiskError> {
    let empty = || DiskError::Empty { folder: folder.into() };
    let owner = owner_of(folder)?.ok_or_else(empty)?;
    let mut opened = Folder::open(folder, founder.node, Some(owner.disk))?;
    let state = *opened.file.state();
    let (Some(ballot), Some(last)) =
        (state.ballot, opened.entries.last().map(EntryRecord::at).or(state.purged))
    else {
        return Err(empty());
    };
    let cluster = new_cluster()?;
    // A new term, so that nothing the old cluster still writes can be taken for this entry.
    let at = Point { term: ballot.term + 1, index: last.index + 1 };
    let members = MembersRecord::only(founder.node, &founder.member(owner.disk));
    let entry = EntryRecord::of_members(at, members);
    let frame = spillway_codec::encode(&entry)
        .map_err(|error| DiskError::io("encoding the members")(std::io::Error::other(error)))?;
    opened.file.write(&[
        LogChange::Cluster(cluster),
        LogChange::Ballot(Ballot { term: at.term, node: founder.node, is_won: false }),
        LogChange::Append(at, frame),
        // All entries before it count as committed, too: the only voter has them.
        LogChange::Committed(Some(at)),
    ])?;
    Ok(cluster)
}

fn new_cluster() -> Result<ClusterId, DiskError> {
    random_id().map_err(|error| DiskError::io("naming the cluster")(std::io::Error::other(error)))
}
