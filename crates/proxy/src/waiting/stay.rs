//! A request's place in a queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_route::{ShedReason, WaitTicket, Waiting};
use tokio::sync::oneshot;

use super::{WaitKey, Waitings};

/// A request's place in a queue; it leaves the queue when dropped.
#[derive(Debug)]
pub(crate) struct Stay {
    waitings: Arc<Waitings>,
    key: WaitKey,
    ticket: WaitTicket,
    turn_by: Option<Instant>,
    words: oneshot::Receiver<Word>,
}

/// How a stay ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It is the request's turn to look for a place.
    Turn,
    /// It is sent away, and may come again after this time.
    Shed(ShedReason, Duration),
}

/// What a request that waits is told.
#[derive(Debug)]
pub(super) enum Word {
    Turn(Turn),
    Shed(ShedReason, Duration),
}

/// A request's turn to look for a place. Dropped unused, it goes to the next one.
#[derive(Debug)]
pub(super) struct Turn {
    waitings: Arc<Waitings>,
    key: WaitKey,
    is_used: bool,
}

impl Stay {
    pub(super) fn new(
        waitings: &Arc<Waitings>,
        key: WaitKey,
        (ticket, turn_by): (WaitTicket, Option<Instant>),
        words: oneshot::Receiver<Word>,
    ) -> Self {
        Self { waitings: Arc::clone(waitings), key, ticket, turn_by, words }
    }

    /// Since when it is due, its turn having come at `now`: since it was predicted, or now if that is
    /// sooner. Should it find no place, nobody who comes later goes before it, and it not before those
    /// who are due for longer.
    pub(crate) fn due(&self, now: Instant) -> Instant {
        self.turn_by.map_or(now, |turn_by| turn_by.min(now))
    }

    /// What waits together with it.
    pub(crate) fn waiting(&self) -> Waiting {
        let lines = self.waitings.lock();
        let waiting = lines.get(&self.key);
        let waiting = waiting.and_then(|line| line.waiting_of(self.ticket, Instant::now()));
        // It was told something just now.
        let told = Waiting { ahead: 0, wait_ms: None, all: 0, has_room: true };
        Waiting { has_room: true, ..waiting.unwrap_or(told) }
    }

    /// What it was told, if anything.
    #[cfg(test)]
    pub(super) fn try_told(&mut self) -> Option<Told> {
        self.words.try_recv().ok().map(Word::taken)
    }

    /// Waits until it is told something.
    pub(crate) async fn told(&mut self) -> Told {
        // The sender is dropped only with the queue, which lives as long as this does.
        (&mut self.words).await.map_or(Told::Turn, Word::taken)
    }
}

impl Word {
    fn taken(self) -> Told {
        match self {
            Self::Turn(turn) => turn.take(),
            Self::Shed(reason, retry_after) => Told::Shed(reason, retry_after),
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let mut lines = self.waitings.lock();
        if let Some(line) = lines.get_mut(&self.key) {
            let removed =
                self.waitings.counted(line, |line| line.remove(self.ticket, Instant::now()));
            drop(lines);
            // Its word may be a turn, whose end takes the lock.
            drop(removed);
        }
    }
}

impl Turn {
    pub(super) fn new(waitings: &Arc<Waitings>, key: WaitKey) -> Self {
        Self { waitings: Arc::clone(waitings), key, is_used: false }
    }

    /// The request looks for a place now.
    fn take(mut self) -> Told {
        self.is_used = true;
        Told::Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_used {
            self.waitings.wake_one(&self.key);
        }
    }
}
