//! Priority of a connection's streams: those that have sent little lately go first.

use std::time::{Duration, Instant};

/// Bytes that a small stream may send: a head, a reply without a stream of tokens, or a second's
/// worth of tokens.
const SMALL_BYTES: u64 = 64 << 10;
/// Bytes that a middling stream may send; larger ones go last.
const MIDDLING_BYTES: u64 = 1 << 20;

/// Rank of a stream by the bytes that it has sent. Bytes are forgotten at [`SMALL_BYTES`] a second,
/// so a stream of tokens stays small however long it lasts, and a large body does not.
///
/// There are only three ranks, because each costs quinn a queue of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Urgency {
    level_bytes: u64,
    at: Instant,
}

impl Urgency {
    pub(super) fn new(now: Instant) -> Self {
        Self { level_bytes: 0, at: now }
    }

    /// Returns the rank of the stream once it has sent `bytes` more; a higher rank goes first.
    pub(super) fn after(&mut self, bytes: u64, now: Instant) -> i32 {
        let passed = now.saturating_duration_since(self.at).min(Duration::from_secs(3_600));
        // An hour in milliseconds times 64 KiB is far below the limit of `u64`.
        let forgotten = SMALL_BYTES * (passed.as_millis() as u64) / 1_000;
        // A part of a millisecond is not lost: the clock moves on only if some bytes were
        // forgotten.
        if forgotten > 0 {
            self.at = now;
        }
        self.level_bytes = self.level_bytes.saturating_sub(forgotten).saturating_add(bytes);
        match self.level_bytes {
            0..=SMALL_BYTES => 2,
            level if level <= MIDDLING_BYTES => 1,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_body_falls_behind_small_ones() {
        let now = Instant::now();
        let mut urgency = Urgency::new(now);
        assert_eq!(urgency.after(64 << 10, now), 2);
        assert_eq!(urgency.after(1, now), 1);
        assert_eq!(urgency.after(1 << 20, now), 0);
        assert_eq!(Urgency::new(now).after(2 << 20, now), 0);
    }

    #[test]
    fn a_stream_of_tokens_stays_small_for_an_hour() {
        let start = Instant::now();
        let mut urgency = Urgency::new(start);
        for tick in 0..36_000 {
            let now = start + Duration::from_millis(tick * 100);
            assert_eq!(urgency.after(4_000, now), 2, "after {tick} ticks");
        }
    }

    #[test]
    fn many_writes_in_a_millisecond_are_forgotten_like_one() {
        let start = Instant::now();
        let mut urgency = Urgency::new(start);
        urgency.after(64 << 10, start);
        for step in 0..1_000_000 {
            urgency.after(0, start + Duration::from_micros(step));
        }
        let after_a_second = urgency.after(0, start + Duration::from_secs(1));
        assert_eq!(after_a_second, 2);
        assert_eq!(urgency.after(60 << 10, start + Duration::from_secs(1)), 2);
    }
}
