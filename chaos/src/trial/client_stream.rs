//! Steady stream of writes to one node, in an open loop.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use spillway_harness::{spawn, wait_for};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::api::Write;
use super::client::ApiClient;
use super::patience::PATIENCE;

/// Most writes in flight: those of the 10 s that one write may take.
const IN_FLIGHT_MAX: usize = 256;
/// Interval between two writes.
pub(crate) const GAP: Duration = Duration::from_millis(50);

/// Writes to one node, one each [`GAP`]. Dropping this ends the stream.
#[derive(Debug)]
pub(crate) struct ClientStream {
    notes: Arc<Mutex<Vec<StreamNote>>>,
    task: JoinHandle<()>,
}

/// Result of one write.
#[derive(Clone, Debug)]
pub(crate) struct StreamNote {
    pub(crate) start: Instant,
    pub(crate) end: Instant,
    pub(crate) write: Write,
}

impl ClientStream {
    pub(crate) fn start(admin: &ApiClient, key: String) -> Self {
        let notes = Arc::<Mutex<Vec<StreamNote>>>::default();
        let task = spawn(run(admin.clone(), key, Arc::clone(&notes)));
        Self { notes, task }
    }

    /// Returns the writes that have ended.
    pub(crate) fn notes(&self) -> Vec<StreamNote> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl StreamNote {
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.write, Write::Done(_))
    }
}

async fn run(admin: ApiClient, key: String, notes: Arc<Mutex<Vec<StreamNote>>>) {
    let slots = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
    let mut ticks = interval(GAP);
    // After a stall writes go on at the usual rate, without a burst.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for value in 1.. {
        ticks.tick().await;
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let (admin, key, notes) = (admin.clone(), key.clone(), Arc::clone(&notes));
        spawn(async move {
            let start = Instant::now();
            let write = admin.write(&key, value, None).await;
            let note = StreamNote { start, end: Instant::now(), write };
            notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
            drop(slot);
        });
    }
}

/// Returns the writes that have ended, of all streams.
pub(crate) fn all(streams: &[ClientStream]) -> Vec<StreamNote> {
    streams.iter().flat_map(ClientStream::notes).collect()
}

/// Waits for a write that began after `since` and was done. Returns the time of its end.
pub(crate) async fn first_done(
    streams: &[ClientStream],
    since: Instant,
) -> anyhow::Result<Instant> {
    let look = async || {
        let notes = all(streams);
        let done = notes.iter().filter(|note| note.start > since && note.is_done());
        done.map(|note| note.end).min().ok_or_else(|| format!("{:?}", notes.last()))
    };
    // A write's own note has the exact time of its end.
    wait_for("no write was done", PATIENCE, Duration::from_millis(5), look).await
}

/// Returns the longest time between two successful writes, between `from` and `until`.
pub(crate) fn longest_pause(notes: &[StreamNote], from: Instant, until: Instant) -> Duration {
    let within = |at: &Instant| *at > from && *at < until;
    let done = notes.iter().filter(|note| note.is_done()).map(|note| note.end);
    let mut ends: Vec<Instant> = done.filter(within).chain([from, until]).collect();
    ends.sort_unstable();
    let pauses = ends.windows(2).map(|pair| pair[1] - pair[0]);
    pauses.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_between_writes_that_were_done() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let note = |ms, write| StreamNote { start, end: at(ms), write };
        let refused = Write::Refused("503 no_quorum".to_owned());
        let notes = [note(700, Write::Done(3)), note(100, Write::Done(1)), note(400, refused)];
        assert_eq!(longest_pause(&notes, start, at(900)), Duration::from_millis(600));
        assert_eq!(longest_pause(&[], start, at(900)), Duration::from_millis(900));
        assert_eq!(longest_pause(&notes, at(200), at(600)), Duration::from_millis(400));
    }
}
