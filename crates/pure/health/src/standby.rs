//! Standby replicas (warm pool), which take part while their pool needs them.

use std::time::{Duration, Instant};

use crate::StandbyConfig;
use crate::pool_load::PoolLoad;
use crate::time::later_ms;

/// State of a replica of the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserve {
    // Held => Promoted
    /// The replica is checked and gets no requests.
    Held,
    // Promoted => Retiring
    /// The replica takes part like any other.
    Promoted { at: Instant },
    // Retiring => (Held | Promoted)
    /// The replica finishes its requests, until `until` at most.
    Retiring { until: Instant },
}

/// Change that a pool needs in its reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Promotion of one more replica.
    Promote,
    /// Return of one promoted replica to the reserve.
    Demote,
}

/// State of a pool's need: more replicas, fewer, or neither, and since when.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolNeed(StandbyState);

#[derive(Clone, Copy, Debug, Default)]
enum StandbyState {
    // Enough => (More | Less)
    #[default]
    Enough,
    // More => (Enough | Less)
    More {
        since: Instant,
    },
    // Less => (Enough | More)
    Less {
        since: Instant,
    },
}

impl Reserve {
    pub(crate) fn retire(&mut self, now: Instant, config: &StandbyConfig) {
        *self = Self::Retiring { until: later_ms(now, config.drain_ms) };
    }

    /// Moves on to `now`. Returns true if a replica that goes back has finished and is held from
    /// now on.
    pub(crate) fn advance(&mut self, now: Instant, in_flight: u32) -> bool {
        let is_done = matches!(self, Self::Retiring { until } if in_flight == 0 || now >= *until);
        if is_done {
            *self = Self::Held;
        }
        is_done
    }
}

impl PoolNeed {
    /// Follows the load. The wish stands until the caller has fulfilled it and calls
    /// [`Self::settle`], so that the reserve changes by one replica at a time and the load shows
    /// the effect.
    pub(crate) fn advance(
        &mut self,
        now: Instant,
        load: &PoolLoad,
        config: &StandbyConfig,
    ) -> Option<Wish> {
        self.0 = match self.0 {
            StandbyState::More { since } if needs_more(load, config) => {
                StandbyState::More { since }
            }
            StandbyState::Less { since } if needs_less(load, config) => {
                StandbyState::Less { since }
            }
            // A need that changes its direction starts from the beginning.
            _ if needs_more(load, config) => StandbyState::More { since: now },
            _ if needs_less(load, config) => StandbyState::Less { since: now },
            _ => StandbyState::Enough,
        };
        let lasts = |since: Instant, for_ms: u64| {
            now.saturating_duration_since(since) >= Duration::from_millis(for_ms)
        };
        match self.0 {
            StandbyState::More { since } if lasts(since, config.promote_after_ms) => {
                Some(Wish::Promote)
            }
            StandbyState::Less { since } if lasts(since, config.demote_after_ms) => {
                Some(Wish::Demote)
            }
            StandbyState::Enough | StandbyState::More { .. } | StandbyState::Less { .. } => None,
        }
    }

    /// Ends the wish when it is fulfilled; the next one must last as long again.
    pub(crate) fn settle(&mut self) {
        self.0 = StandbyState::Enough;
    }
}

fn needs_more(load: &PoolLoad, config: &StandbyConfig) -> bool {
    load.open < load.regular
        || at_least(load.queue_mean, config.queue)
        || at_least(load.p99_ms, config.p99_ms)
}

/// Returns true if the pool would do with one replica less: all load is below half of its
/// threshold, and enough replicas would be open without that one.
fn needs_less(load: &PoolLoad, config: &StandbyConfig) -> bool {
    let half = |threshold: Option<f32>| threshold.map(|threshold| threshold / 2.0);
    load.open > load.regular
        && !at_least(load.queue_mean, half(config.queue))
        && !at_least(load.p99_ms, half(config.p99_ms))
}

/// Returns true if both are known and `value` is at least `threshold`.
fn at_least(value: Option<f32>, threshold: Option<f32>) -> bool {
    value.zip(threshold).is_some_and(|(value, threshold)| value >= threshold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fleet::{ms, start};

    const CONFIG: StandbyConfig = StandbyConfig {
        queue: Some(8.0),
        p99_ms: Some(1_000.0),
        promote_after_ms: 5_000,
        demote_after_ms: 60_000,
        drain_ms: 10_000,
    };

    /// Makes the load of a pool with two regular replicas and `open` open ones, those of the
    /// reserve included.
    fn load(open: u32, queue_mean: f32, p99_ms: f32) -> PoolLoad {
        PoolLoad { open, regular: 2, queue_mean: Some(queue_mean), p99_ms: Some(p99_ms) }
    }

    /// Returns the time until a wish arises under that load; `None` if none does within two
    /// minutes.
    fn wish(load: &PoolLoad) -> Option<(u64, Wish)> {
        let mut need = PoolNeed::default();
        (0..=120).find_map(|s| {
            let wish = need.advance(start() + ms(s * 1000), load, &CONFIG);
            wish.map(|wish| (s, wish))
        })
    }

    #[test]
    fn each_kind_of_need_promotes_after_its_time() {
        for load in [load(2, 8.0, 0.0), load(2, 0.0, 1_000.0), load(1, 0.0, 0.0)] {
            assert_eq!(wish(&load), Some((5, Wish::Promote)), "{load:?}");
        }
    }

    #[test]
    fn one_goes_back_when_all_load_is_below_half_and_enough_are_open() {
        assert_eq!(wish(&load(3, 3.9, 499.0)), Some((60, Wish::Demote)));
        assert_eq!(wish(&load(3, 4.0, 0.0)), None);
        assert_eq!(wish(&load(3, 0.0, 500.0)), None);
        assert_eq!(wish(&load(2, 0.0, 0.0)), None, "none of the reserve takes part");
    }

    #[test]
    fn unknown_load_is_no_need() {
        let unknown = |open| PoolLoad { open, regular: 2, queue_mean: None, p99_ms: None };
        assert_eq!(wish(&unknown(2)), None);
        assert_eq!(wish(&unknown(3)), Some((60, Wish::Demote)));
        let off = StandbyConfig { queue: None, p99_ms: None, ..CONFIG };
        assert!(!needs_more(&load(2, 1e9, 1e9), &off));
    }

    #[test]
    fn a_need_that_stops_in_between_starts_over() {
        let mut need = PoolNeed::default();
        let mut at =
            |s: u64, queue| need.advance(start() + ms(s * 1000), &load(2, queue, 0.0), &CONFIG);
        assert_eq!([at(0, 9.0), at(4, 9.0), at(4, 7.0), at(5, 9.0), at(9, 9.0)], [None; 5]);
        assert_eq!(at(10, 9.0), Some(Wish::Promote));
    }

    #[test]
    fn the_wish_stands_until_it_is_met_and_the_next_takes_as_long_again() {
        let mut need = PoolNeed::default();
        let much = load(2, 9.0, 0.0);
        let mut at = |s: u64| need.advance(start() + ms(s * 1000), &much, &CONFIG);
        assert_eq!([at(0), at(5), at(6)], [None, Some(Wish::Promote), Some(Wish::Promote)]);
        need.settle();
        let mut at = |s: u64| need.advance(start() + ms(s * 1000), &much, &CONFIG);
        assert_eq!([at(6), at(10), at(11)], [None, None, Some(Wish::Promote)]);
    }

    #[test]
    fn one_that_retires_finishes_what_it_has_for_a_while() {
        for (at_ms, in_flight, is_held) in [(0, 1, false), (10_000, 1, true), (0, 0, true)] {
            let mut reserve = Reserve::Promoted { at: start() };
            assert!(!reserve.advance(start() + ms(99_999), 0), "only one that retires");
            reserve.retire(start(), &CONFIG);
            assert_eq!(reserve.advance(start() + ms(at_ms), in_flight), is_held);
            assert_eq!(reserve == Reserve::Held, is_held);
        }
    }
}
