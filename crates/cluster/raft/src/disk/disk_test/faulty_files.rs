//! Files in memory that know which of their bytes and names were forced.
//!
//! They follow POSIX: forcing a file does not force its name, and forcing a folder does not force
//! the contents of its files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::faulty::{FaultyDisk, Power};
use crate::disk::system::{Files, Output};

/// Handles share the files.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultyFiles {
    names: Arc<Mutex<Names>>,
    power: Power,
}

#[derive(Debug, Default)]
struct Names {
    /// Tree that the process sees.
    seen: Tree,
    /// Tree that survives a power failure.
    forced: Tree,
    /// Changes of names that are not forced, in order.
    pending: Vec<Change>,
}

#[derive(Clone, Debug, Default)]
struct Tree {
    files: BTreeMap<PathBuf, FaultyDisk>,
    folders: BTreeSet<PathBuf>,
}

#[derive(Clone, Debug)]
enum Change {
    Folder(PathBuf),
    File(PathBuf, FaultyDisk),
    Rename(PathBuf, PathBuf, FaultyDisk),
    Remove(PathBuf),
}

impl FaultyFiles {
    pub(super) fn new(power: &Power) -> Self {
        let files = Self { names: Arc::default(), power: power.clone() };
        let root = PathBuf::from("/");
        files.lock().seen.folders.insert(root.clone());
        files.lock().forced.folders.insert(root);
        files
    }

    /// Returns the files that may be found after a power failure on a machine with this power: the
    /// names that were forced, and the first or some of the later changes. The contents of each
    /// file are those that [`FaultyDisk::after_crash`] returns.
    pub(super) fn after_crash(&self, power: &Power, random: &mut fastrand::Rng) -> Self {
        let names = self.lock();
        let mut tree = names.forced.clone();
        let first = random.usize(0..=names.pending.len());
        // A journal keeps their order; without one any may be there.
        let kept_percent = [0, 0, 50][random.usize(0..3)];
        for (at, change) in names.pending.iter().enumerate() {
            if at < first || random.u8(0..100) < kept_percent {
                apply(&mut tree, change);
            }
        }
        drop(names);
        // A file without its folder can't be found.
        let Tree { mut files, folders } = tree;
        files.retain(|path, _| folders.contains(path.parent().unwrap()));
        for file in files.values_mut() {
            *file = FaultyDisk::of(file.after_crash(random)).powered(power);
        }
        let tree = Tree { files, folders };
        let names = Names { seen: tree.clone(), forced: tree, pending: Vec::new() };
        Self { names: Arc::new(Mutex::new(names)), power: power.clone() }
    }

    /// A copy of all files as they are seen.
    pub(super) fn copy(&self) -> Self {
        let mut tree = self.lock().seen.clone();
        for file in tree.files.values_mut() {
            *file = FaultyDisk::of(file.bytes());
        }
        let names = Names { seen: tree.clone(), forced: tree, pending: Vec::new() };
        Self { names: Arc::new(Mutex::new(names)), power: Power::default() }
    }

    /// Puts these bytes in place of what a file holds.
    pub(super) fn replace(&self, path: &Path, bytes: Vec<u8>) {
        self.lock().seen.files.insert(path.to_owned(), FaultyDisk::of(bytes));
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap()
    }

    /// Takes one step that changes names.
    fn change(&self, make: impl FnOnce(&Tree) -> io::Result<Change>) -> io::Result<()> {
        self.power.step()?;
        let mut names = self.lock();
        let change = make(&names.seen)?;
        apply(&mut names.seen, &change);
        names.pending.push(change);
        Ok(())
    }
}

fn apply(tree: &mut Tree, change: &Change) {
    match change {
        Change::Folder(path) => {
            tree.folders.insert(path.clone());
        }
        Change::File(path, file) => {
            tree.files.insert(path.clone(), file.clone());
        }
        Change::Rename(from, to, file) => {
            tree.files.remove(from);
            tree.files.insert(to.clone(), file.clone());
        }
        Change::Remove(path) => {
            tree.files.remove(path);
        }
    }
}

impl Change {
    /// Returns true if the change is about a name in this folder.
    fn is_in(&self, folder: &Path) -> bool {
        match self {
            Self::Folder(path) | Self::File(path, _) | Self::Remove(path) => {
                path.parent() == Some(folder)
            }
            Self::Rename(_, to, _) => to.parent() == Some(folder),
        }
    }
}

fn found(tree: &Tree, path: &Path) -> io::Result<FaultyDisk> {
    tree.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
}

impl Files for FaultyFiles {
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        if self.lock().seen.folders.contains(folder) {
            return Ok(());
        }
        self.change(|_| Ok(Change::Folder(folder.to_owned())))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        let names = self.lock();
        let inside = names.seen.files.keys().filter(|path| path.parent() == Some(folder));
        Ok(inside.cloned().collect())
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        found(&self.lock().seen, path).map(|file| file.bytes())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        let file = FaultyDisk::default().powered(&self.power);
        self.change(|_| Ok(Change::File(path.to_owned(), file.clone())))?;
        Ok(Box::new(FaultyOutput(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(|seen| Ok(Change::Rename(from.to_owned(), to.to_owned(), found(seen, from)?)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(|seen| found(seen, path).map(|_| Change::Remove(path.to_owned())))
    }

    fn force_folder(&self, folder: &Path) -> io::Result<()> {
        self.power.step()?;
        let mut names = self.lock();
        let pending = std::mem::take(&mut names.pending);
        for change in pending {
            if change.is_in(folder) {
                apply(&mut names.forced, &change);
            } else {
                names.pending.push(change);
            }
        }
        Ok(())
    }
}

struct FaultyOutput(FaultyDisk);

impl Write for FaultyOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.append(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for FaultyOutput {
    fn force(&mut self) -> io::Result<()> {
        self.0.force()
    }
}
