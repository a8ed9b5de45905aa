//! Result of the decision between regions: where a request goes, why, and the cost of each region.

use serde::Serialize;
use smallvec::SmallVec;

use super::cost::SpillCost;
use crate::ShedReason;

/// Place that a request goes to, with the grounds of the decision.
#[derive(Clone, Debug, PartialEq)]
pub struct SpillPlan {
    /// Action for the request.
    pub verdict: SpillVerdict,
    /// Reason of the verdict.
    pub reason: SpillReason,
    /// Cost of staying in the own region. `None` if it serves and no other was looked at, if it has
    /// no replicas or takes no more into its queue, and if the request would not live until its
    /// turn.
    pub own: Option<SpillCost>,
    /// Cost and objection of each other region, by its index. Empty if none was looked at.
    pub regions: ByRegion<Judged>,
}

/// Action for a request.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one lives for the time of a decision, which is not to allocate"
)]
pub enum SpillVerdict {
    /// Hand it to a replica of the own region.
    Own,
    /// Forward the request to the first of these regions, and decide again after a refusal. They
    /// are given by their index among the other regions, the best first; there is at least one.
    /// Their costs are in [`SpillPlan::regions`].
    Forward(ByRegion<usize>),
    /// Put the request into this node's queue.
    Wait {
        /// Milliseconds until the predicted turn.
        wait_ms: f32,
    },
    /// Refuse the request for now.
    Shed {
        /// Seconds after which the client should ask again, 1 to 60.
        /// [`Admission::shed`](crate::Admission::shed), which knows the promised places, gives a
        /// better value.
        retry_after_s: u32,
        /// Milliseconds until a place is predicted to come free anywhere; infinite if no replica is
        /// in reach.
        wait_ms: f32,
    },
}

/// Cost of a region and the objection against it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// Predicted cost of serving there.
    pub cost: SpillCost,
    /// Reason why the request could not or need not go there; `None` if it could.
    pub objection: Option<Objection>,
}

/// Reason why a request does not go to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Objection {
    /// The request was forwarded once already.
    Forwarded,
    /// The region is silent, or does not receive this region's reports.
    Unreachable,
    /// The region has refused this request.
    Refused,
    /// The residency rules of the request do not allow the region.
    OutsideResidency,
    /// The weight or the ramp of the region is 0.
    Drained,
    /// The region reports that it takes no guests.
    Closed,
    /// The answer would come after the deadline, or later than the route's objective.
    Late,
    /// Chance left the region out, by its weight and ramp, in favour of another.
    Rested,
    /// Staying in the own region costs no more, or so little more that it is not worth the way.
    NotBetter,
    /// The region shows no room for guests, which don't wait.
    Full,
}

/// Reason for the place that a request goes to, for logs, metrics and explanations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SpillReason {
    /// Served here: there is room.
    Room,
    /// Forwarded: there is room, but the other region costs clearly less, as where it has more of
    /// the prompt cached.
    Cached,
    /// Forwarded: the request's session has its home there.
    Session,
    /// Forwarded: this region has no replicas.
    NoReplica,
    /// Forwarded: this region is evacuated.
    Evacuated,
    /// Forwarded: the residency rules of the request do not allow this region.
    OutsideResidency,
    /// Forwarded: waiting here costs more.
    Better,
    /// Forwarded: this region could only have shed the request.
    OnlyWay,
    /// Waits: going to another region costs as much or more.
    NoneBetter,
    /// Waits: no other region could take the request.
    NobodyElse,
    /// Shed: there is no room for a request from another region, which can look further.
    GuestWithoutRoom,
    /// Shed: the queue is full and no other region shows room.
    QueueFull,
    /// Shed: the request can't wait here, and no region that may serve it shows room.
    AllBusy,
    /// Shed: the first token would come later than the route's objective in every region.
    Slo,
    /// Shed: the turn of the request would come after its deadline.
    Late,
    /// Shed: no replica is in reach.
    NobodyInReach,
}

/// List with an item for each of some regions: up to 64 are held without a heap allocation. That is
/// the most regions that a cluster agrees on. Only a cluster of configs alone, which agrees on
/// nothing, can have more. Those allocate, since a request would carry the room for them even where
/// there are three.
pub type ByRegion<T> = SmallVec<[T; 64]>;

impl SpillPlan {
    /// Returns the region that could take the request for the least cost, by its index among the
    /// other regions, and that cost in milliseconds; `None` if none could.
    #[must_use]
    pub fn cheapest(&self) -> Option<(usize, f32)> {
        let could = |judged: &Judged| matches!(judged.objection, None | Some(Objection::NotBetter));
        let regions = self.regions.iter().enumerate().filter(|(_, judged)| could(judged));
        let costs = regions.map(|(index, judged)| (index, judged.cost.total_ms()));
        costs.min_by(|left, right| left.1.total_cmp(&right.1))
    }

    /// Returns the plan for an own region with room, where nothing else was looked at.
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
    /// All reasons.
    pub const ALL: [Self; 16] = [
        Self::Room,
        Self::Cached,
        Self::Session,
        Self::NoReplica,
        Self::Evacuated,
        Self::OutsideResidency,
        Self::Better,
        Self::OnlyWay,
        Self::NoneBetter,
        Self::NobodyElse,
        Self::GuestWithoutRoom,
        Self::QueueFull,
        Self::AllBusy,
        Self::Slo,
        Self::Late,
        Self::NobodyInReach,
    ];

    /// Returns the name used in logs and metric labels, e.g. `none_better`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Room => "room",
            Self::Cached => "cached",
            Self::Session => "session",
            Self::NoReplica => "no_replica",
            Self::Evacuated => "evacuated",
            Self::OutsideResidency => "outside_residency",
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

    /// Returns the reason why the request is shed; `None` if it is not.
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
            | Self::Evacuated
            | Self::OutsideResidency
            | Self::Better
            | Self::OnlyWay
            | Self::NoneBetter
            | Self::NobodyElse => None,
        }
    }
}

impl Objection {
    /// Returns the name used in logs and metric labels, e.g. `unreachable`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::Unreachable => "unreachable",
            Self::OutsideResidency => "outside_residency",
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
