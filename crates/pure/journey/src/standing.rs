//! Standing of a request in this node's work queue.

use std::time::Instant;

/// Position of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The request is not in the queue.
    // Outside => Queued
    Outside,
    /// The request waits in the queue.
    // Queued => (AtTurn | Outside)
    Queued,
    /// The queue called the request, which looks for a slot; those behind it wait.
    // AtTurn => (Queued | Outside)
    AtTurn,
}

/// Claim of a request to go before newcomers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// No claim: the request is a newcomer.
    // Newcomer => (Promise | Turn)
    Newcomer,
    /// The request was shed earlier, and came back at the time promised.
    // Promise => (Turn | Newcomer)
    Promise,
    /// The request's turn came, and it found no slot. It waits on as due at this moment.
    // Turn => (Turn | Newcomer)
    Turn(Instant),
}

/// Standing of a request: position, claim, and start of its wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueStanding {
    pub(crate) position: Position,
    pub(crate) claim: Claim,
    /// Moment at which the request first began to wait; `None` if it never did.
    pub(crate) since: Option<Instant>,
    /// True if the request came back at the time promised, whatever became of its claim.
    pub(crate) came_when_promised: bool,
}

impl Claim {
    /// Returns true if the request goes before newcomers.
    #[must_use]
    pub fn is_promised(self) -> bool {
        self != Self::Newcomer
    }

    /// Returns when the turn was due; `None` if there was none.
    #[must_use]
    pub fn turn_by(self) -> Option<Instant> {
        match self {
            Self::Turn(due) => Some(due),
            Self::Newcomer | Self::Promise => None,
        }
    }
}

impl Default for QueueStanding {
    fn default() -> Self {
        Self {
            position: Position::Outside,
            claim: Claim::Newcomer,
            since: None,
            came_when_promised: false,
        }
    }
}

impl QueueStanding {
    /// Gives up the slot and claim in one model's queue, since the request changes to a stand-in.
    /// The time waited stays, and those behind still wait if the request was called.
    pub(crate) fn leave_model(&mut self) {
        if self.position == Position::Queued {
            self.position = Position::Outside;
        }
        self.claim = Claim::Newcomer;
        self.came_when_promised = false;
    }
}
