//! The answer: where a request goes, why, and what was thought of each region.

use serde::Serialize;
use smallvec::SmallVec;

use super::cost::SpillCost;
use crate::ShedReason;

/// Where a request goes, and how that came about.
#[derive(Clone, Debug, PartialEq)]
pub struct SpillPlan {
    /// What to do with it.
    pub verdict: SpillVerdict,
    /// Why.
    pub reason: SpillReason,
    /// What staying in the own region would cost; `None` if it serves and no other was looked at, if it
    /// has no replicas or takes no more into its queue, and if the request would not live to see
    /// its turn.
    pub own: Option<SpillCost>,
    /// What was thought of each of the other regions, by its index. Empty if none was looked at.
    pub regions: SmallVec<[Judged; REGIONS_INLINE]>,
}

/// What to do with a request.
#[derive(Clone, Debug, PartialEq)]
pub enum SpillVerdict {
    /// Hand it to a replica of the own region.
    Own,
    /// Forward it to the first of these regions, and on a refusal decide again. They stand by their
    /// index among the other regions, the best first; there is at least one. What each costs is in
    /// [`SpillPlan::regions`].
    Forward(SmallVec<[usize; REGIONS_INLINE]>),
    /// Put it into this node's queue.
    Wait {
        /// Milliseconds until its turn is predicted to come.
        wait_ms: f32,
    },
    /// Answer that it can't be served now.
    Shed {
        /// Seconds after which the client should ask again, 1 to 60. A queue that knows what it has
        /// promised knows better: [`Admission::shed`](crate::Admission::shed).
        retry_after_s: u32,
        /// Milliseconds until a place is predicted to come free anywhere; infinite if nobody is in
        /// reach.
        wait_ms: f32,
    },
}

/// What was thought of a region.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// What serving there was predicted to take.
    pub cost: SpillCost,
    /// Why the request could not or need not go there; `None` if it could.
    pub objection: Option<Objection>,
}

/// Why a request does not go to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Objection {
    /// The request has been forwarded once already.
    Forwarded,
    /// The region is silent, or does not hear this one.
    Unreachable,
    /// It has refused this request.
    Refused,
    /// Its weight or its ramp is 0.
    Drained,
    /// It has said that it takes no guests.
    Closed,
    /// The answer would come after the deadline, or later than the route's objective says.
    Late,
    /// Chance left it out, by its weight and ramp, in favour of another.
    Rested,
    /// Waiting in the own region costs no more.
    NotBetter,
    /// It shows no room for guests, who don't wait.
    Full,
}

/// Why a request goes where it goes: for logs, metrics and explanations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SpillReason {
    /// Served here: there is room.
    Room,
    /// Forwarded: there is room, but the other region has much more of the prompt cached.
    Cached,
    /// Forwarded: the request's session is at home there.
    Session,
    /// Forwarded: this region has no replicas.
    NoReplica,
    /// Forwarded: waiting here costs more.
    Better,
    /// Forwarded: this region could only have shed it.
    OnlyWay,
    /// Waits: going to another region costs as much or more.
    NoneBetter,
    /// Waits: no other region could take it.
    NobodyElse,
    /// Shed: it came from another region, which can look further, and there is no room.
    GuestWithoutRoom,
    /// Shed: the queue is full and no other region shows room.
    QueueFull,
    /// Shed: it can't wait here, and no region that may serve it shows room.
    AllBusy,
    /// Shed: its first token would come later than the route's objective says, wherever it went.
    Slo,
    /// Shed: its turn would come after its deadline.
    Late,
    /// Shed: there is no replica in reach.
    NobodyInReach,
}

/// Regions that a plan holds without a heap allocation: as many as most clusters have.
pub(super) const REGIONS_INLINE: usize = 8;

impl SpillPlan {
    /// The own region has room, and nothing else was looked at.
    pub(super) fn own() -> Self {
        Self {
            verdict: SpillVerdict::Own,
            reason: SpillReason::Room,
            own: None,
            regions: SmallVec::new(),
        }
    }
}

impl SpillReason {
    /// The name used in logs and metric labels, e.g. `none_better`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Room => "room",
            Self::Cached => "cached",
            Self::Session => "session",
            Self::NoReplica => "no_replica",
            Self::Better => "better",
            Self::OnlyWay => "only_way",
            Self::NoneBetter => "none_better",
            Self::NobodyElse => "nobody_else",
            Self::GuestWithoutRoom => "guest_without_room",
            Self::QueueFull => "queue_full",
            Self::AllBusy => "all_busy",
            Self::Slo => "slo",
            Self::Late => "late",
            Self::NobodyInReach => "nobody_in_reach",
        }
    }

    /// Why the request is shed, if it is.
    #[must_use]
    pub fn shed(self) -> Option<ShedReason> {
        match self {
            Self::GuestWithoutRoom => Some(ShedReason::GuestWithoutRoom),
            Self::QueueFull => Some(ShedReason::QueueFull),
            Self::AllBusy => Some(ShedReason::ReplicaBusy),
            Self::Slo => Some(ShedReason::Slo),
            Self::Late => Some(ShedReason::Late),
            Self::NobodyInReach => Some(ShedReason::NobodyInReach),
            Self::Room
            | Self::Cached
            | Self::Session
            | Self::NoReplica
            | Self::Better
            | Self::OnlyWay
            | Self::NoneBetter
            | Self::NobodyElse => None,
        }
    }
}

impl Objection {
    /// The name used in logs and metric labels, e.g. `unreachable`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Drained => "drained",
            Self::Closed => "closed",
            Self::Late => "late",
            Self::Rested => "rested",
            Self::NotBetter => "not_better",
            Self::Full => "full",
        }
    }
}
