//! Refusals of other regions.

use std::time::{Duration, Instant};

use spillway_route::Access;
use spillway_types::RegionName;

use super::Journey;
use super::patience::REVIEW;
use crate::ending::Ending;
use crate::event::RegionFailure;
use crate::sight::Sight;

/// Nodes of one region that refuse because they are about to end, before the region counts as
/// refusing: a rolling restart ends one node of a region at a time.
const LEAVING_MAX: u32 = 3;

/// Longest pause of a region that is passed on to clients: the region knows more when it is asked
/// again.
const REGION_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Other regions that a journey leaves out, or that did not serve the request.
#[derive(Clone, Debug, Default)]
pub(super) struct RegionRefusals(Vec<(RegionName, RegionRefusal)>);

#[derive(Clone, Copy, Debug, PartialEq)]
enum RegionRefusal {
    /// The region is not asked at all, e.g. since the stream that is continued broke off there.
    LeftOut,
    /// The region was asked, and did not serve the request.
    Asked {
        /// Moment of the refusal; `None` once a waiting request has forgotten it.
        at: Option<Instant>,
        answer: RegionAnswer,
    },
}

/// Answer of a region that did not serve the request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RegionAnswer {
    /// The region may not serve the request, which does not change while the request waits.
    OutsideResidency,
    /// The region may have room again at this moment, as it said.
    NoRoomUntil(Instant),
    /// Anything else.
    Other,
}

impl RegionRefusals {
    /// Creates the refusals of a journey that leaves these regions out.
    pub(super) fn without(regions: Vec<RegionName>) -> Self {
        Self(regions.into_iter().map(|region| (region, RegionRefusal::LeftOut)).collect())
    }

    /// Returns the access to a region that can be reached. `asked_max`: regions that are asked
    /// before a waiting request looks again.
    pub(super) fn access(&self, region: &RegionName, asked_max: usize) -> Access {
        let is_counted = |(_, refusal): &&(RegionName, RegionRefusal)| refusal.is_counted();
        match self.of(region) {
            Some(RegionRefusal::LeftOut) => Access::Unreachable,
            Some(refusal) if refusal.is_lasting() => Access::OutsideResidency,
            Some(refusal) if refusal.is_counted() => Access::Refused,
            _ if self.0.iter().filter(is_counted).count() >= asked_max => Access::Refused,
            _ => Access::Ready,
        }
    }

    /// Returns true if a region is not asked now.
    pub(super) fn has(&self, region: &RegionName) -> bool {
        self.of(region).is_some_and(|refusal| refusal.is_lasting() || refusal.is_counted())
    }

    /// Forgets refusals after some time: the regions may have room by now, as their reports say.
    pub(super) fn forget(&mut self, now: Instant) {
        for (_, refusal) in &mut self.0 {
            if let RegionRefusal::Asked { at, .. } = refusal {
                *at = at.filter(|at| now.saturating_duration_since(*at) < REVIEW);
            }
        }
    }

    fn note(&mut self, region: RegionName, answer: RegionAnswer, now: Instant) {
        self.0.retain(|(known, _)| *known != region);
        self.0.push((region, RegionRefusal::Asked { at: Some(now), answer }));
    }

    fn of(&self, region: &RegionName) -> Option<RegionRefusal> {
        self.0.iter().find(|(known, _)| known == region).map(|(_, refusal)| *refusal)
    }
}

impl RegionRefusal {
    /// Returns true if the region stays out of the question for as long as the journey lasts.
    fn is_lasting(self) -> bool {
        matches!(self, Self::LeftOut | Self::Asked { answer: RegionAnswer::OutsideResidency, .. })
    }

    /// Returns true if the region was asked, and the request has not looked again since.
    fn is_counted(self) -> bool {
        matches!(self, Self::Asked { at: Some(_), .. })
    }
}

impl Journey {
    /// Takes the failure of another region.
    #[expect(clippy::too_many_arguments, reason = "the fields of one event")]
    pub(super) fn region_failed<S: Sight>(
        &mut self,
        region: RegionName,
        failure: RegionFailure,
        can_repeat: bool,
        sight: &S,
        now: Instant,
    ) {
        if failure == RegionFailure::Leaving && self.leaving < LEAVING_MAX {
            // Another node of the region is asked next, if there is one.
            self.leaving += 1;
            return;
        }
        let answer = match failure {
            RegionFailure::OutsideResidency => RegionAnswer::OutsideResidency,
            RegionFailure::Refused { wait: Some(wait) } => {
                RegionAnswer::NoRoomUntil(now + wait.min(REGION_PAUSE_MAX))
            }
            _ => RegionAnswer::Other,
        };
        self.refusals.note(region, answer, now);
        match failure {
            // To go on after a refusal is no retry: no replica has worked on the request.
            RegionFailure::Closed
            | RegionFailure::NotConnected
            | RegionFailure::Leaving
            | RegionFailure::OutsideResidency
            | RegionFailure::Refused { .. } => {}
            // All requests of the region need another slot at once: the room of their targets paces
            // them, and not the budget of retries.
            RegionFailure::Lost => {
                self.attempts += 1;
                self.has_failed = true;
                self.is_bound |= !can_repeat;
                if !can_repeat || self.attempts >= self.attempts_max {
                    self.end(Ending::LastFailure);
                }
            }
            RegionFailure::Broken { safety } => {
                self.attempts += 1;
                self.has_failed = true;
                let safety = safety.with_key(sight.is_idempotent(), true);
                self.retry_or(Ending::LastFailure, safety.if_possible(can_repeat));
            }
        }
    }

    /// Notes that a region may not serve the request, by rules that this node knows.
    pub(super) fn note_outside_residency(&mut self, region: RegionName, now: Instant) {
        self.refusals.note(region, RegionAnswer::OutsideResidency, now);
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
            let refusal = self.refusals.of(sight.region(index));
            if !other.access.is_possible() || refusal.is_some_and(RegionRefusal::is_lasting) {
                continue;
            }
            // A region that named no time may have room at any moment.
            let Some(RegionRefusal::Asked { answer: RegionAnswer::NoRoomUntil(until), .. }) =
                refusal
            else {
                return None;
            };
            soonest = Some(soonest.map_or(until, |soonest| soonest.min(until)));
        }
        soonest
    }
}
