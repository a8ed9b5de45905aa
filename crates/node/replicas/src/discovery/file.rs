//! Discovery of replicas from a file.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use spillway_tasks::restarted;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::source_state::Findings;
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
    /// Time for which a text must stay the same if it is only the beginning of the last one: the
    /// writer may not have come further.
    pub cut_settle: Duration,
}

impl FileSource {
    /// Makes a source that watches `path` and reads it at least every 3 s.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, reread: Duration::from_secs(3), cut_settle: Duration::from_secs(2) }
    }

    /// Watches the file until `stop`, or until the receiver is dropped, on the runtime of the
    /// caller. Nothing is found until the file was read once. If the file is gone or can't be read,
    /// its last text stays. Only another text is a change of the watch.
    #[must_use]
    pub fn watch(
        self,
        tasks: &TaskTracker,
        stop: CancellationToken,
    ) -> watch::Receiver<Findings<Arc<str>>> {
        let (sender, receiver) = Findings::channel();
        tasks.spawn(async move {
            tokio::select! {
                () = restarted("discovery by a file", || self.run(&sender)) => {}
                () = sender.closed() => {}
                () = stop.cancelled() => {}
            }
        });
        receiver
    }

    async fn run(&self, sender: &watch::Sender<Findings<Arc<str>>>) {
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
                    sender.send_if_modified(|findings| {
                        findings.state.note_failure(error.to_string());
                        false
                    });
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
    async fn read_settled(&self, sender: &watch::Sender<Findings<Arc<str>>>) -> io::Result<()> {
        let mut before = self.read().await?;
        for _ in 0..SETTLE_ROUNDS {
            let known = sender.borrow().found.clone();
            if known.as_deref() == Some(&before) {
                sender.send_if_modified(|findings| {
                    findings.state.note_answer(false, Instant::now());
                    false
                });
                return Ok(());
            }
            // A beginning of the last text is likely to be the half of a text that is written again.
            let is_beginning = known.is_some_and(|known| known.starts_with(&before));
            sleep(if is_beginning { self.cut_settle } else { SETTLE }).await;
            let now = self.read().await?;
            if now == before {
                sender.send_modify(|findings| {
                    findings.state.note_answer(false, Instant::now());
                    findings.found = Some(now.into());
                });
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
