//! Slow start of a region that came back.

use std::time::{Duration, Instant};

/// Share of its requests that a region begins with, in thousandths.
const FIRST_PERMILLE: f32 = 50.0;

/// Returns the share of its requests, in thousandths, that a region gets which is reachable since
/// `since`: from 50 to 1,000 over the time `ramp`; 0 if the region is unreachable (`None`).
#[must_use]
pub fn ramp_permille(since: Option<Instant>, ramp: Duration, now: Instant) -> u16 {
    let Some(since) = since else { return 0 };
    let passed = now.saturating_duration_since(since).as_secs_f32();
    let part = if ramp.is_zero() { 1.0 } else { (passed / ramp.as_secs_f32()).min(1.0) };
    (FIRST_PERMILLE + (1_000.0 - FIRST_PERMILLE) * part) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_world::NOW;

    #[test]
    fn a_region_that_came_back_gets_its_share_bit_by_bit() {
        let (now, ramp) = (*NOW, Duration::from_secs(10));
        let after = |s: u64| ramp_permille(Some(now), ramp, now + Duration::from_secs(s));
        assert_eq!([after(0), after(5), after(10), after(99)], [50, 525, 1_000, 1_000]);
        assert_eq!(ramp_permille(None, ramp, now), 0);
        assert_eq!(ramp_permille(Some(now), Duration::ZERO, now), 1_000);
    }
}
