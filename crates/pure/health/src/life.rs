//! Life of a replica from its first check to its removal.

use std::time::{Duration, Instant};

use crate::MemberSpec;
use crate::change_reason::ChangeReason;
use crate::input::DrainReason;
use crate::time::{later, later_ms};

/// Phase in the life of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    // Starting => (WarmingUp | Serving | Draining)
    /// The checks have not yet shown that the replica is ready.
    Starting,
    // WarmingUp => (Serving | Starting | Draining)
    /// The replica is given warm-up prompts, until `until` at most.
    WarmingUp { until: Instant },
    // Serving => (WarmingUp | Starting | Draining)
    /// The replica serves, as its condition and ramp allow.
    Serving,
    // Draining => (Drained | Starting)
    /// The replica finishes its requests, until `until` at most.
    Draining { until: Instant, why: DrainReason },
    // Drained => (Draining | Starting)
    /// The replica has no requests left, or its time for them is up.
    Drained { why: DrainReason },
}

/// Step in the life of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LifeStep {
    /// The replica is ready and is to be warmed up.
    WarmUp,
    /// The replica begins to serve with a cold cache. The text is the reason.
    Serve(ChangeReason),
    /// The replica begins to serve although its warm-up failed.
    ServeOnTrial,
    /// The drained replica has no requests left.
    Drained,
}

impl Life {
    /// Moves the life on to `now`. Pass true for `is_ready` if the checks find the replica ready.
    pub(crate) fn advance(
        &mut self,
        now: Instant,
        is_ready: bool,
        spec: &MemberSpec,
    ) -> Option<LifeStep> {
        match *self {
            Self::Starting if is_ready => Some(self.begin(now, spec, ChangeReason::Ready)),
            // A warm-up without an end counts as failed.
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

    /// Begins to serve or to warm up at `now`, when the replica is ready.
    pub(crate) fn begin(&mut self, now: Instant, spec: &MemberSpec, why: ChangeReason) -> LifeStep {
        if spec.needs_warm_up {
            *self = Self::WarmingUp { until: later_ms(now, spec.health.warm_up_max_ms) };
            LifeStep::WarmUp
        } else {
            *self = Self::Serving;
            LifeStep::Serve(why)
        }
    }

    /// Takes in the end of a warm-up. An end after the time limit changes nothing.
    pub(crate) fn on_warmed_up(&mut self, is_good: bool) -> Option<LifeStep> {
        if !matches!(self, Self::WarmingUp { .. }) {
            return None;
        }
        *self = Self::Serving;
        Some(if is_good { LifeStep::Serve(ChangeReason::WarmedUp) } else { LifeStep::ServeOnTrial })
    }

    pub(crate) fn drain(&mut self, now: Instant, limit: Duration, why: DrainReason) {
        *self = Self::Draining { until: later(now, limit), why };
    }

    /// Ends a drain. Returns true if the replica was being drained.
    pub(crate) fn resume(&mut self) -> bool {
        let was_leaving = self.is_leaving();
        if was_leaving {
            *self = Self::Starting;
        }
        was_leaving
    }

    /// Returns to the start because the replica says that it is loading. Returns true if that is
    /// new.
    pub(crate) fn restart(&mut self) -> bool {
        // A drained replica stays drained, even if it says that it is loading.
        let is_news = matches!(self, Self::WarmingUp { .. } | Self::Serving);
        if is_news {
            *self = Self::Starting;
        }
        is_news
    }

    /// Ends a drain if no request is left or the time is up.
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
        assert_eq!(life.advance(start(), true, &spec), Some(LifeStep::Serve(ChangeReason::Ready)));
        assert_eq!(life.advance(start(), true, &spec), None);
        assert!(life.is_serving());
    }

    #[test]
    fn it_is_warmed_up_in_between_if_it_needs_that() {
        let mut life = Life::Starting;
        assert_eq!(life.advance(start(), true, &warm()), Some(LifeStep::WarmUp));
        assert_eq!(life.advance(start() + ms(59_999), true, &warm()), None);
        assert_eq!(life.on_warmed_up(true), Some(LifeStep::Serve(ChangeReason::WarmedUp)));
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
