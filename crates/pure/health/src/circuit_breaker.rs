//! Circuit breaker of one model at one replica: closed, open, half-open.

use std::time::{Duration, Instant};

use spillway_types::{ModelStanding, SignFault};

use crate::CircuitBreakerConfig;
use crate::back_off::{BackOff, BackOffLimits};
use crate::time::{jittered, later};

/// Slices of the sliding window, which moves by one slice at a time.
const SLICES: usize = 10;

/// Multiple of the longest wait without trouble after which repeats are forgotten.
const FORGET_AFTER: u64 = 2;

/// Circuit breaker that leaves a model of a replica out while too many of its requests fail.
#[derive(Clone, Debug)]
pub(crate) struct CircuitBreaker {
    state: CircuitBreakerState,
    back_off: BackOff,
    /// Time of the last recorded request.
    heard_at: Instant,
}

#[derive(Clone, Debug)]
enum CircuitBreakerState {
    // Closed => Open
    /// Requests pass and are counted.
    Closed(CircuitBreakerWindow),
    // Open => Trial
    /// No request passes.
    Open { until: Instant },
    // Trial => (Closed | Open)
    /// Half open: a few requests pass, and `goods` of them were good so far.
    Trial { goods: u32 },
}

/// Requests and faults within the sliding window.
#[derive(Clone, Debug)]
struct CircuitBreakerWindow {
    slices: [Counts; SLICES],
    /// Index of the slice that is being filled. `since` is the time when its filling began.
    newest: usize,
    since: Instant,
}

/// Numbers that a breaker counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) requests: u32,
    pub(crate) faults: u32,
}

impl CircuitBreaker {
    pub(crate) fn new(now: Instant) -> Self {
        Self { state: closed(now), back_off: BackOff::default(), heard_at: now }
    }

    /// Counts new requests: a reply that begins well is one request, a failed one a request and a
    /// fault. A reply that breaks off is one fault without a request, because the request was
    /// counted when the reply began.
    pub(crate) fn record(
        &mut self,
        now: Instant,
        new: Counts,
        config: &CircuitBreakerConfig,
        rng: &mut fastrand::Rng,
    ) {
        self.heard_at = now;
        match &mut self.state {
            CircuitBreakerState::Closed(window) => {
                window.add(now, new, config);
                if is_too_much(window.sum(), config) {
                    self.open(now, config, rng);
                }
            }
            // Replies to requests from before the opening prove nothing new.
            CircuitBreakerState::Open { .. } => {}
            // Half open, a single fault opens the breaker again.
            CircuitBreakerState::Trial { .. } if new.faults > 0 => self.open(now, config, rng),
            CircuitBreakerState::Trial { .. } => self.count_goods(now, new.requests, config),
        }
    }

    /// Counts a time without requests as a good answer, if the breaker is half open.
    pub(crate) fn on_idle(&mut self, now: Instant, config: &CircuitBreakerConfig) {
        self.count_goods(now, 1, config);
    }

    fn count_goods(&mut self, now: Instant, new: u32, config: &CircuitBreakerConfig) {
        let CircuitBreakerState::Trial { goods } = &mut self.state else { return };
        *goods = goods.saturating_add(new);
        if *goods >= config.trial_goods {
            self.state = closed(now);
            self.back_off.succeed(now);
        }
    }

    /// Moves the breaker on to `now`: an open one becomes half open, a closed one drops old counts.
    pub(crate) fn advance(&mut self, now: Instant, config: &CircuitBreakerConfig) {
        match &mut self.state {
            CircuitBreakerState::Open { until } if now >= *until => {
                self.state = CircuitBreakerState::Trial { goods: 0 }
            }
            CircuitBreakerState::Closed(window) => window.turn(now, config),
            CircuitBreakerState::Open { .. } | CircuitBreakerState::Trial { .. } => {}
        }
    }

    /// Returns the standing of the model; `None` while the breaker is closed.
    pub(crate) fn standing(&self) -> Option<ModelStanding> {
        match self.state {
            CircuitBreakerState::Closed(_) => None,
            CircuitBreakerState::Open { .. } => Some(ModelStanding::Open),
            CircuitBreakerState::Trial { .. } => Some(ModelStanding::Trial),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        match &self.state {
            CircuitBreakerState::Closed(window) => window.sum(),
            // The window is dropped when the breaker opens.
            CircuitBreakerState::Open { .. } | CircuitBreakerState::Trial { .. } => {
                Counts::default()
            }
        }
    }

    pub(crate) fn heard_at(&self) -> Instant {
        self.heard_at
    }

    fn open(&mut self, now: Instant, config: &CircuitBreakerConfig, rng: &mut fastrand::Rng) {
        let limits = BackOffLimits {
            first_ms: config.open_ms,
            max_ms: config.open_max_ms,
            forget_ms: config.open_max_ms.saturating_mul(FORGET_AFTER),
        };
        let wait = self.back_off.fail(now, limits);
        self.state = CircuitBreakerState::Open { until: later(now, jittered(wait, rng)) };
    }
}

fn closed(now: Instant) -> CircuitBreakerState {
    CircuitBreakerState::Closed(CircuitBreakerWindow {
        slices: Default::default(),
        newest: 0,
        since: now,
    })
}

fn is_too_much(counts: Counts, config: &CircuitBreakerConfig) -> bool {
    let percent = u64::from(counts.requests) * u64::from(config.error_percent);
    // With an `error_percent` of 0, requests without a fault must not open the breaker.
    counts.faults > 0
        && counts.requests >= config.requests_min
        && u64::from(counts.faults) * 100 >= percent
}

impl CircuitBreakerWindow {
    fn add(&mut self, now: Instant, new: Counts, config: &CircuitBreakerConfig) {
        self.turn(now, config);
        let slice = &mut self.slices[self.newest];
        slice.requests = slice.requests.saturating_add(new.requests);
        slice.faults = slice.faults.saturating_add(new.faults);
    }

    /// Empties the slices that are older than the window.
    fn turn(&mut self, now: Instant, config: &CircuitBreakerConfig) {
        let slice = Duration::from_millis((config.window_ms / SLICES as u64).max(1));
        for _ in 0..SLICES {
            if now.saturating_duration_since(self.since) < slice {
                return;
            }
            self.newest = (self.newest + 1) % SLICES;
            self.slices[self.newest] = Counts::default();
            self.since = later(self.since, slice);
        }
        // After a full turn all slices are empty.
        if now.saturating_duration_since(self.since) >= slice {
            self.since = now;
        }
    }

    fn sum(&self) -> Counts {
        self.slices.iter().fold(Counts::default(), |sum, slice| Counts {
            requests: sum.requests.saturating_add(slice.requests),
            faults: sum.faults.saturating_add(slice.faults),
        })
    }
}

impl Counts {
    pub(crate) const ANSWERED: Self = Self { requests: 1, faults: 0 };
    pub(crate) const FAILED: Self = Self { requests: 1, faults: 1 };
    pub(crate) const BROKEN_OFF: Self = Self { requests: 0, faults: 1 };

    /// Returns the counts that a fault adds.
    pub(crate) fn of(fault: SignFault) -> Self {
        match fault {
            // The request was counted when its reply began.
            SignFault::Cut | SignFault::Stalled => Self::BROKEN_OFF,
            SignFault::Connect
            | SignFault::ConnectTimeout
            | SignFault::Reset
            | SignFault::BadReply
            | SignFault::Silent
            | SignFault::ServerError
            | SignFault::EngineGone => Self::FAILED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fleet::{ms, start};

    struct Test {
        breaker: CircuitBreaker,
        rng: fastrand::Rng,
        now: Instant,
    }

    impl Test {
        fn new() -> Self {
            let rng = fastrand::Rng::with_seed(1);
            Self { breaker: CircuitBreaker::new(start()), rng, now: start() }
        }

        fn record(&mut self, times: u32, new: Counts) -> &mut Self {
            let config = CircuitBreakerConfig::default();
            (0..times).for_each(|_| self.breaker.record(self.now, new, &config, &mut self.rng));
            self
        }

        fn wait(&mut self, wait_ms: u64) -> &mut Self {
            self.now += ms(wait_ms);
            self.breaker.advance(self.now, &CircuitBreakerConfig::default());
            self
        }

        fn standing(&self) -> Option<ModelStanding> {
            self.breaker.standing()
        }
    }

    #[test]
    fn it_opens_at_half_of_enough_requests() {
        let mut test = Test::new();
        test.record(10, Counts::ANSWERED).record(9, Counts::FAILED);
        assert_eq!(test.standing(), None);
        assert_eq!(test.breaker.counts(), Counts { requests: 19, faults: 9 });
        test.record(1, Counts::FAILED);
        assert_eq!(test.standing(), Some(ModelStanding::Open));
    }

    #[test]
    fn fewer_faults_than_half_never_open_it() {
        let mut test = Test::new();
        for _ in 0..1000 {
            test.record(6, Counts::ANSWERED).record(5, Counts::FAILED).wait(50);
            assert_eq!(test.standing(), None);
        }
    }

    #[test]
    fn replies_that_break_off_are_not_counted_twice() {
        let mut test = Test::new();
        test.record(20, Counts::ANSWERED).record(9, Counts::BROKEN_OFF);
        assert_eq!(test.standing(), None);
        test.record(1, Counts::BROKEN_OFF);
        assert_eq!(test.standing(), Some(ModelStanding::Open));
    }

    #[test]
    fn requests_older_than_the_window_do_not_count() {
        let mut test = Test::new();
        test.record(19, Counts::FAILED).wait(9_999);
        assert_eq!(test.breaker.counts().requests, 19);
        test.wait(1).record(1, Counts::FAILED);
        assert_eq!(test.breaker.counts(), Counts { requests: 1, faults: 1 });
        test.wait(3_600_000);
        assert_eq!(test.breaker.counts(), Counts::default(), "an hour later at once");
        test.record(1, Counts::ANSWERED).wait(9_000);
        assert_eq!(test.breaker.counts(), Counts { requests: 1, faults: 0 });
    }

    #[test]
    fn after_its_wait_a_trial_closes_it_with_good_answers() {
        let mut test = Test::new();
        test.record(20, Counts::FAILED).wait(4_999);
        assert_eq!(test.standing(), Some(ModelStanding::Open));
        test.wait(501).record(4, Counts::ANSWERED);
        assert_eq!(test.standing(), Some(ModelStanding::Trial));
        test.record(1, Counts::ANSWERED);
        assert_eq!(test.standing(), None);
        assert_eq!(test.breaker.counts(), Counts::default(), "old faults are forgiven");
    }

    #[test]
    fn each_fault_on_trial_opens_it_for_twice_as_long_up_to_a_limit() {
        let mut test = Test::new();
        test.record(20, Counts::FAILED);
        for wait_ms in [5_000, 10_000, 20_000, 40_000, 60_000, 60_000] {
            test.wait(wait_ms - 1);
            assert_eq!(test.standing(), Some(ModelStanding::Open), "{wait_ms}");
            test.wait(wait_ms / 10 + 1);
            assert_eq!(test.standing(), Some(ModelStanding::Trial), "{wait_ms}");
            test.record(1, Counts::FAILED);
        }
    }

    #[test]
    fn being_closed_for_long_makes_the_next_time_a_first_one() {
        for (quiet_ms, wait_ms) in [(119_999, 10_000), (120_000, 5_000)] {
            let mut test = Test::new();
            test.record(20, Counts::FAILED).wait(5_501).record(5, Counts::ANSWERED);
            test.wait(quiet_ms).record(20, Counts::FAILED).wait(wait_ms - 1);
            assert_eq!(test.standing(), Some(ModelStanding::Open), "{quiet_ms}");
            test.wait(wait_ms / 10 + 1);
            assert_eq!(test.standing(), Some(ModelStanding::Trial), "{quiet_ms}");
        }
    }

    #[test]
    fn what_comes_in_while_it_is_open_changes_nothing() {
        let mut test = Test::new();
        test.record(20, Counts::FAILED);
        test.record(50, Counts::ANSWERED).record(50, Counts::FAILED);
        assert_eq!(test.standing(), Some(ModelStanding::Open));
        test.wait(5_501);
        assert_eq!(test.standing(), Some(ModelStanding::Trial));
    }
}
