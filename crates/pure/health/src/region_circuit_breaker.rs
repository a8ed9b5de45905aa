//! Circuit breaker of another region, for all requests that this node forwards there.

use std::time::Instant;

use spillway_types::ModelStanding;

use crate::CircuitBreakerConfig;
use crate::circuit_breaker::{CircuitBreaker, Counts};

/// Results of requests that were forwarded to a region, counted from the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionTally {
    /// Requests that the region answered, "busy" included.
    pub goods: u64,
    /// Requests that failed in transit, or that the region could not serve for another reason than
    /// load.
    pub faults: u64,
}

/// Requests that a breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionPass {
    /// All requests.
    // All => None
    All,
    /// No requests.
    // None => Few
    None,
    /// So many requests, to find out if the region works again.
    // Few => (All | None)
    Few(u32),
}

/// Circuit breaker that leaves a region out while too many requests to it fail. Call
/// [`Self::update`] about ten times a second.
#[derive(Clone, Debug)]
pub struct RegionCircuitBreaker {
    breaker: CircuitBreaker,
    seen: RegionTally,
    /// Time when the breaker last closed; `None` if it never was open.
    closed_at: Option<Instant>,
    pass: RegionPass,
    /// Time when the breaker last let trial requests through.
    tried_at: Option<Instant>,
}

/// Time that a trial waits for the results of its requests before it lets more through: clients may
/// have given them up.
const TRIAL_WAIT_MS: u128 = 2_000;

impl RegionCircuitBreaker {
    /// Limits that fit regions: a region gets fewer requests than a replica, and less is lost when
    /// it is left out for a moment, because others are asked instead.
    pub const CONFIG: CircuitBreakerConfig = CircuitBreakerConfig {
        error_percent: 50,
        window_ms: 5_000,
        requests_min: 5,
        open_ms: 1_000,
        open_max_ms: 30_000,
        trial_goods: 3,
    };

    /// Makes a breaker that lets all requests through.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            breaker: CircuitBreaker::new(now),
            seen: RegionTally::default(),
            closed_at: None,
            pass: RegionPass::All,
            tried_at: None,
        }
    }

    /// Takes in the results up to `now`. Returns the new pass, or `None` if nothing changed since
    /// the last call. The number in [`RegionPass::Few`] counts from this call on.
    pub fn update(
        &mut self,
        now: Instant,
        tally: RegionTally,
        rng: &mut fastrand::Rng,
    ) -> Option<RegionPass> {
        let config = &Self::CONFIG;
        self.breaker.advance(now, config);
        let count =
            |now: u64, then: u64| u32::try_from(now.saturating_sub(then)).unwrap_or(u32::MAX);
        let faults = count(tally.faults, self.seen.faults);
        let goods = count(tally.goods, self.seen.goods);
        self.seen = tally;
        if goods > 0 || faults > 0 {
            let requests = goods.saturating_add(faults);
            self.breaker.record(now, Counts { requests, faults }, config, rng);
        }
        let pass = match self.breaker.standing() {
            None => RegionPass::All,
            Some(ModelStanding::Open) => RegionPass::None,
            Some(ModelStanding::Trial) => RegionPass::Few(config.trial_goods),
        };
        let is_due = self
            .tried_at
            .is_none_or(|at| now.saturating_duration_since(at).as_millis() >= TRIAL_WAIT_MS);
        // A trial without results is repeated after a wait.
        let is_new = pass != self.pass || (matches!(pass, RegionPass::Few(_)) && is_due);
        if !is_new {
            return None;
        }
        if pass == RegionPass::All {
            self.closed_at = Some(now);
        }
        self.tried_at = matches!(pass, RegionPass::Few(_)).then_some(now);
        self.pass = pass;
        Some(pass)
    }

    /// Returns the time when the breaker last closed, for a slow start of the region; `None` if it
    /// never was open.
    #[must_use]
    pub fn closed_at(&self) -> Option<Instant> {
        self.closed_at
    }

    /// Returns the present pass.
    #[must_use]
    pub fn pass(&self) -> RegionPass {
        self.pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fleet::{ms, start};

    struct Test {
        breaker: RegionCircuitBreaker,
        tally: RegionTally,
        now: Instant,
        rng: fastrand::Rng,
    }

    impl Test {
        fn new() -> Self {
            let rng = fastrand::Rng::with_seed(1);
            let breaker = RegionCircuitBreaker::new(start());
            Self { breaker, tally: RegionTally::default(), now: start(), rng }
        }

        fn after(&mut self, wait_ms: u64, goods: u64, faults: u64) -> Option<RegionPass> {
            self.now += ms(wait_ms);
            self.tally.goods += goods;
            self.tally.faults += faults;
            self.breaker.update(self.now, self.tally, &mut self.rng)
        }
    }

    #[test]
    fn it_opens_by_what_fails_and_by_nothing_else() {
        let mut test = Test::new();
        assert_eq!(test.after(50, 100, 0), None);
        assert_eq!(test.after(50, 0, 50), None, "a third fails");
        assert_eq!(test.after(50, 0, 50), Some(RegionPass::None), "half of it");
        assert_eq!(test.after(50, 0, 50), None, "said once");
    }

    #[test]
    fn four_faults_are_too_few_to_judge_by() {
        let mut test = Test::new();
        assert_eq!(test.after(50, 0, 4), None);
        assert_eq!(test.after(50, 0, 1), Some(RegionPass::None));
    }

    #[test]
    fn after_its_wait_few_go_there_and_their_answers_let_all_through() {
        let mut test = Test::new();
        test.after(50, 0, 5);
        assert_eq!(test.after(899, 0, 0), None);
        assert_eq!(test.after(201, 0, 0), Some(RegionPass::Few(3)));
        assert_eq!(test.after(50, 2, 0), None);
        assert_eq!(test.breaker.closed_at(), None);
        assert_eq!(test.after(50, 1, 0), Some(RegionPass::All));
        assert_eq!(test.breaker.closed_at(), Some(test.now));
    }

    #[test]
    fn one_fault_on_trial_opens_it_for_twice_as_long() {
        let mut test = Test::new();
        test.after(50, 0, 5);
        assert_eq!(test.after(1_100, 0, 0), Some(RegionPass::Few(3)));
        assert_eq!(test.after(50, 0, 1), Some(RegionPass::None));
        assert_eq!(test.after(1_799, 0, 0), None);
        assert_eq!(test.after(500, 0, 0), Some(RegionPass::Few(3)));
    }

    #[test]
    fn a_trial_of_which_nothing_is_heard_lets_more_through() {
        let mut test = Test::new();
        test.after(50, 0, 5);
        assert_eq!(test.after(1_100, 0, 0), Some(RegionPass::Few(3)));
        assert_eq!(test.after(1_999, 0, 0), None);
        assert_eq!(test.after(1, 0, 0), Some(RegionPass::Few(3)));
    }

    #[test]
    fn an_end_that_came_in_while_it_was_open_is_no_answer_of_the_trial() {
        let mut test = Test::new();
        test.after(50, 0, 5);
        assert_eq!(test.after(100, 50, 0), None);
        assert_eq!(test.breaker.pass(), RegionPass::None);
    }
}
