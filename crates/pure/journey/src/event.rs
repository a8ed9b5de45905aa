//! Results of steps.

use std::time::{Duration, Instant};

use spillway_route::ShedReason;

use crate::retry::{RetrySafety, StatusClass};

/// Result of a step, reported by the driver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// The number of this request in its group of replicas.
    Ticket(u64),
    /// The budget of retries was asked.
    Retry {
        /// True if a retry was taken; false if the budget is used up.
        is_allowed: bool,
    },
    /// The turn to try a prediction was asked for.
    LateProbe {
        /// True if it is this request's turn.
        is_allowed: bool,
    },
    /// Another request had taken the replica's last slot.
    NoSlot,
    /// The request has a slot at the replica and is sent.
    Asked,
    /// The time has passed after which a second replica may be asked.
    Silent,
    /// The second replica has a slot for the request; or the budget is used up, or no slot was left.
    Hedged {
        /// True if the second replica is asked.
        is_asked: bool,
    },
    /// A reply began.
    Replied {
        /// Kind of the reply's status.
        status: StatusClass,
        /// True if the request's body can be sent again.
        can_repeat: bool,
    },
    /// An attempt at a replica failed.
    Failed {
        /// Safety of repeating the request.
        safety: RetrySafety,
        /// True if the failure is a fault of the replica.
        is_fault: bool,
        /// True if a kept connection broke.
        was_kept: bool,
        /// True if the request's body can be sent again.
        can_repeat: bool,
        /// True if the engine may have died of the request.
        is_death: bool,
    },
    /// The replica does not have the model, and did no work.
    LacksModel {
        /// True if the request's body can be sent again.
        can_repeat: bool,
    },
    /// The client's own upload broke off or broke a rule.
    ClientFault,
    /// Another region began to reply.
    RegionReplied,
    /// Another region did not serve the request.
    RegionFailed {
        /// Reason for which the region did not.
        failure: RegionFailure,
        /// True if the request's body can be sent again.
        can_repeat: bool,
    },
    /// The queue called the request.
    Turn {
        /// Moment since which the turn was due.
        due: Instant,
    },
    /// The queue shed the request.
    SentAway {
        /// Reason for shedding.
        reason: ShedReason,
        /// Time after which the client should retry.
        retry_after: Duration,
    },
    /// The queue has no room for the request.
    QueueFull,
    /// The pause is over, and the queue did not call the request.
    Paused,
    /// The request names another model now, or there was none to name.
    StoodIn {
        /// True if the request names a stand-in model now.
        is_renamed: bool,
    },
}

/// Reason for which another region did not reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RegionFailure {
    /// The region's circuit breaker lets no request through, or nothing is known of the region any
    /// more.
    Closed,
    /// No node of the region is connected.
    NotConnected,
    /// The node that was asked is about to end; another node of the region may take the request.
    Leaving,
    /// The region may not serve the request, by rules that this node does not know.
    OutsideResidency,
    /// The region has no room, or could not serve the request.
    Refused {
        /// Time after which the region may have room; `None` if it did not say.
        wait: Option<Duration>,
    },
    /// The region fell silent and is out of reach.
    Lost,
    /// The link broke or the time was over.
    Broken {
        /// Safety of repeating the request.
        safety: RetrySafety,
    },
}
