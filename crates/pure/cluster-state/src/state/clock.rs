//! Clocks of regions.

use serde::{Deserialize, Serialize};

use crate::limits::{CLOCK_SKEW_MS_MAX, CLOCK_STEP_MS_MAX};

/// Clock of one region, which advances with the entries of the region's nodes.
///
/// Stamps are wall clocks, which jump and differ. So one entry advances the clock by 5 s at most. A
/// stamp somewhat older than the last does not move the clock, since the clocks of several nodes
/// differ. A much older stamp means that a clock was set back, and time goes on from there. With
/// plain stamps, a clock that jumps forward would end every lease of a region at once, and after a
/// jump back no lease would end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RegionClock {
    last_stamp_ms: u64,
    now_ms: u64,
}

impl RegionClock {
    pub(crate) fn starting_at(stamp_ms: u64) -> Self {
        Self { last_stamp_ms: stamp_ms, now_ms: 0 }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Advances the clock by the stamp of an entry.
    pub(crate) fn advance(&mut self, stamp_ms: u64) {
        let passed_ms = stamp_ms.saturating_sub(self.last_stamp_ms);
        self.now_ms = self.now_ms.saturating_add(passed_ms.min(CLOCK_STEP_MS_MAX));
        let back_ms = self.last_stamp_ms.saturating_sub(stamp_ms);
        if passed_ms > 0 || back_ms > CLOCK_SKEW_MS_MAX {
            self.last_stamp_ms = stamp_ms;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    fn now_after(stamps_ms: &[u64]) -> u64 {
        let mut clock = RegionClock::starting_at(10 * HOUR_MS);
        stamps_ms.iter().for_each(|stamp| clock.advance(*stamp));
        clock.now_ms()
    }

    #[test]
    fn it_passes_as_the_stamps_do() {
        let start = 10 * HOUR_MS;
        assert_eq!(now_after(&[start + 1000, start + 1000, start + 2500]), 2500);
    }

    #[test]
    fn clocks_that_differ_a_little_do_not_speed_it_up() {
        let start = 10 * HOUR_MS;
        let stamps: Vec<u64> =
            (0..10).flat_map(|s| [start + s * 1000 + 3000, start + s * 1000]).collect();
        assert_eq!(now_after(&stamps), 12_000);
    }

    #[test]
    fn a_jump_ahead_is_a_step_at_most() {
        assert_eq!(now_after(&[11 * HOUR_MS, 11 * HOUR_MS + 1000]), CLOCK_STEP_MS_MAX + 1000);
    }

    #[test]
    fn it_goes_on_after_a_jump_back() {
        assert_eq!(now_after(&[9 * HOUR_MS, 9 * HOUR_MS + 1000]), 1000);
        assert_eq!(now_after(&[0, u64::MAX]), CLOCK_STEP_MS_MAX);
    }
}
