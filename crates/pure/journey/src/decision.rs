//! Decision about a request, with its reasons.

use spillway_route::{Attempt, PlanError, ShedReason, SpillPlan, SpillReason};

/// Decision about a request at one moment, before anything is done about it.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Replica of this region that would be asked, or the reason for which none would.
    pub planned: Result<Attempt, PlanError>,
    /// Way that the request takes.
    pub way: RequestWay,
    /// Comparison of the regions; `None` if none was needed.
    pub spill: Option<SpillPlan>,
}

/// Result of a comparison of regions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComparedCosts {
    /// Cost here in milliseconds; `None` if no replica here could serve the request.
    pub here_ms: Option<f32>,
    /// The cheapest other region that could take it, by its index among them, and its cost; `None`
    /// if none could.
    pub best: Option<(usize, f32)>,
    /// Reason for the decision.
    pub reason: SpillReason,
}

impl Decision {
    /// Returns what the comparison of regions came to; `None` if none was needed.
    #[must_use]
    pub fn compared_costs(&self) -> Option<ComparedCosts> {
        let spill = self.spill.as_ref()?;
        let here_ms = spill.own.map(|own| own.total_ms());
        Some(ComparedCosts { here_ms, best: spill.cheapest(), reason: spill.reason })
    }
}

/// Way that a request takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RequestWay {
    /// The planned replica of this region; or the refusal holds.
    Own,
    /// Another region.
    Region {
        /// Index among the other regions.
        index: usize,
        /// Reason for leaving the own region.
        reason: SpillReason,
    },
    /// This node's queue.
    Wait {
        /// Milliseconds to read the prompt once it has a slot; 0 if unknown.
        prefill_ms: f32,
    },
    /// No slot: the request is shed.
    Shed {
        /// Reason for shedding.
        reason: ShedReason,
        /// Milliseconds until its turn would have come.
        predicted_ms: f32,
    },
    /// No replica, though one is free: the first token would come too late, or the end of a reply in
    /// one piece, and no region is sooner.
    TooLate {
        /// Limit that would be missed: [`ShedReason::Slo`] or [`ShedReason::Late`].
        reason: ShedReason,
        /// Predicted milliseconds until then.
        late_ms: f32,
    },
}
