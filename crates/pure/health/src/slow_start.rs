//! Slow start of a replica, from its first request to its full share.

use std::time::{Duration, Instant};

use spillway_types::RAMP_FULL;

/// Share of its weight, in permille, that a replica starts with.
const FIRST_PERMILLE: u16 = 100;

/// Smallest change of the share, so that dependent figures are not computed at every tick.
const STEP_PERMILLE: u16 = 25;

/// Multiple of the slow start after which a replica has its full share, however cold it is.
const LATEST: f64 = 3.0;

/// Share of cached tokens among the peers below which caches do not show that a replica is cold.
const PEERS_CACHED_MIN: f32 = 0.05;

/// Slow start of a replica: its share of requests over time.
///
/// The share follows the lesser of two: the time since the start, and the replica's cache hits
/// compared with those of its peers. A replica with a cold KV cache needs more computing for the
/// same requests; with a full share from the start it would answer slowly for as long as it is
/// cold. After the slow start the share grows in any case, and is full after three times that.
#[derive(Clone, Debug)]
pub(crate) enum Ramp {
    // Full => Rising
    Full,
    // Rising => (Rising | Full)
    Rising { since: Instant, permille: u16 },
}

/// Inputs of a ramp besides time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slope {
    /// Time until the full share.
    pub(crate) slow_start: Duration,
    /// Share of the replica's prompt tokens that came from its cache, if known.
    pub(crate) cached: Option<f32>,
    /// Mean of that share among the full replicas of its pool, if known.
    pub(crate) peers_cached: Option<f32>,
}

impl Ramp {
    /// Starts a ramp; without a slow start the share is full at once.
    pub(crate) fn start(now: Instant, slow_start: Duration) -> Self {
        if slow_start.is_zero() {
            Self::Full
        } else {
            Self::Rising { since: now, permille: FIRST_PERMILLE }
        }
    }

    pub(crate) fn permille(&self) -> u16 {
        match self {
            Self::Full => RAMP_FULL,
            Self::Rising { permille, .. } => *permille,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Full)
    }

    /// Raises the share to that at `now`; it never falls. Returns true when the full share is
    /// reached.
    pub(crate) fn advance(&mut self, now: Instant, slope: Slope) -> bool {
        let Self::Rising { since, permille } = self else { return false };
        let age = now.saturating_duration_since(*since);
        let share = share_at(age, slope);
        if share >= RAMP_FULL {
            *self = Self::Full;
            return true;
        }
        if share >= permille.saturating_add(STEP_PERMILLE) {
            *permille = share;
        }
        false
    }
}

/// Returns the share, in permille, after `age`.
fn share_at(age: Duration, slope: Slope) -> u16 {
    // A reload may have removed the slow start while the share was rising.
    if slope.slow_start.is_zero() {
        return RAMP_FULL;
    }
    let time = age.as_secs_f64() / slope.slow_start.as_secs_f64();
    let late = (time - 1.0) / (LATEST - 1.0);
    let progress = time.min(warmth(slope)).max(late).clamp(0.0, 1.0);
    let room = f64::from(RAMP_FULL - FIRST_PERMILLE);
    FIRST_PERMILLE + (room * progress).round() as u16
}

/// Returns the replica's cache hits relative to its peers'; 1 if either is unknown.
fn warmth(slope: Slope) -> f64 {
    match (slope.cached, slope.peers_cached) {
        (Some(own), Some(peers)) if peers > PEERS_CACHED_MIN => f64::from(own / peers),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_fleet::{ms, start};

    const BY_TIME: Slope =
        Slope { slow_start: Duration::from_secs(30), cached: None, peers_cached: None };

    fn cached(own: f32, peers: f32) -> Slope {
        Slope { cached: Some(own), peers_cached: Some(peers), ..BY_TIME }
    }

    fn share_after(seconds: u64, slope: Slope) -> u16 {
        let mut ramp = Ramp::start(start(), slope.slow_start);
        ramp.advance(start() + ms(seconds * 1000), slope);
        ramp.permille()
    }

    #[test]
    fn by_time_alone_the_share_rises_evenly_over_the_slow_start() {
        let shares = [0, 10, 15, 20, 30].map(|seconds| share_after(seconds, BY_TIME));
        assert_eq!(shares, [100, 400, 550, 700, 1000]);
    }

    #[test]
    fn a_cold_cache_holds_the_share_back_until_it_is_late() {
        let shares = [3, 15, 30, 60, 90].map(|seconds| share_after(seconds, cached(0.1, 0.5)));
        assert_eq!(shares, [190, 280, 280, 550, 1000]);
        assert_eq!(share_after(90, cached(0.0, 0.5)), 1000, "it ends however cold it is");
    }

    #[test]
    fn a_warm_cache_is_no_faster_than_time() {
        assert_eq!(share_after(15, cached(0.9, 0.5)), 550);
        assert_eq!(share_after(30, cached(0.5, 0.5)), 1000);
    }

    #[test]
    fn caches_that_hardly_matter_or_are_unknown_hold_nothing_back() {
        assert_eq!(share_after(15, cached(0.0, 0.05)), 550);
        assert_eq!(share_after(15, Slope { cached: None, ..cached(0.0, 0.5) }), 550);
        assert_eq!(share_after(15, Slope { peers_cached: None, ..cached(0.0, 0.5) }), 550);
    }

    #[test]
    fn it_moves_in_steps_and_tells_its_end_once() {
        let mut ramp = Ramp::start(start(), BY_TIME.slow_start);
        let mut shares = vec![ramp.permille()];
        let mut ends = 0;
        for tick in 0..=400 {
            ends += u32::from(ramp.advance(start() + ms(tick * 100), BY_TIME));
            if shares.last() != Some(&ramp.permille()) {
                shares.push(ramp.permille());
            }
        }
        assert!(shares.len() <= 37, "{}", shares.len());
        assert!(shares.windows(2).all(|pair| pair[1] >= pair[0] + 25 || pair[1] == RAMP_FULL));
        assert_eq!((ends, ramp.is_full()), (1, true));
    }

    #[test]
    fn without_slow_start_it_is_full_at_once() {
        assert!(Ramp::start(start(), Duration::ZERO).is_full());
    }

    proptest! {
        #[test]
        fn it_never_falls_and_ends_in_time(
            slow_start_ms in 0..100_000_u64,
            steps in prop::collection::vec((0..20_000_u64, 0.0..1.0_f32, 0.0..1.0_f32), 0..100),
        ) {
            let slow_start = ms(slow_start_ms);
            let mut ramp = Ramp::start(start(), slow_start);
            let (mut now, mut last) = (start(), ramp.permille());
            for (wait_ms, own, peers) in steps {
                now += ms(wait_ms);
                let slope = Slope { slow_start, cached: Some(own), peers_cached: Some(peers) };
                ramp.advance(now, slope);
                prop_assert!((last..=RAMP_FULL).contains(&ramp.permille()));
                last = ramp.permille();
            }
            ramp.advance(now + slow_start * 3, cached(0.0, 1.0).with(slow_start));
            prop_assert!(ramp.is_full());
        }
    }

    impl Slope {
        fn with(self, slow_start: Duration) -> Self {
            Self { slow_start, ..self }
        }
    }
}
