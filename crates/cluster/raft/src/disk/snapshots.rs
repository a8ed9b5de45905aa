//! Snapshots: files that appear whole or not at all, two of which are kept.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spillway_codec::{FrameHeader, HEADER_BYTES, Wire};
use spillway_types::DiskId;

use super::fault::DiskError;
use super::system::{Files, SystemFiles};
use crate::wire::{Point, SnapshotHead};

/// Number of snapshots kept: if the newest can't be read, the one before and the log do as well.
const KEPT: usize = 2;
const ENDING: &str = "snapshot";
const UNFINISHED: &str = "unfinished";
const DAMAGED: &str = "damaged";

/// Head of a snapshot's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileHead {
    #[serde(with = "crate::wire::number")]
    disk: DiskId,
    head: SnapshotHead,
}

impl Wire for FileHead {
    const KIND: u16 = 0x0412;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 256 << 10;
}

/// A snapshot as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredSnapshot {
    pub(crate) head: SnapshotHead,
    pub(crate) data: Bytes,
}

/// Contents of a folder of snapshots.
#[derive(Debug)]
pub(crate) struct Stock {
    pub(crate) newest: Option<StoredSnapshot>,
    pub(crate) damaged: Vec<(PathBuf, DiskError)>,
}

/// The folder of snapshots.
#[derive(Clone, Debug)]
pub(crate) struct Snapshots {
    files: Arc<dyn Files>,
    folder: PathBuf,
    disk: DiskId,
}

impl Snapshots {
    /// Opens the folder and removes what a crash has left unfinished.
    pub(crate) fn open(
        files: Arc<dyn Files>,
        folder: PathBuf,
        disk: DiskId,
    ) -> Result<Self, DiskError> {
        let opening = || DiskError::io(format!("opening {}", folder.display()));
        files.make_folder(&folder).map_err(opening())?;
        // Snapshots last only if the name of their folder does.
        files.force_folder(around(&folder)).map_err(opening())?;
        for path in files.list(&folder).map_err(opening())? {
            if path.extension().is_some_and(|ending| ending == UNFINISHED) {
                files.remove(&path).map_err(opening())?;
            }
        }
        Ok(Self { files, folder, disk })
    }

    /// Writes a snapshot: it is on disk, whole, when this returns. Older ones are then dropped.
    pub(crate) fn write(&self, snapshot: &StoredSnapshot) -> io::Result<()> {
        let path = self.folder.join(name_of(snapshot.head.last));
        write_on(&*self.files, &path, self.disk, snapshot)?;
        self.prune()
    }

    /// Reads all snapshots: the newest that is whole, and those that are not with the reason.
    pub(crate) fn take_stock(&self) -> Result<Stock, DiskError> {
        let mut stock = Stock { newest: None, damaged: Vec::new() };
        for path in self.files()? {
            match self.read(&path) {
                // The files come oldest first, so the last one that is whole stays.
                Ok(snapshot) => stock.newest = Some(snapshot),
                Err(fault @ DiskError::Damaged { .. }) => stock.damaged.push((path, fault)),
                // A snapshot that can't be read now may be whole: only damage is a reason to go
                // without it.
                Err(fault) => return Err(fault),
            }
        }
        Ok(stock)
    }

    /// Puts a damaged snapshot aside, so that it does not count among the snapshots kept: otherwise
    /// the entries that these hold would be dropped from the log.
    pub(crate) fn set_aside(&self, path: &Path) -> Result<(), DiskError> {
        let aside = self.files.rename(path, &path.with_extension(DAMAGED));
        aside.map_err(DiskError::io(format!("renaming {}", path.display())))
    }

    /// Returns the last entry of the oldest snapshot kept, once there are two: the log need not
    /// have the entries up to that one.
    pub(crate) fn covered(&self) -> Result<Option<Point>, DiskError> {
        let files = self.files()?;
        Ok(if files.len() < KEPT { None } else { files.first().and_then(|path| point_of(path)) })
    }

    /// Drops all but the newest: the log does not reach back to the others any more.
    pub(crate) fn only_newest(&self) -> io::Result<()> {
        self.drop_but(1)
    }

    fn prune(&self) -> io::Result<()> {
        self.drop_but(KEPT)
    }

    fn drop_but(&self, kept: usize) -> io::Result<()> {
        let files = self.files().map_err(DiskError::into_io)?;
        for old in files.iter().take(files.len().saturating_sub(kept)) {
            self.files.remove(old)?;
        }
        self.files.force_folder(&self.folder)
    }

    fn read(&self, path: &Path) -> Result<StoredSnapshot, DiskError> {
        let (disk, snapshot) = read_file(&*self.files, path)?;
        // It was copied from another node's folder, or renamed.
        if disk != self.disk || point_of(path) != snapshot.head.last {
            let what = format!("{}: it is another snapshot", path.display());
            return Err(DiskError::damaged(what));
        }
        Ok(snapshot)
    }

    /// All snapshots, oldest first.
    fn files(&self) -> Result<Vec<PathBuf>, DiskError> {
        let listing = || DiskError::io(format!("listing {}", self.folder.display()));
        let mut files = self.files.list(&self.folder).map_err(listing())?;
        files.retain(|path| path.extension().is_some_and(|ending| ending == ENDING));
        files.sort();
        Ok(files)
    }
}

impl StoredSnapshot {
    /// A snapshot of these bytes; length and checksum of `head` are filled in.
    pub(crate) fn new(mut head: SnapshotHead, data: Bytes) -> Self {
        head.bytes = data.len() as u64;
        head.checksum = crc32c::crc32c(&data);
        Self { head, data }
    }
}

/// Writes a snapshot as a file of its own.
pub(crate) fn write_snapshot(
    path: &Path,
    disk: DiskId,
    snapshot: &StoredSnapshot,
) -> io::Result<()> {
    write_on(&SystemFiles, path, disk, snapshot)
}

pub(super) fn write_on(
    files: &dyn Files,
    path: &Path,
    disk: DiskId,
    snapshot: &StoredSnapshot,
) -> io::Result<()> {
    let head = FileHead { disk, head: snapshot.head.clone() };
    let head = spillway_codec::encode(&head).map_err(io::Error::other)?;
    let unfinished = path.with_extension(UNFINISHED);
    let written = write_whole(files, &unfinished, &[&head, &snapshot.data]);
    if written.is_err() {
        // A full disk gets the room back; if that fails too, the next start tries again.
        drop(files.remove(&unfinished));
    }
    written?;
    files.rename(&unfinished, path)?;
    files.force_folder(around(path))
}

/// The folder that something is in.
fn around(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Reads a snapshot's file, of whichever disk.
pub(crate) fn read_snapshot(path: &Path) -> Result<StoredSnapshot, DiskError> {
    read_file(&SystemFiles, path).map(|(_, snapshot)| snapshot)
}

/// Reads a snapshot from the bytes of the file `path`.
pub(crate) fn parse_snapshot(path: &Path, bytes: Bytes) -> Result<StoredSnapshot, DiskError> {
    parse(path, bytes).map(|(_, snapshot)| snapshot)
}

fn read_file(files: &dyn Files, path: &Path) -> Result<(DiskId, StoredSnapshot), DiskError> {
    let read = files.read(path).map_err(DiskError::io(format!("reading {}", path.display())))?;
    parse(path, Bytes::from(read))
}

fn parse(path: &Path, mut bytes: Bytes) -> Result<(DiskId, StoredSnapshot), DiskError> {
    let damaged = |what: String| DiskError::damaged(format!("{}: {what}", path.display()));
    let head = bytes.first_chunk::<HEADER_BYTES>().ok_or_else(|| damaged("cut off".into()))?;
    let header = FrameHeader::parse(head).map_err(|error| damaged(error.to_string()))?;
    let length = header.admit::<FileHead>().map_err(|error| damaged(error.to_string()))?;
    if bytes.len() < HEADER_BYTES + length {
        return Err(damaged("cut off".into()));
    }
    let head = bytes.split_to(HEADER_BYTES + length);
    let FileHead { disk, head } =
        spillway_codec::decode(&head).map_err(|error| damaged(error.to_string()))?;
    if head.bytes != bytes.len() as u64 || head.checksum != crc32c::crc32c(&bytes) {
        return Err(damaged("the state is cut off or changed".into()));
    }
    Ok((disk, StoredSnapshot { head, data: bytes }))
}

fn write_whole(files: &dyn Files, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = files.create(path)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.force()
}

/// Names sort as their snapshots are old.
fn name_of(last: Option<Point>) -> String {
    match last {
        Some(last) => format!("{:020}-{:020}.{ENDING}", last.index, last.term),
        None => format!("none.{ENDING}"),
    }
}

fn point_of(path: &Path) -> Option<Point> {
    let (index, term) = path.file_stem()?.to_str()?.split_once('-')?;
    Some(Point { term: term.parse().ok()?, index: index.parse().ok()? })
}
