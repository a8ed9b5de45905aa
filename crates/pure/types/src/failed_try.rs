//! Targets that a request asked without success, and regions that it never asked.

use std::time::Duration;

use crate::{RegionName, ReplicaName, reasons};

/// Most tries that a request keeps: more than a journey with its retries and regions makes.
const TRIES_MAX: usize = 16;

/// A target that was asked and did not serve the request, or not to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedTry {
    /// The target.
    pub target: TriedTarget,
    /// Code of the failure, from a fixed list.
    pub code: &'static str,
    /// Status with which the target answered; `None` if it did not.
    pub status: Option<u16>,
    /// Time from the request's head to the failure.
    pub after: Duration,
}

/// A target that can serve a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TriedTarget {
    /// A replica of this region.
    Replica(ReplicaName),
    /// Another region.
    Region(RegionName),
}

/// Another region that a decision did not consider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutRegion {
    /// The region.
    pub region: RegionName,
    /// Reason for leaving it out.
    pub why: LeftOutReason,
}

reasons! {
    /// Reason for which a decision does not consider a region.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum LeftOutReason {
        /// The residency rules of the request do not allow the region.
        OutsideResidency = "outside_residency";
        /// The region is silent, does not receive this region's reports, or can't be connected to.
        Unreachable = "unreachable";
        /// The region reports no replica of the model.
        NoModel = "no_model";
        /// The region's circuit breaker is open, because too many requests failed there.
        CircuitOpen = "circuit_open";
        /// The region's weight is 0, or its ramp has not begun.
        Drained = "drained";
    }
}

impl FailedTry {
    /// Adds this try to those before, unless there are as many as are kept.
    pub fn add_to(self, tries: &mut Vec<Self>) {
        if tries.len() < TRIES_MAX {
            tries.push(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_tries_are_kept() {
        let mut tries = Vec::new();
        for number in 0..100_u16 {
            let target = TriedTarget::Replica("gpu-a".into());
            let status = Some(number);
            let after = Duration::ZERO;
            FailedTry { target, code: "replica_reset", status, after }.add_to(&mut tries);
        }
        assert_eq!(tries.len(), TRIES_MAX);
        assert_eq!(tries.last().and_then(|last| last.status), Some(15));
    }
}
