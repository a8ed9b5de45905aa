//! A node's folder: the log, its commit marker, and the snapshots.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use spillway_files::private;
use spillway_types::{ClusterId, DiskId, NodeId, NodeName};

use super::device;
use super::fault::DiskError;
use super::log_file::{LogFile, LogState};
use super::snapshots::{Snapshots, Stock, StoredSnapshot};
use crate::ids::random_id;
use crate::wire::{EntryRecord, Point};

const LOG: &str = "log.redb";
const UNFINISHED: &str = "log.unfinished";
const COMMIT_MARKER: &str = "witness";
const SNAPSHOTS: &str = "snapshots";

/// Owner of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolderOwner {
    /// The node.
    pub node: NodeId,
    /// The disk.
    pub disk: DiskId,
    /// The cluster, once it is in one.
    pub cluster: Option<ClusterId>,
}

/// All that a folder holds, proven to fit together.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) file: LogFile,
    pub(crate) entries: Vec<EntryRecord>,
    pub(crate) snapshots: Snapshots,
    /// The newest snapshot that can be read.
    pub(crate) snapshot: Option<StoredSnapshot>,
}

/// Returns the owner of a folder; `None` if the folder holds no log. Nothing may have the log open.
///
/// # Errors
/// Returns an error if the log can't be read.
pub fn owner_of(folder: &Path) -> Result<Option<FolderOwner>, DiskError> {
    if !folder.join(LOG).exists() {
        return Ok(None);
    }
    let state = *open_log(folder)?.0.state();
    Ok(Some(FolderOwner { node: state.node, disk: state.disk, cluster: state.cluster }))
}

/// Empties a folder whose log was begun and never became part of a cluster, so that its node has
/// promised nothing. Files that are not the log's own stay. Nothing may have the log open; blocks.
///
/// # Errors
/// If it is in a cluster, or can't be changed.
pub fn discard_blank(folder: &Path) -> Result<(), DiskError> {
    let Some(owner) = owner_of(folder)? else { return Ok(()) };
    if owner.cluster.is_some() {
        return Err(DiskError::Occupied { folder: folder.into() });
    }
    // The log is removed last: without it the other files would be taken for the remains of a lost
    // log.
    let remove = |name: &str| match fs::remove_file(folder.join(name)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    remove(COMMIT_MARKER).map_err(DiskError::io("removing the witness"))?;
    remove(LOG).map_err(DiskError::io("removing the log"))?;
    force_folder(folder)
}

impl Folder {
    /// Opens a node's folder. An empty one becomes that of `node` on `disk`, or on a new one.
    pub(crate) fn open(path: &Path, node: NodeId, disk: Option<DiskId>) -> Result<Self, DiskError> {
        make_folder(path)?;
        let new = match disk {
            Some(disk) => disk,
            None => random_id()
                .map_err(|error| DiskError::io("naming the disk")(std::io::Error::other(error)))?,
        };
        if !path.join(LOG).exists() {
            create_log(path, LogState::new(node, new))?;
        }
        let (file, entries) = open_log(path)?;
        let state = *file.state();
        if state.node != node {
            return Err(DiskError::OtherNumber { found: state.node, expected: node });
        }
        if let Some(expected) = disk.filter(|disk| *disk != state.disk) {
            return Err(DiskError::OtherDisk { found: state.disk, expected });
        }
        let files = device::files(path);
        let snapshots = Snapshots::open(files, path.join(SNAPSHOTS), state.disk)?;
        Self::of(file, entries, snapshots)
    }

    /// Refuses the folder of a node with another name. A log knows its node's name from the members;
    /// before it has any, its node has promised nothing, and any node may have it.
    pub(crate) fn check_name(&self, expected: &NodeName) -> Result<(), DiskError> {
        let own = self.file.state().node;
        let in_log = self.entries.iter().rev().find_map(EntryRecord::members);
        let members =
            in_log.or_else(|| self.snapshot.as_ref().map(|snapshot| &snapshot.head.members));
        match members.and_then(|members| members.name_of(own)) {
            Some(found) if found != *expected => {
                Err(DiskError::OtherNode { found, expected: expected.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Puts a log and the snapshots beside it together, if they fit.
    pub(crate) fn of(
        file: LogFile,
        entries: Vec<EntryRecord>,
        snapshots: Snapshots,
    ) -> Result<Self, DiskError> {
        let snapshot = usable_snapshot(&snapshots, file.state().purged)?;
        Ok(Self { file, entries, snapshots, snapshot })
    }
}

/// Makes the folder of a node, and takes away what others may do with one that is there. Its name
/// lasts: a folder that is gone after a crash would be taken for a disk that was wiped.
fn make_folder(path: &Path) -> Result<(), DiskError> {
    if path.is_dir() {
        return close(path);
    }
    private::make_folder(path).map_err(DiskError::io(format!("making {}", path.display())))?;
    let around = path.parent().filter(|around| !around.as_os_str().is_empty());
    force_folder(around.unwrap_or_else(|| Path::new(".")))
}

/// The log has hashes of keys, the snapshots have them too. A folder with something else in it and no
/// log may be no folder of a node, and stays as it is.
fn close(path: &Path) -> Result<(), DiskError> {
    let closing = || DiskError::io(format!("closing {} to others", path.display()));
    let is_empty = || fs::read_dir(path).map(|mut files| files.next().is_none());
    if !path.join(LOG).exists() && !is_empty().map_err(closing())? {
        return Ok(());
    }
    private::tighten(path).map_err(closing())?;
    let snapshots = path.join(SNAPSHOTS);
    if snapshots.is_dir() { private::tighten(&snapshots).map_err(closing()) } else { Ok(()) }
}

/// The newest snapshot from which the log goes on.
fn usable_snapshot(
    snapshots: &Snapshots,
    purged: Option<Point>,
) -> Result<Option<StoredSnapshot>, DiskError> {
    let Stock { newest, damaged } = snapshots.take_stock()?;
    let last = newest.as_ref().and_then(|snapshot| snapshot.head.last);
    // The log begins behind all that can be read of snapshots: entries in between are lost.
    if last < purged {
        // The newest of the damaged ones is the one that the log needs.
        let fault = damaged.into_iter().next_back().map(|(_, fault)| fault);
        return Err(fault.unwrap_or_else(|| DiskError::damaged("a snapshot is missing")));
    }
    for (path, fault) in damaged {
        // Not the whole text of the fault, whose advice is for damage that can't be made good.
        let what = match &fault {
            DiskError::Damaged { what } => what.clone(),
            fault => fault.to_string(),
        };
        tracing::warn!(
            what,
            "a snapshot was damaged and is put aside; the one before and the log replace it, so \
             nothing is lost"
        );
        snapshots.set_aside(&path)?;
    }
    Ok(newest)
}

/// Makes an empty log, which appears whole or not at all.
fn create_log(folder: &Path, state: LogState) -> Result<(), DiskError> {
    let note = device::commit_marker(&folder.join(COMMIT_MARKER))?.read()?;
    // Both are made after the log only. An empty log in its place would forget votes that were
    // given.
    if note.is_some() || has_snapshots(folder) {
        return Err(DiskError::damaged("the log is gone"));
    }
    let unfinished = folder.join(UNFINISHED);
    // Left by a crash, before anything could be promised with it.
    if unfinished.exists() {
        fs::remove_file(&unfinished)
            .map_err(DiskError::io(format!("removing {}", unfinished.display())))?;
    }
    LogFile::create(device::backend(&unfinished)?, state)?;
    fs::rename(&unfinished, folder.join(LOG)).map_err(DiskError::io("naming the log"))?;
    force_folder(folder)
}

fn open_log(folder: &Path) -> Result<(LogFile, Vec<EntryRecord>), DiskError> {
    let commit_marker = device::commit_marker(&folder.join(COMMIT_MARKER))?;
    let opened = LogFile::open(device::backend(&folder.join(LOG))?, commit_marker);
    opened.map_err(|fault| match fault {
        // The database does not know the folder that it is in.
        DiskError::InUse { .. } => DiskError::InUse { folder: folder.into() },
        fault => fault,
    })
}

fn has_snapshots(folder: &Path) -> bool {
    let files: Option<Vec<PathBuf>> = fs::read_dir(folder.join(SNAPSHOTS))
        .map(|files| files.filter_map(Result::ok).map(|file| file.path()).collect())
        .ok();
    files.is_some_and(|files| !files.is_empty())
}

/// Makes the names of new files last.
fn force_folder(folder: &Path) -> Result<(), DiskError> {
    let force = || File::open(folder)?.sync_all();
    force().map_err(DiskError::io(format!("forcing {}", folder.display())))
}
