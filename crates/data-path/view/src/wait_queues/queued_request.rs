//! A request's place in a queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_route::{ShedReason, WaitTicket, Waiting};
use tokio::sync::oneshot;

use super::{WaitKey, WaitQueues};

/// A request's place in a queue; it leaves the queue when dropped.
#[derive(Debug)]
pub struct QueuedRequest {
    queues: Arc<WaitQueues>,
    key: WaitKey,
    ticket: WaitTicket,
    turn_by: Option<Instant>,
    words: oneshot::Receiver<QueueMessage>,
}

/// End of a wait in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuedEnd {
    /// The request may look for a slot.
    Turn,
    /// The request is shed, and its client may retry after this time.
    Shed(ShedReason, Duration),
}

/// Message to a request that waits.
#[derive(Debug)]
pub enum QueueMessage {
    /// The request may look for a slot.
    Turn(QueueTurn),
    /// The request is shed, and its client is asked to retry after this time.
    Shed(ShedReason, Duration),
}

/// Turn to look for a slot. Dropped unused, it goes to the next request.
#[derive(Debug)]
pub struct QueueTurn {
    queues: Arc<WaitQueues>,
    key: WaitKey,
    is_used: bool,
}

impl QueuedRequest {
    /// Creates the handle of a request that has entered the queue.
    pub fn new(
        queues: &Arc<WaitQueues>,
        key: WaitKey,
        ticket: WaitTicket,
        turn_by: Option<Instant>,
        words: oneshot::Receiver<QueueMessage>,
    ) -> Self {
        Self { queues: Arc::clone(queues), key, ticket, turn_by, words }
    }

    /// Returns since when the request is due, its turn having come at `now`: since the predicted
    /// time, or now if that is sooner. If it finds no slot, it waits on behind requests that have
    /// been due for longer, and ahead of later ones.
    pub fn due(&self, now: Instant) -> Instant {
        self.turn_by.map_or(now, |turn_by| turn_by.min(now))
    }

    /// Returns the state of the queue that the request waits in.
    pub fn waiting(&self) -> Waiting {
        let lines = self.queues.lock();
        let waiting = lines.get(&self.key);
        let waiting = waiting.and_then(|line| line.waiting_of(self.ticket, Instant::now()));
        // The request has just left the queue, as its message says.
        let told = Waiting { ahead: 0, wait_ms: None, all: 0, has_room: true };
        Waiting { has_room: true, ..waiting.unwrap_or(told) }
    }

    /// Returns the message to the request, if there is one.
    #[cfg(test)]
    pub fn try_ended(&mut self) -> Option<QueuedEnd> {
        self.words.try_recv().ok().map(QueueMessage::taken)
    }

    /// Waits until the request has its turn or is shed.
    pub async fn ended(&mut self) -> QueuedEnd {
        // The sender is dropped only with the queue, which lives as long as this wait.
        (&mut self.words).await.map_or(QueuedEnd::Turn, QueueMessage::taken)
    }
}

impl QueueMessage {
    fn taken(self) -> QueuedEnd {
        match self {
            Self::Turn(turn) => turn.take(),
            Self::Shed(reason, retry_after) => QueuedEnd::Shed(reason, retry_after),
        }
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        let mut lines = self.queues.lock();
        if let Some(line) = lines.get_mut(&self.key) {
            let removed =
                self.queues.counted(line, |line| line.remove(self.ticket, Instant::now()));
            drop(lines);
            // The message may be a turn, whose drop takes the lock.
            drop(removed);
        }
    }
}

impl QueueTurn {
    /// Creates the turn of the first request in this queue.
    pub fn new(queues: &Arc<WaitQueues>, key: WaitKey) -> Self {
        Self { queues: Arc::clone(queues), key, is_used: false }
    }

    /// Uses the turn: the request looks for a slot now.
    fn take(mut self) -> QueuedEnd {
        self.is_used = true;
        QueuedEnd::Turn
    }
}

impl Drop for QueueTurn {
    fn drop(&mut self) {
        if !self.is_used {
            self.queues.wake_one(&self.key);
        }
    }
}
