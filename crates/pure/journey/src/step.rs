//! Steps of a journey, for the driver to carry out.

use std::time::{Duration, Instant};

use spillway_route::{Attempt, ShedReason, SpillReason};
use spillway_types::RegionName;

use crate::ending::Ending;
use crate::retry::RetrySafety;

/// Act of the driver, which reports the result by [`Journey::on`](crate::Journey::on).
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Take the number of the next decision in the request's group of replicas. Report
    /// [`Event::Ticket`](crate::Event::Ticket).
    TakeTicket,
    /// Take a retry of this safety from the budget. Report [`Event::Retry`](crate::Event::Retry).
    TakeRetry(RetrySafety),
    /// Take the turn to try a prediction: now and then a request is served although its first token
    /// is predicted to come too late. Report [`Event::LateProbe`](crate::Event::LateProbe).
    TakeLateProbe,
    /// Take a slot at a replica of this region and send the request there. Report
    /// [`Event::NoSlot`](crate::Event::NoSlot) or [`Event::Asked`](crate::Event::Asked) first.
    Ask {
        /// Replica to ask, and the reason for choosing it.
        attempt: Attempt,
        /// Kind of connection to use.
        connection: Connection,
    },
    /// Go on waiting for the replica that is asked; no second one is asked.
    Listen,
    /// Take one from the route's budget of hedges, then a slot at this second replica, and ask it
    /// beside the first. Report [`Event::Hedged`](crate::Event::Hedged).
    Hedge(Attempt),
    /// Forward the request to another region.
    Forward {
        /// Region to ask.
        region: RegionName,
        /// Reason for leaving the own region; `None` if no other region could have served the
        /// request.
        reason: Option<SpillReason>,
    },
    /// Wait in this node's queue, or go on waiting there.
    Wait(WaitTerms),
    /// Pause for this long; a pause of zero lets others go first.
    Pause(Duration),
    /// Change the request to its next stand-in model.
    StandIn,
    /// Nothing more: answer the client.
    End(Ending),
}

/// Connection of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// A kept connection, if there is one.
    KeptOrNew,
    /// A new connection, since a kept one has just broken.
    New,
}

/// Terms on which a request waits in the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaitTerms {
    /// End of the wait.
    pub until: Instant,
    /// Reason for shedding the request at that moment.
    pub over: ShedReason,
    /// Latest moment for a replica to get the request so that its first token comes in time; `None`
    /// without an objective.
    pub begin_by: Option<Instant>,
    /// Moment at which its turn was due, if it had one: it keeps that slot.
    pub turn_by: Option<Instant>,
    /// Longest wait for a call before the decision is made again.
    pub pause: Duration,
    /// True if the turn has just come and found no slot for this request, while the request of a
    /// tenant that is not [`is_kept_away`](crate::is_kept_away) may find one: its turn comes next.
    pub passes_turn_on: bool,
}
