//! Refusals of other regions.

use std::time::{Duration, Instant};

use spillway_route::Access;
use spillway_types::RegionName;

use super::Journey;
use super::patience::REVIEW;
use crate::ending::Ending;
use crate::event::RegionFailure;
use crate::retry::RetrySafety;
use crate::sight::Sight;

/// Nodes of one region that refuse because they are about to end, before the region counts as
/// refusing: a rolling restart ends one node of a region at a time.
const LEAVING_MAX: u32 = 3;

/// Longest pause of a region that clients are told of: a region that is asked again says more.
const REGION_PAUSE_MAX: Duration = Duration::from_secs(60);

impl Journey {
    /// Takes the failure of another region. Returns the safety of the retry that follows; `None` if
    /// none does.
    #[expect(clippy::too_many_arguments, reason = "the fields of one event")]
    pub(super) fn region_failed<S: Sight>(
        &mut self,
        region: RegionName,
        failure: RegionFailure,
        can_repeat: bool,
        sight: &S,
        now: Instant,
    ) -> Option<RetrySafety> {
        if failure == RegionFailure::Leaving && self.leaving < LEAVING_MAX {
            // Another node of the region is asked next, if there is one.
            self.leaving += 1;
            return None;
        }
        if failure == RegionFailure::OutsideResidency {
            self.outside_residency.push(region.clone());
        }
        self.note_region_pause(&region, failure, now);
        self.refused.push((region, now));
        match failure {
            // To go on after a refusal is no retry: no replica has worked on the request.
            RegionFailure::Closed
            | RegionFailure::NotConnected
            | RegionFailure::Leaving
            | RegionFailure::OutsideResidency
            | RegionFailure::Refused { .. } => None,
            RegionFailure::Broken { safety } => {
                self.attempts += 1;
                self.has_failed = true;
                let safety = safety.with_key(sight.is_idempotent(), true);
                self.retry_or(Ending::LastFailure, safety.if_possible(can_repeat), sight, now)
            }
        }
    }

    /// Returns true if a region is not asked now: it has refused, or is left out.
    pub(super) fn has_refused(&self, region: &RegionName) -> bool {
        self.unasked.contains(region) || self.refused.iter().any(|(refused, _)| refused == region)
    }

    /// Forgets refusals of regions after some time: they may have room by now, as their reports
    /// say.
    pub(super) fn forget_refusals(&mut self, now: Instant) {
        self.refused.retain(|(_, at)| now.saturating_duration_since(*at) < REVIEW);
    }

    /// Notes the time after which a region may have room, as it said when it refused the request.
    fn note_region_pause(&mut self, region: &RegionName, failure: RegionFailure, now: Instant) {
        self.region_pauses.retain(|(known, _)| known != region);
        if let RegionFailure::Refused { wait: Some(wait) } = failure {
            self.region_pauses.push((region.clone(), now + wait.min(REGION_PAUSE_MAX)));
        }
    }

    /// Returns when the first other region may have room, for a request that this region has no
    /// replicas for; `None` unless all regions that can be reached said when.
    pub(super) fn regions_busy_until<S: Sight>(&self, sight: &S) -> Option<Instant> {
        if sight.group().is_some() {
            return None;
        }
        let others = sight.others(sight.inquiry().model.as_ref()?, &|_| Access::Ready);
        let mut soonest: Option<Instant> = None;
        for (index, other) in others.iter().enumerate() {
            if other.access == Access::Unreachable
                || self.outside_residency.contains(sight.region(index))
            {
                continue;
            }
            let pause = self.region_pauses.iter().find(|(name, _)| name == sight.region(index));
            // A region that named no time may have room at any moment.
            let (_, until) = pause?;
            soonest = Some(soonest.map_or(*until, |soonest| soonest.min(*until)));
        }
        soonest
    }
}
