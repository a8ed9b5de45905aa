//! Discovery of replicas from a file.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::FileWatch;

/// Largest file that is read, bytes: ten thousand replicas.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Pause after which a changed file is read again, until it stays the same: it may be read in the
/// middle of a write.
const SETTLE: Duration = Duration::from_millis(50);
/// Most readings of a file that changes all the time, before it is left for the next round.
const SETTLE_ROUNDS: u32 = 20;

/// File whose text is sent whenever it changes. The receiver parses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSource {
    /// Path of the file, which need not exist yet.
    pub path: PathBuf,
    /// Interval at which the file is also read without a notification of a change, because network
    /// file systems may send none.
    pub reread: Duration,
}

impl FileSource {
    /// Makes a source that watches `path` and reads it at least every 3 s.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, reread: Duration::from_secs(3) }
    }

    /// Watches the file until `stop`, or until the receiver is dropped, on the runtime of the
    /// caller. The value is `None` until the file was read once. If the file is gone or can't be
    /// read, its last text stays.
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
        // Capacity 1: a second change while one waits needs no second reading.
        let (changed, mut changes) = mpsc::channel(1);
        let _watch = FileWatch::start(std::slice::from_ref(&self.path), changed.clone())
            .inspect_err(|error| {
                let path = self.path.display();
                tracing::warn!(%path, %error, "changes are only noticed by reading again");
            })
            .ok();
        // A failure is logged once, not in each round.
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

    /// Sends the text if it is new, and did not change between two readings.
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
