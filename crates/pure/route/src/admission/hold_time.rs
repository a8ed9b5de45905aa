//! Time that a request keeps a slot at a replica, by its size.

/// Linear model of the time that a request keeps a slot at a replica, over its size in tokens.
///
/// A mean alone is wrong where the next requests are larger or smaller than the recent ones: after
/// short requests it lets clients come back much too early. The sums fade, so that some dozens of
/// requests decide. They are plain numbers, which the caller may keep anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HoldTime {
    /// Requests that count, 64 at most.
    pub count: f32,
    /// Mean size in tokens.
    pub tokens: f32,
    /// Mean milliseconds from a request's start to its end.
    pub held_ms: f32,
    /// Variance of the size.
    pub variance: f32,
    /// Covariance of size and time.
    pub covariance: f32,
}

impl HoldTime {
    /// Returns the model with one more request, of this many tokens, that kept its slot for
    /// `held_ms`.
    #[must_use]
    pub fn with(self, tokens: u32, held_ms: f32) -> Self {
        if !held_ms.is_finite() {
            return self;
        }
        // The limit of the count lets older requests fade.
        let count = (self.count + 1.0).min(COUNT_MAX);
        let (part, tokens) = (1.0 / count, tokens.min(TOKENS_MAX) as f32);
        let (more_tokens, longer_ms) = (tokens - self.tokens, held_ms.max(0.0) - self.held_ms);
        let rest = 1.0 - part;
        Self {
            count,
            tokens: self.tokens + part * more_tokens,
            held_ms: self.held_ms + part * longer_ms,
            variance: rest * (self.variance + part * more_tokens * more_tokens),
            covariance: rest * (self.covariance + part * more_tokens * longer_ms),
        }
    }

    /// Returns the mean milliseconds for requests of `tokens` on average; `None` if no request has
    /// ended.
    ///
    /// If sizes were too equal to show the time per token, a larger request is expected to take
    /// proportionally longer and a smaller one no less: a client that comes too late still finds a
    /// slot.
    #[must_use]
    pub fn expected_ms(&self, tokens: f32) -> Option<f32> {
        if self.count <= 0.0 {
            return None;
        }
        let more_tokens = tokens.clamp(0.0, TOKENS_MAX as f32) - self.tokens;
        // The origin counts as a small part of a request, and only for larger requests.
        let doubt = UNSEEN_SHARE * self.tokens;
        let pulled = if more_tokens > 0.0 { doubt * self.held_ms } else { 0.0 };
        let spread = self.variance + doubt * self.tokens;
        let token_ms = if spread > 0.0 { (self.covariance + pulled) / spread } else { 0.0 };
        let expected_ms = self.held_ms + token_ms.max(0.0) * more_tokens;
        Some(expected_ms.max(HELD_MS_MIN))
    }
}

/// Recent requests that count.
const COUNT_MAX: f32 = 64.0;

/// Weight of the origin (no tokens, no time), as a part of a request.
const UNSEEN_SHARE: f32 = 0.02;

/// Largest size that counts, since a client can claim any size.
const TOKENS_MAX: u32 = 1 << 20;

/// Shortest time in milliseconds: errors end at once and must not promise an endless rate.
const HELD_MS_MIN: f32 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(requests: impl IntoIterator<Item = (u32, f32)>) -> HoldTime {
        requests.into_iter().fold(HoldTime::default(), |hold, (tokens, ms)| hold.with(tokens, ms))
    }

    fn expected(hold: HoldTime, tokens: f32) -> f32 {
        hold.expected_ms(tokens).unwrap()
    }

    #[test]
    fn nothing_is_expected_before_any_has_ended() {
        assert_eq!(HoldTime::default().expected_ms(10.0), None);
    }

    #[test]
    fn it_follows_what_a_token_takes_where_sizes_are_mixed() {
        let mut rng = fastrand::Rng::with_seed(4);
        let hold = of((0..200).map(|_| {
            let tokens = rng.u32(4..64);
            (tokens, 100.0 + 10.0 * tokens as f32 * (0.8 + 0.4 * rng.f32()))
        }));
        for tokens in [8.0_f32, 32.0, 100.0, 400.0] {
            let right = 100.0 + 10.0 * tokens;
            let expected = expected(hold, tokens);
            assert!((0.8..1.25).contains(&(expected / right)), "{tokens}: {expected} for {right}");
        }
    }

    #[test]
    fn where_sizes_were_equal_larger_ones_take_proportionally_longer_and_smaller_ones_no_less() {
        let hold = of((0..100).map(|_| (10, 200.0)));
        assert!((expected(hold, 10.0) - 200.0).abs() < 1.0);
        assert!((expected(hold, 40.0) - 800.0).abs() < 10.0, "{}", expected(hold, 40.0));
        assert!((expected(hold, 5.0) - 200.0).abs() < 1.0);
    }

    #[test]
    fn where_size_says_nothing_the_mean_is_expected() {
        let mut rng = fastrand::Rng::with_seed(4);
        let hold = of((0..500).map(|_| (rng.u32(1..100), 500.0 * (0.5 + rng.f32()))));
        for tokens in [10.0, 90.0] {
            let expected = expected(hold, tokens);
            assert!((350.0..650.0).contains(&expected), "{tokens}: {expected}");
        }
    }

    #[test]
    fn some_dozens_of_late_decide() {
        let hold = of((0..300).map(|step| (10, if step < 100 { 2_000.0 } else { 100.0 })));
        assert!((100.0..200.0).contains(&expected(hold, 10.0)), "{}", expected(hold, 10.0));
    }

    #[test]
    fn it_is_a_number_whatever_is_claimed_and_measured() {
        let sizes = [0, 1, u32::MAX];
        let times = [0.0, -1.0, 1e-30, 1e9, f32::INFINITY, f32::NAN];
        let mut rng = fastrand::Rng::with_seed(4);
        let mut hold = HoldTime::default();
        for _ in 0..10_000 {
            hold = hold.with(sizes[rng.usize(..3)], times[rng.usize(..6)]);
            for tokens in [0.0, 1.0, 1e30, f32::NAN] {
                let expected = hold.expected_ms(tokens);
                assert!(expected.is_none_or(|ms| ms.is_finite() && ms >= 1.0), "{hold:?}");
            }
        }
    }
}
