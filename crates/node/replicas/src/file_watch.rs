//! Notices that files change.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

/// A watch over some files that ends when this value is dropped.
#[derive(Debug)]
pub struct FileWatch {
    _watcher: RecommendedWatcher,
}

impl FileWatch {
    /// Sends to `changed` whenever one of `files` is written, replaced or removed. A change is not sent
    /// while the channel is full, so a channel of one place joins changes that come together.
    ///
    /// Watches the files' folders: many tools replace a file instead of writing to it.
    ///
    /// # Errors
    /// If the system can't watch one of the folders.
    pub fn start(files: &[PathBuf], changed: mpsc::Sender<()>) -> io::Result<Self> {
        let folders: BTreeSet<&Path> = files.iter().map(|file| folder(file)).collect();
        let names: BTreeSet<OsString> =
            files.iter().filter_map(|file| file.file_name()).map(ToOwned::to_owned).collect();
        let notice = move |event: notify::Result<notify::Event>| {
            let Ok(event) = event else { return };
            let is_named =
                |path: &PathBuf| path.file_name().is_some_and(|name| names.contains(name));
            let is_ours = event.paths.iter().any(is_named);
            // Kubernetes swaps a link beside the file instead of the file.
            let is_link = event.paths.iter().any(|path| path.ends_with("..data"));
            if !event.kind.is_access() && (is_ours || is_link) {
                // A change that waits already covers this one.
                let _: Result<(), _> = changed.try_send(());
            }
        };
        let mut watcher = notify::recommended_watcher(notice).map_err(io::Error::other)?;
        for folder in folders {
            watcher.watch(folder, RecursiveMode::NonRecursive).map_err(io::Error::other)?;
        }
        Ok(Self { _watcher: watcher })
    }
}

fn folder(file: &Path) -> &Path {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or_else(|| Path::new("."))
}
