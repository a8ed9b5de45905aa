//! Token buckets of [`Policy::TokenBucket`]: how they fill.
//!
//! [`Policy::TokenBucket`]: crate::Policy::TokenBucket

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Refill settings of a replica's token bucket, common to all replicas of a group: the policy
/// multiplies the level of a bucket by the replica's weight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BucketConfig {
    /// Tokens, each of which is a request, that an idle replica gets per second. Choose what one
    /// replica can serve: with much more all buckets are always full and replicas are drawn by
    /// weight alone, with much less all are empty and the load in flight decides.
    pub rate_per_s: f32,
    /// Most tokens in a bucket, at least 1: how many requests a replica that was idle may get ahead
    /// of the others.
    pub burst: f32,
    /// The rate halves with every so many requests that wait or run at the replica. Choose about
    /// half of what a replica works on at once when it is busy.
    pub queue_halving: f32,
}

impl Default for BucketConfig {
    fn default() -> Self {
        Self { rate_per_s: 100.0, burst: 20.0, queue_halving: 8.0 }
    }
}

/// Returns the tokens in a bucket that held `level` tokens `elapsed` ago, of a replica at which
/// `queue_length` requests wait or run.
///
/// A request that is sent without a token lowers the level below 0. That debt is forgiven, since
/// the replica is not to blame for requests that had nowhere else to go. The result is between 0
/// and the burst, and never NaN; NaN and negative inputs count as 0.
#[must_use]
pub fn refill(level: f32, elapsed: Duration, queue_length: f32, config: &BucketConfig) -> f32 {
    // `f32::max` returns the other number if one is NaN.
    let halvings = (queue_length.max(0.0) / config.queue_halving.max(HALVING_MIN)).max(0.0);
    let rate_per_s = config.rate_per_s.max(0.0) * (-halvings).exp2();
    let gained = (rate_per_s * elapsed.as_secs_f32()).max(0.0);
    (level.max(0.0) + gained).min(config.burst.max(1.0))
}

/// Least halving, so that nothing is divided by 0.
const HALVING_MIN: f32 = 1e-3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONFIG: BucketConfig = BucketConfig { rate_per_s: 10.0, burst: 8.0, queue_halving: 4.0 };

    /// Any number, also those that must not occur.
    fn any_number() -> impl Strategy<Value = f32> {
        prop_oneof![-10.0..100.0_f32, prop::num::f32::ANY, Just(f32::NAN), Just(f32::INFINITY)]
    }

    fn any_config() -> impl Strategy<Value = BucketConfig> {
        (any_number(), any_number(), any_number()).prop_map(|(rate_per_s, burst, queue_halving)| {
            BucketConfig { rate_per_s, burst, queue_halving }
        })
    }

    proptest! {
        #[test]
        fn whatever_comes_in_the_level_stays_within_the_burst(
            level in any_number(),
            elapsed_ms in prop_oneof![0..1_000_u64, any::<u64>()],
            queue_length in any_number(),
            config in any_config(),
        ) {
            let level = refill(level, Duration::from_millis(elapsed_ms), queue_length, &config);
            prop_assert!(level >= 0.0 && level <= config.burst.max(1.0), "{level}");
        }

        #[test]
        fn a_longer_queue_never_fills_faster_and_more_time_or_tokens_never_mean_less(
            level in -10.0..10.0_f32,
            elapsed_ms in 0..5_000_u64,
            queue_length in 0.0..100.0_f32,
            (more_level, more_ms, more_queue) in (0.0..10.0_f32, 0..5_000_u64, 0.0..100.0_f32),
        ) {
            let after = |level, elapsed_ms, queue_length| {
                refill(level, Duration::from_millis(elapsed_ms), queue_length, &CONFIG)
            };
            let base = after(level, elapsed_ms, queue_length);
            prop_assert!(after(level, elapsed_ms, queue_length + more_queue) <= base);
            prop_assert!(after(level, elapsed_ms + more_ms, queue_length) >= base);
            prop_assert!(after(level + more_level, elapsed_ms, queue_length) >= base);
        }

        #[test]
        fn two_steps_are_one(first_ms in 0..400_u64, second_ms in 0..400_u64, queue in 0.0..20.0_f32) {
            let step = |level, ms| refill(level, Duration::from_millis(ms), queue, &CONFIG);
            let (split, whole) = (step(step(0.0, first_ms), second_ms), step(0.0, first_ms + second_ms));
            prop_assert!((split - whole).abs() < 1e-3, "{split} and {whole}");
        }
    }

    #[test]
    fn the_rate_halves_with_the_queue_and_debt_is_forgiven() {
        let after_half_a_second =
            |level, queue| refill(level, Duration::from_millis(500), queue, &CONFIG);
        assert_eq!(after_half_a_second(1.0, 0.0), 6.0);
        assert_eq!(after_half_a_second(1.0, 4.0), 3.5);
        assert_eq!(after_half_a_second(1.0, 8.0), 2.25);
        assert_eq!(after_half_a_second(-100.0, 0.0), 5.0);
        assert_eq!(after_half_a_second(7.0, 0.0), 8.0);
    }
}
