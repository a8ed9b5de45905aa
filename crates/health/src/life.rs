//! From a replica's first check to its leave.

use std::time::{Duration, Instant};

use crate::MemberSpec;
use crate::input::DrainReason;
use crate::time::{later, later_ms};

/// Where a replica is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    // Starting => (WarmingUp | Serving | Draining)
    /// Its checks have not shown yet that it is ready.
    Starting,
    // WarmingUp => (Serving | Starting | Draining)
    /// It is given prompts of ours, until then at most.
    WarmingUp { until: Instant },
    // Serving => (WarmingUp | Starting | Draining)
    /// It serves, as its condition and ramp allow.
    Serving,
    // Draining => (Drained | Starting)
    /// It finishes what it has, until then at most.
    Draining { until: Instant, why: DrainReason },
    // Drained => (Draining | Starting)
    /// It has nothing left, or no time for it.
    Drained { why: DrainReason },
}

/// A step that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LifeStep {
    /// It is ready and is to be warmed up.
    WarmUp,
    /// It begins to serve, as cold as a replica is at first.
    Serve(&'static str),
    /// It begins to serve although its warm-up failed.
    ServeOnTrial,
    /// It has nothing left.
    Drained,
}

impl Life {
    /// Lets time pass; `is_ready` by its checks.
    pub(crate) fn advance(
        &mut self,
        now: Instant,
        is_ready: bool,
        spec: &MemberSpec,
    ) -> Option<LifeStep> {
        match *self {
            Self::Starting if is_ready => Some(self.begin(now, spec, "ready")),
            Self::WarmingUp { until } if now >= until => {
                *self = Self::Serving;
                Some(LifeStep::ServeOnTrial)
            }
            Self::Starting
            | Self::WarmingUp { .. }
            | Self::Serving
            | Self::Draining { .. }
            | Self::Drained { .. } => None,
        }
    }

    /// It is ready from `now` on.
    pub(crate) fn begin(&mut self, now: Instant, spec: &MemberSpec, why: &'static str) -> LifeStep {
        if spec.needs_warm_up {
            *self = Self::WarmingUp { until: later_ms(now, spec.health.warm_up_max_ms) };
            LifeStep::WarmUp
        } else {
            *self = Self::Serving;
            LifeStep::Serve(why)
        }
    }

    /// Its warm-up ended. One that ends after its time was up changes nothing.
    pub(crate) fn on_warmed_up(&mut self, is_good: bool) -> Option<LifeStep> {
        if !matches!(self, Self::WarmingUp { .. }) {
            return None;
        }
        *self = Self::Serving;
        Some(if is_good { LifeStep::Serve("warmed_up") } else { LifeStep::ServeOnTrial })
    }

    pub(crate) fn drain(&mut self, now: Instant, limit: Duration, why: DrainReason) {
        *self = Self::Draining { until: later(now, limit), why };
    }

    /// Says whether it was leaving.
    pub(crate) fn resume(&mut self) -> bool {
        let was_leaving = self.is_leaving();
        if was_leaving {
            *self = Self::Starting;
        }
        was_leaving
    }

    /// It says itself that it is loading. Says whether that is news.
    pub(crate) fn restart(&mut self) -> bool {
        let is_news = matches!(self, Self::WarmingUp { .. } | Self::Serving);
        if is_news {
            *self = Self::Starting;
        }
        is_news
    }

    /// Finds out whether it has nothing left.
    pub(crate) fn advance_drain(&mut self, now: Instant, in_flight: u32) -> Option<LifeStep> {
        match *self {
            Self::Draining { until, why } if in_flight == 0 || now >= until => {
                *self = Self::Drained { why };
                Some(LifeStep::Drained)
            }
            _ => None,
        }
    }

    pub(crate) fn is_serving(&self) -> bool {
        *self == Self::Serving
    }

    pub(crate) fn is_leaving(&self) -> bool {
        matches!(self, Self::Draining { .. } | Self::Drained { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fleet::{ms, spec, start};

    const DRAINING: Duration = Duration::from_secs(10);

    fn warm() -> MemberSpec {
        MemberSpec { needs_warm_up: true, ..spec("a") }
    }

    #[test]
    fn it_waits_for_its_checks_and_then_serves() {
        let (mut life, spec) = (Life::Starting, spec("a"));
        assert_eq!(life.advance(start(), false, &spec), None);
        assert_eq!(life.advance(start(), true, &spec), Some(LifeStep::Serve("ready")));
        assert_eq!(life.advance(start(), true, &spec), None);
        assert!(life.is_serving());
    }

    #[test]
    fn it_is_warmed_up_in_between_if_it_needs_that() {
        let mut life = Life::Starting;
        assert_eq!(life.advance(start(), true, &warm()), Some(LifeStep::WarmUp));
        assert_eq!(life.advance(start() + ms(59_999), true, &warm()), None);
        assert_eq!(life.on_warmed_up(true), Some(LifeStep::Serve("warmed_up")));
        assert_eq!(life.on_warmed_up(false), None, "told once");
        assert!(life.is_serving());
    }

    #[test]
    fn a_warm_up_that_fails_or_takes_too_long_leads_to_a_trial() {
        let mut life = Life::Starting;
        life.advance(start(), true, &warm());
        let mut other = life;
        assert_eq!(life.on_warmed_up(false), Some(LifeStep::ServeOnTrial));
        let late = start() + ms(60_000);
        assert_eq!(other.advance(late, true, &warm()), Some(LifeStep::ServeOnTrial));
    }

    #[test]
    fn it_drains_until_nothing_is_left_or_its_time_is_up() {
        for (at_ms, in_flight, is_done) in
            [(0, 1, false), (9_999, 1, false), (10_000, 1, true), (1, 0, true)]
        {
            let mut life = Life::Serving;
            life.drain(start(), DRAINING, DrainReason::Operator);
            let step = life.advance_drain(start() + ms(at_ms), in_flight);
            assert_eq!(step.is_some(), is_done, "{at_ms} {in_flight}");
            assert_eq!(life.advance_drain(start() + ms(at_ms), 1), None, "told once");
            assert!(life.is_leaving());
        }
    }

    #[test]
    fn only_one_that_leaves_can_resume_and_it_starts_anew() {
        let mut life = Life::Serving;
        assert!(!life.resume());
        assert!(life.is_serving());
        life.drain(start(), DRAINING, DrainReason::Preemption);
        assert!(life.resume());
        assert_eq!(life, Life::Starting);
        life.drain(start(), DRAINING, DrainReason::Preemption);
        life.advance_drain(start(), 0);
        assert!(life.resume());
    }

    #[test]
    fn loading_again_is_news_only_for_one_that_was_ready() {
        let mut life = Life::Serving;
        assert!(life.restart());
        assert!(!life.restart());
        life = Life::WarmingUp { until: start() };
        assert!(life.restart());
        assert_eq!(life, Life::Starting);
        life.drain(start(), DRAINING, DrainReason::Operator);
        assert!(!life.restart());
        assert!(life.is_leaving());
    }

    #[test]
    fn a_drain_without_end_is_possible() {
        let mut life = Life::Serving;
        life.drain(start(), Duration::MAX, DrainReason::Operator);
        assert_eq!(life.advance_drain(start() + ms(1_000_000_000), 1), None);
    }
}
