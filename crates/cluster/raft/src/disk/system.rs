//! The disk as the system gives it: its callers name each single step, so that tests can stop at
//! any of them.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::StorageBackend;
use redb::backends::FileBackend;
use spillway_files::private;

use super::commit_marker::{CommitMarker, CommitMarkerFile};
use super::fault::DiskError;

/// File system operations of a folder of snapshots.
pub(crate) trait Files: Debug + Send + Sync {
    /// Makes a folder, unless it is there. Its name lasts once the folder around it is forced.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;

    /// The files of a folder, in no order.
    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>>;

    /// All of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Makes an empty file in place of what is there. Its name lasts once the folder is forced.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>>;

    /// Gives a file another name, in place of what has it. It lasts once the folder is forced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. It is gone for good once the folder is forced.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names in a folder are on disk when this returns.
    fn force_folder(&self, folder: &Path) -> io::Result<()>;
}

/// A file that is being written.
pub(crate) trait Output: Write + Send {
    /// All that was written is on disk when this returns.
    fn force(&mut self) -> io::Result<()>;
}

/// The system's files.
#[derive(Debug)]
pub(crate) struct SystemFiles;

impl Files for SystemFiles {
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        private::make_folder(folder)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        Ok(Box::new(private::create(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn force_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}

impl Output for File {
    fn force(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// The files around snapshots in `folder`.
#[cfg_attr(test, expect(dead_code, reason = "tests have disks that can be slow"))]
pub(crate) fn files(_folder: &Path) -> Arc<dyn Files> {
    Arc::new(SystemFiles)
}

/// The file of a log, made if it is not there.
pub(crate) fn backend(path: &Path) -> Result<impl StorageBackend, DiskError> {
    let what = || format!("opening {}", path.display());
    let file = private::open(path);
    FileBackend::new(file.map_err(DiskError::io(what()))?)
        .map_err(|error| DiskError::io(what())(io::Error::other(error)))
}

/// Commit marker in a file, made if it is not there.
pub(crate) fn commit_marker(path: &Path) -> Result<Box<dyn CommitMarker>, DiskError> {
    Ok(Box::new(CommitMarkerFile::open(path)?))
}
