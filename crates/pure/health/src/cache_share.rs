//! Share of recent prompts that a replica had in its cache.

use spillway_types::TokenCounts;

/// Factor by which each new reply lowers the weight of earlier ones: the last 32 make up most.
const FADE: f64 = 31.0 / 32.0;

/// Fewest replies for a known share.
const REPLIES_MIN: u32 = 5;

/// Cached tokens as a share of all prompt tokens of the recent replies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CacheShare {
    prompt: f64,
    cached: f64,
    replies: u32,
}

impl CacheShare {
    /// Counts a reply; a reply without prompt tokens is ignored.
    pub(crate) fn record(&mut self, tokens: TokenCounts) {
        if tokens.prompt == 0 {
            return;
        }
        self.prompt = self.prompt * FADE + tokens.prompt as f64;
        // A wrong report must not make a share above 1.
        self.cached = self.cached * FADE + tokens.cached.min(tokens.prompt) as f64;
        self.replies = self.replies.saturating_add(1);
    }

    /// Returns the share, 0 to 1; `None` after too few replies.
    pub(crate) fn known(&self) -> Option<f32> {
        (self.replies >= REPLIES_MIN).then(|| (self.cached / self.prompt) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(replies: &[(u64, u64)]) -> Option<f32> {
        let mut share = CacheShare::default();
        for &(prompt, cached) in replies {
            share.record(TokenCounts { prompt, cached, completion: 7 });
        }
        share.known()
    }

    #[test]
    fn it_is_known_after_some_replies_that_tell_their_prompt() {
        assert_eq!(after(&[(100, 50); 4]), None);
        assert_eq!(after(&[(100, 50), (0, 0), (100, 50), (100, 50), (100, 50)]), None);
        assert!((after(&[(100, 50); 5]).unwrap() - 0.5).abs() < 1e-6);
    }

    #[test]
    fn long_prompts_weigh_more_and_new_replies_too() {
        assert!((after(&[(10, 10), (10, 10), (10, 10), (10, 10), (960, 0)]).unwrap()) < 0.05);
        let warmed: Vec<_> = [(100, 0); 32].into_iter().chain([(100, 100); 64]).collect();
        assert!((0.8..0.95).contains(&after(&warmed).unwrap()));
    }

    #[test]
    fn more_cached_than_prompt_tokens_count_as_all() {
        assert_eq!(after(&[(100, u64::MAX); 9]), Some(1.0));
        assert!(after(&[(u64::MAX, u64::MAX); 2000]).unwrap().is_finite());
    }
}
