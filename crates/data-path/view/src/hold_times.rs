//! Statistics of the time that requests hold a slot at a replica.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use spillway_route::HoldTime;

/// A [`HoldTime`] without a lock: each of its numbers as the bits of an `f32`.
///
/// When two requests end at the same moment, one may be lost or counted in some of the numbers
/// only; the requests that follow outweigh such an error.
#[derive(Debug, Default)]
pub struct HoldTimes([AtomicU32; 5]);

impl HoldTimes {
    /// Returns the means over late requests.
    pub fn get(&self) -> HoldTime {
        let [count, tokens, held_ms, variance, covariance] =
            self.0.each_ref().map(|bits| f32::from_bits(bits.load(Ordering::Relaxed)));
        HoldTime { count, tokens, held_ms, variance, covariance }
    }

    /// Notes that a request of `tokens` tokens held its slot for the time `held`.
    pub fn note(&self, tokens: u32, held: Duration) {
        let HoldTime { count, tokens, held_ms, variance, covariance } =
            self.get().with(tokens, held.as_secs_f32() * 1e3);
        for (bits, number) in self.0.iter().zip([count, tokens, held_ms, variance, covariance]) {
            bits.store(number.to_bits(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_expected() {
        let hold_times = HoldTimes::default();
        assert_eq!(hold_times.get(), HoldTime::default());
        hold_times.note(10, Duration::from_secs(1));
        (0..400).for_each(|_| hold_times.note(10, Duration::from_millis(200)));
        let expected_ms = hold_times.get().expected_ms(10.0);
        assert!(expected_ms.is_some_and(|ms| (200.0..210.0).contains(&ms)), "{expected_ms:?}");
    }
}
