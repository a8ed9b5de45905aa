//! Token bucket of one replica.

use std::time::Instant;

use spillway_route::{BucketConfig, refill};

/// Token bucket of a replica: each request takes a token, and time brings new ones, fewer the more
/// requests wait or run there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket(Option<Level>);

#[derive(Clone, Copy, Debug)]
struct Level {
    tokens: f32,
    at: Instant,
    started: u64,
}

impl Bucket {
    /// Takes out a token for each request started since the last call and refills by the time that
    /// passed. The first call fills the bucket.
    pub(crate) fn advance(
        &mut self,
        now: Instant,
        started: u64,
        queue_length: f32,
        config: &BucketConfig,
    ) {
        let full = Level { tokens: config.burst, at: now, started };
        let level = self.0.unwrap_or(full);
        let elapsed = now.saturating_duration_since(level.at);
        let tokens = refill(level.after(started), elapsed, queue_length, config);
        self.0 = Some(Level { tokens, at: now, started });
    }

    /// Returns the level at the last call, less the requests started since then. The level is below
    /// 0 if requests were sent without a token.
    pub(crate) fn tokens(&self, started: u64) -> f32 {
        // Before the first tick the bucket counts as empty.
        self.0.map_or(0.0, |level| level.after(started))
    }
}

impl Level {
    fn after(self, started: u64) -> f32 {
        self.tokens - started.saturating_sub(self.started) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fleet::{ms, start};

    const CONFIG: BucketConfig = BucketConfig { rate_per_s: 10.0, burst: 8.0, queue_halving: 4.0 };

    fn advance(bucket: &mut Bucket, at_ms: u64, started: u64, queue_length: f32) -> f32 {
        bucket.advance(start() + ms(at_ms), started, queue_length, &CONFIG);
        bucket.tokens(started)
    }

    #[test]
    fn it_begins_full_whatever_was_started_before() {
        assert_eq!(advance(&mut Bucket::default(), 0, 1_000, 0.0), 8.0);
    }

    #[test]
    fn each_request_takes_a_token_and_time_brings_some_by_the_queue() {
        let mut bucket = Bucket::default();
        advance(&mut bucket, 0, 0, 0.0);
        assert_eq!(advance(&mut bucket, 100, 4, 0.0), 5.0);
        assert_eq!(advance(&mut bucket, 300, 4, 4.0), 6.0);
        assert_eq!(bucket.tokens(6), 4.0, "taken since the last call");
    }

    #[test]
    fn what_was_sent_without_a_token_shows_until_the_next_call() {
        let mut bucket = Bucket::default();
        advance(&mut bucket, 0, 0, 0.0);
        assert_eq!(bucket.tokens(10), -2.0);
        assert_eq!(advance(&mut bucket, 100, 10, 0.0), 1.0);
    }

    #[test]
    fn a_count_that_began_anew_takes_nothing() {
        let mut bucket = Bucket::default();
        advance(&mut bucket, 0, 500, 0.0);
        assert_eq!(advance(&mut bucket, 100, 3, 0.0), 8.0);
        assert_eq!(Bucket::default().tokens(7), 0.0);
    }
}
