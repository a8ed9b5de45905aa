//! The one thread that writes the log: a slow disk delays only the callers that wait for it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use super::fault::DiskError;
use super::log_file::{LogChange, LogFile};

/// Jobs that may wait for the disk. Beyond that the log itself waits.
const JOBS_MAX: usize = 4_096;
/// Jobs written by one transaction: the more wait, the fewer times the disk is forced.
const BATCH_JOBS_MAX: usize = 512;
/// Idle time after which the index of committed entries is written alone. The index is no promise,
/// so it is usually written with the next change; writing it spares the next start the repetition.
const IDLE: Duration = Duration::from_millis(250);

/// Called when a job is on disk, or can't be.
pub(crate) type Done = Box<dyn FnOnce(Result<(), DiskError>) + Send>;

/// Something to write.
pub(crate) struct Job {
    pub(crate) changes: Vec<LogChange>,
    /// `None` for changes that may wait for the next job.
    pub(crate) done: Option<Done>,
}

/// The sending end; the thread ends when it is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Writer(SyncSender<Job>);

impl Writer {
    /// Starts the thread. `ended` is called when it has closed the file.
    pub(crate) fn start(
        file: LogFile,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Self, DiskError> {
        let (sender, jobs) = sync_channel(JOBS_MAX);
        let thread = thread::Builder::new().name("log".to_owned());
        thread
            .spawn(move || {
                run(file, &jobs);
                ended();
            })
            .map_err(DiskError::io("starting the thread of the log"))?;
        Ok(Self(sender))
    }

    /// Hands a job over; waits only if a great many do.
    pub(crate) fn send(&self, job: Job) -> Result<(), DiskError> {
        self.0.send(job).map_err(|_| DiskError::closed("writing the log"))
    }
}

fn run(mut file: LogFile, jobs: &Receiver<Job>) {
    let mut fault = None;
    // Changes that no caller waits for.
    let mut lazy = Vec::new();
    loop {
        let first = if lazy.is_empty() {
            jobs.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            jobs.recv_timeout(IDLE)
        };
        let (is_last, batch) = match first {
            Ok(job) => (false, gather(job, jobs)),
            Err(RecvTimeoutError::Timeout) => (false, Vec::new()),
            // Changes that no caller waits for are still written before the file is closed.
            Err(RecvTimeoutError::Disconnected) => (true, Vec::new()),
        };
        let is_idle = batch.is_empty();
        let mut waiting = Vec::new();
        for job in batch {
            lazy.extend(job.changes);
            waiting.extend(job.done);
        }
        // Changes that no caller waits for do not force the disk on their own. They are written
        // with the next change, or when no further change comes.
        if (is_idle || !waiting.is_empty()) && !lazy.is_empty() && fault.is_none() {
            fault = file.write(&lazy).err();
            lazy.clear();
        }
        for done in waiting {
            // After a failure nothing is known of the file, so nothing is tried again.
            done(match &fault {
                None => Ok(()),
                Some(fault) => Err(DiskError::Stopped(Box::new(fault.clone()))),
            });
        }
        if is_last {
            return;
        }
        if fault.is_some() {
            lazy.clear();
        }
    }
}

fn gather(first: Job, jobs: &Receiver<Job>) -> Vec<Job> {
    let mut batch = vec![first];
    batch.extend(jobs.try_iter().take(BATCH_JOBS_MAX - 1));
    batch
}
