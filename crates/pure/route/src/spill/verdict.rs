//! Result of the decision between regions: where a request goes, why, and the cost of each region.

use serde::Serialize;
use smallvec::SmallVec;
use spillway_types::reasons;

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

reasons! {
    /// Reason why a request does not go to a region.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Objection {
        /// The request was forwarded once already.
        Forwarded = "forwarded";
        /// The region is silent, or does not receive this region's reports.
        Unreachable = "unreachable";
        /// The region refused this request.
        Refused = "refused";
        /// The residency rules of the request do not allow the region.
        OutsideResidency = "outside_residency";
        /// The region's weight or ramp is 0.
        Drained = "drained";
        /// The region reports that it takes no requests from other regions.
        Closed = "closed";
        /// The reply would come after the deadline, or its first token after the route's objective.
        Late = "late";
        /// Chance left the region out in favour of another one, by its weight and ramp.
        Rested = "rested";
        /// The region costs as much as this one, or too little less to be worth the way.
        NotBetter = "not_better";
        /// The region shows no room for requests from other regions, which don't wait there.
        Full = "full";
    }
}

reasons! {
    /// Reason for the place that a request goes to, for logs, metrics and explanations. One for which
    /// the request is shed has the text of its [`ShedReason`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum SpillReason {
        // Served here:
        /// This region has room.
        Room = "room";
        // Forwarded:
        /// This region has room, but the other one costs clearly less, e.g. because more of the
        /// prompt is cached there.
        Cached = "cached";
        /// Earlier requests of the session went to the other region.
        Session = "session";
        /// This region has no replica for the request.
        NoReplica = "no_replica";
        /// This region is evacuated.
        Evacuated = "evacuated";
        /// The residency rules of the request do not allow this region.
        OutsideResidency = "outside_residency";
        /// Waiting here costs more.
        Better = "better";
        /// This region could only have shed the request.
        OnlyWay = "only_way";
        // Waits:
        /// Every other region costs as much or more.
        NoneBetter = "none_better";
        /// No other region can take the request.
        NobodyElse = "nobody_else";
        // Shed:
        /// This region has no room for a request that another region forwarded.
        GuestWithoutRoom = "guest_without_room";
        /// The queue is full, and no other region shows room.
        QueueFull = "queue_full";
        /// The request can't wait here, and no region that may serve it shows room.
        AllBusy = "all_busy";
        /// The first token would come later than the route's objective in every region.
        Slo = "slo";
        /// The deadline has passed, or would pass before the request is served.
        Late = "late";
        /// No replica is left to ask, here or in a reachable region.
        NobodyInReach = "nobody_in_reach";
    }
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
