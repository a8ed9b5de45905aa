//! The least time to the first token of late.

use std::time::Instant;

/// What the first token takes where hardly anything waits, as far as that was ever seen, and what it
/// takes now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Baseline {
    seen: Option<Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    least: f32,
    /// Smoothed.
    now: f32,
    at: Instant,
}

impl Baseline {
    /// How many times as long as the least this is, smoothed.
    pub(super) fn slower(&mut self, first_token: f32, now: Instant) -> f32 {
        let seen = self.seen.get_or_insert(Seen { least: first_token, now: first_token, at: now });
        let minutes = now.saturating_duration_since(seen.at).as_secs_f32() / 60.0;
        seen.at = now;
        seen.now += (first_token - seen.now) * SMOOTHING;
        seen.least = (seen.least * (GROWTH_PER_MINUTE * minutes).exp2()).min(seen.now);
        seen.now / seen.least
    }

    /// Whether it was no more than so many times the least when it was seen last, if it ever was.
    pub(super) fn is_in_time(&self, slower_max: f32) -> bool {
        self.seen.is_none_or(|seen| seen.now <= slower_max * seen.least)
    }
}

/// The part of the newest reading.
const SMOOTHING: f32 = 0.2;

/// How fast the least is forgotten: it doubles in ten minutes. A replica that has become slower for good is
/// given its due within the hour, and one that is always full does not pass for idle.
const GROWTH_PER_MINUTE: f32 = 0.1;
