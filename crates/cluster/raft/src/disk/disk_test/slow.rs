//! The system's disk with a delay for each force, which a test can change while a node runs.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redb::{BackendError, StorageBackend};

use crate::disk::commit_marker::{CommitMarker, CommitNote};
use crate::disk::fault::DiskError;
use crate::disk::system::{self, Files, Output, SystemFiles};

/// Additional time that each force takes, by the node's folder.
static DELAYS: Mutex<BTreeMap<PathBuf, Delay>> = Mutex::new(BTreeMap::new());

/// Makes the disk below a node's folder slow from now on, or fast again. Says how often it was
/// forced while it was slow.
pub(crate) fn set(folder: &Path, delay: Duration) -> Arc<AtomicU64> {
    let found = Delay::of(folder);
    found.ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    found.forces
}

#[derive(Clone, Debug, Default)]
struct Delay {
    ms: Arc<AtomicU64>,
    forces: Arc<AtomicU64>,
}

impl Delay {
    fn of(folder: &Path) -> Self {
        DELAYS.lock().unwrap().entry(folder.to_owned()).or_default().clone()
    }

    /// Blocks the calling thread, as the disk does.
    fn pass(&self) {
        let ms = self.ms.load(Ordering::Relaxed);
        if ms > 0 {
            self.forces.fetch_add(1, Ordering::Relaxed);
            // wait: this is the slow disk
            std::thread::sleep(Duration::from_millis(ms));
        }
    }
}

pub(crate) fn files(folder: &Path) -> Arc<dyn Files> {
    Arc::new(SlowFiles(Delay::of(folder)))
}

pub(crate) fn backend(path: &Path) -> Result<impl StorageBackend, DiskError> {
    Ok(SlowBackend(system::backend(path)?, Delay::of(path.parent().unwrap())))
}

pub(crate) fn commit_marker(path: &Path) -> Result<Box<dyn CommitMarker>, DiskError> {
    Ok(Box::new(SlowCommitMarker(system::commit_marker(path)?, Delay::of(path.parent().unwrap()))))
}

#[derive(Debug)]
struct SlowBackend<B>(B, Delay);

impl<B: StorageBackend> StorageBackend for SlowBackend<B> {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.1.pass();
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }

    fn try_lock_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<bool, BackendError> {
        self.0.try_lock_range(from, to)
    }

    fn try_lock_shared_range(
        &self,
        from: Bound<u64>,
        to: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.0.try_lock_shared_range(from, to)
    }

    fn lock_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<(), BackendError> {
        self.0.lock_range(from, to)
    }

    fn lock_shared_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<(), BackendError> {
        self.0.lock_shared_range(from, to)
    }

    fn unlock_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<(), BackendError> {
        self.0.unlock_range(from, to)
    }

    fn query_lock_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<bool, BackendError> {
        self.0.query_lock_range(from, to)
    }
}

struct SlowCommitMarker(Box<dyn CommitMarker>, Delay);

impl CommitMarker for SlowCommitMarker {
    fn read(&self) -> Result<Option<CommitNote>, DiskError> {
        self.0.read()
    }

    fn write(&self, note: CommitNote, force: bool) -> Result<(), DiskError> {
        if force {
            self.1.pass();
        }
        self.0.write(note, force)
    }
}

#[derive(Debug)]
struct SlowFiles(Delay);

impl Files for SlowFiles {
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        SystemFiles.make_folder(folder)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        SystemFiles.list(folder)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        SystemFiles.read(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        Ok(Box::new(SlowOutput(SystemFiles.create(path)?, self.0.clone())))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemFiles.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemFiles.remove(path)
    }

    fn force_folder(&self, folder: &Path) -> io::Result<()> {
        self.0.pass();
        SystemFiles.force_folder(folder)
    }
}

struct SlowOutput(Box<dyn Output>, Delay);

impl Write for SlowOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Output for SlowOutput {
    fn force(&mut self) -> io::Result<()> {
        self.1.pass();
        self.0.force()
    }
}
