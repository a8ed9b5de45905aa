//! A file that lists replicas.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecursiveMode, Watcher};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Largest file that is read, bytes: ten thousand replicas.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// A changed file is read again after this long, until it stays the same: it may be in the middle
/// of being written.
const SETTLE: Duration = Duration::from_millis(50);
/// Readings of a file that changes all the time before it is left for the next round.
const SETTLE_ROUNDS: u32 = 20;

/// A file whose text is told whenever it changes. What stands in it is for the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSource {
    /// The file. It need not exist yet.
    pub path: PathBuf,
    /// It is also read this often, for changes that the system does not tell of, as on network
    /// file systems.
    pub reread: Duration,
}

impl FileSource {
    /// Watches `path`, and reads it every 3 s whatever happens.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, reread: Duration::from_secs(3) }
    }

    /// Watches until `stop`, or until nobody listens, on the runtime of the caller. The value is
    /// `None` until the file was read once. A file that is gone or can't be read keeps its last
    /// text.
    #[must_use]
    pub fn watch(
        self,
        tasks: &TaskTracker,
        stop: CancellationToken,
    ) -> watch::Receiver<Option<Arc<str>>> {
        let (sender, receiver) = watch::channel(None);
        tasks.spawn(async move {
            tokio::select! {
                () = self.run(&sender) => {}
                () = sender.closed() => {}
                () = stop.cancelled() => {}
            }
        });
        receiver
    }

    async fn run(&self, sender: &watch::Sender<Option<Arc<str>>>) {
        // One place: a second change while one waits needs no second reading.
        let (changed, mut changes) = mpsc::channel(1);
        let _watcher = notice_changes(&self.path, changed.clone())
            .inspect_err(|error| {
                let path = self.path.display();
                tracing::warn!(%path, %error, "changes are only noticed by reading again");
            })
            .ok();
        let mut could_read = true;
        loop {
            match self.read_settled(sender).await {
                Ok(()) => could_read = true,
                Err(error) => {
                    if could_read {
                        let path = self.path.display();
                        tracing::warn!(%path, %error, "can't read; the last text stays in use");
                    }
                    could_read = false;
                }
            }
            tokio::select! {
                _ = changes.recv() => {}
                () = sleep(self.reread) => {}
            }
        }
    }

    /// Tells the text if it is another one, and did not change between two readings.
    async fn read_settled(&self, sender: &watch::Sender<Option<Arc<str>>>) -> io::Result<()> {
        let mut before = self.read().await?;
        for _ in 0..SETTLE_ROUNDS {
            if sender.borrow().as_deref() == Some(&before) {
                return Ok(());
            }
            sleep(SETTLE).await;
            let now = self.read().await?;
            if now == before {
                sender.send_replace(Some(now.into()));
                return Ok(());
            }
            before = now;
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "it is being written all the time"))
    }

    async fn read(&self) -> io::Result<String> {
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || read(&path)).await.map_err(io::Error::other)?
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 4 MiB"));
    }
    Ok(text)
}

/// Watches the file's folder: many tools replace a file instead of writing to it.
fn notice_changes(path: &Path, changed: mpsc::Sender<()>) -> notify::Result<impl Watcher + use<>> {
    let name = path.file_name().map(ToOwned::to_owned);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let Ok(event) = event else { return };
        let is_ours = event.paths.iter().any(|path| path.file_name() == name.as_deref());
        // Kubernetes swaps a link beside the file instead of the file.
        let is_link = event.paths.iter().any(|path| path.ends_with("..data"));
        if !event.kind.is_access() && (is_ours || is_link) {
            // A change that waits already covers this one.
            let _: Result<(), _> = changed.try_send(());
        }
    })?;
    watcher.watch(folder.unwrap_or_else(|| Path::new(".")), RecursiveMode::NonRecursive)?;
    Ok(watcher)
}
