//! Recent minimum of the time to first token.

use std::time::Instant;

/// Time to first token while hardly anything waits, as the smallest value seen, and the present
/// value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Baseline {
    seen: Option<BaselineObservation>,
}

#[derive(Clone, Copy, Debug)]
struct BaselineObservation {
    least: f32,
    /// Smoothed present value.
    now: f32,
    at: Instant,
}

impl Baseline {
    /// Returns the smoothed present value as a multiple of the minimum, with one more reading.
    pub(super) fn slower(&mut self, first_token: f32, now: Instant) -> f32 {
        let seen = self.seen.get_or_insert(BaselineObservation {
            least: first_token,
            now: first_token,
            at: now,
        });
        let minutes = now.saturating_duration_since(seen.at).as_secs_f32() / 60.0;
        seen.at = now;
        seen.now += (first_token - seen.now) * SMOOTHING;
        // The minimum grows slowly, but never beyond the present value.
        seen.least = (seen.least * (GROWTH_PER_MINUTE * minutes).exp2()).min(seen.now);
        seen.now / seen.least
    }

    /// Returns true if the last value was at most `slower_max` times the minimum, or if none was
    /// seen.
    pub(super) fn is_in_time(&self, slower_max: f32) -> bool {
        self.seen.is_none_or(|seen| seen.now <= slower_max * seen.least)
    }
}

/// Weight of the newest reading.
const SMOOTHING: f32 = 0.2;

/// Growth of the minimum, in doublings per minute: it doubles in ten minutes. So a replica that has
/// become slower for good gets its full limit within the hour, and a replica that is always full is
/// not taken for idle.
const GROWTH_PER_MINUTE: f32 = 0.1;
