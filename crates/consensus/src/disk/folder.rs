//! A node's folder: the log, its witness, and the snapshots.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;

use super::fault::DiskFault;
use super::log_file::{LogFile, LogState};
use super::snapshots::{Snapshots, Stock, StoredSnapshot};
use super::witness::{Witness, WitnessFile};
use crate::ids::{ClusterId, DiskId, NodeId};
use crate::wire::{EntryRecord, Point};

const LOG: &str = "log.redb";
const UNFINISHED: &str = "log.unfinished";
const WITNESS: &str = "witness";
const SNAPSHOTS: &str = "snapshots";

/// Whose folder it is.
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

/// Whose folder this is; `None` if it holds no log. Nothing may have it open.
///
/// # Errors
/// If it can't be read.
pub fn owner_of(folder: &Path) -> Result<Option<FolderOwner>, DiskFault> {
    if !folder.join(LOG).exists() {
        return Ok(None);
    }
    let state = *open_log(folder)?.0.state();
    Ok(Some(FolderOwner { node: state.node, disk: state.disk, cluster: state.cluster }))
}

impl Folder {
    /// Opens a node's folder. An empty one becomes that of `node` on `disk`, or on a new one.
    pub(crate) fn open(path: &Path, node: NodeId, disk: Option<DiskId>) -> Result<Self, DiskFault> {
        fs::create_dir_all(path).map_err(DiskFault::io(format!("making {}", path.display())))?;
        let new = match disk {
            Some(disk) => disk,
            None => DiskId::random().map_err(|error| DiskFault::Io {
                what: "naming the disk".into(),
                cause: error.to_string(),
            })?,
        };
        if !path.join(LOG).exists() {
            create_log(path, LogState::new(node, new))?;
        }
        let (file, entries) = open_log(path)?;
        let state = *file.state();
        if state.node != node {
            return Err(DiskFault::OtherNode { found: state.node, expected: node });
        }
        if let Some(expected) = disk.filter(|disk| *disk != state.disk) {
            return Err(DiskFault::OtherDisk { found: state.disk, expected });
        }
        let snapshots = Snapshots::open(path.join(SNAPSHOTS), state.disk)?;
        let snapshot = usable_snapshot(&snapshots, state.purged)?;
        Ok(Self { file, entries, snapshots, snapshot })
    }
}

/// The newest snapshot from which the log goes on.
fn usable_snapshot(
    snapshots: &Snapshots,
    purged: Option<Point>,
) -> Result<Option<StoredSnapshot>, DiskFault> {
    let Stock { newest, damaged } = snapshots.take_stock()?;
    let last = newest.as_ref().and_then(|snapshot| snapshot.head.last);
    if last < purged {
        let fault = damaged.into_iter().next_back().map(|(_, fault)| fault);
        return Err(fault.unwrap_or_else(|| DiskFault::damaged("a snapshot is missing")));
    }
    for (path, fault) in damaged {
        tracing::warn!(%fault, "a snapshot can't be read; another one and the log are used");
        snapshots.set_aside(&path)?;
    }
    Ok(newest)
}

/// Makes an empty log, which appears whole or not at all.
fn create_log(folder: &Path, state: LogState) -> Result<(), DiskFault> {
    let note = WitnessFile::open(&folder.join(WITNESS))?.read()?;
    if note.is_some() || has_snapshots(folder) {
        return Err(DiskFault::damaged("the log is gone"));
    }
    let unfinished = folder.join(UNFINISHED);
    if unfinished.exists() {
        fs::remove_file(&unfinished)
            .map_err(DiskFault::io(format!("removing {}", unfinished.display())))?;
    }
    LogFile::create(backend(&unfinished)?, state)?;
    fs::rename(&unfinished, folder.join(LOG)).map_err(DiskFault::io("naming the log"))?;
    force_folder(folder)
}

fn backend(path: &Path) -> Result<FileBackend, DiskFault> {
    let what = || format!("opening {}", path.display());
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(false).open(path);
    FileBackend::new(file.map_err(DiskFault::io(what()))?)
        .map_err(|error| DiskFault::io(what())(std::io::Error::other(error)))
}

fn open_log(folder: &Path) -> Result<(LogFile, Vec<EntryRecord>), DiskFault> {
    let witness = WitnessFile::open(&folder.join(WITNESS))?;
    let opened = LogFile::open(backend(&folder.join(LOG))?, Box::new(witness));
    opened.map_err(|fault| match fault {
        DiskFault::InUse { .. } => DiskFault::InUse { folder: folder.into() },
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
fn force_folder(folder: &Path) -> Result<(), DiskFault> {
    let force = || File::open(folder)?.sync_all();
    force().map_err(DiskFault::io(format!("forcing {}", folder.display())))
}
