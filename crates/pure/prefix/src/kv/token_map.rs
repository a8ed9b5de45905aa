//! Positions in bytes and in tokens of one prompt with its reply.

use super::prompts::ReplyFigures;

/// Bytes of a prompt for each of its tokens, and the same of its reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TokenMap {
    prompt_bytes: f64,
    prompt_rate: f64,
    reply_rate: f64,
}

/// Largest factor between the tokens of a byte of a reply and those of its prompt. A short reply is
/// known to a block alone, so that its own rate can be far from the truth.
const REPLY_FACTOR_MAX: f64 = 2.0;

impl TokenMap {
    /// Returns the map of a prompt of which nothing but the replica's usual rate is known, in tokens
    /// per byte.
    pub(super) fn usual(rate: f64) -> Self {
        Self { prompt_bytes: f64::INFINITY, prompt_rate: rate, reply_rate: rate }
    }

    /// Returns the map of a prompt by the numbers of its reply; `None` if these are not enough.
    /// `reply_bytes` is the size of the reply as far as blocks of it are known.
    pub(super) fn of(figures: &ReplyFigures, reply_bytes: f64) -> Option<Self> {
        let tokens = figures.prompt_tokens.filter(|tokens| *tokens > 0)?;
        if figures.prompt_bytes == 0 {
            return None;
        }
        let prompt_bytes = f64::from(figures.prompt_bytes);
        let prompt_rate = tokens as f64 / prompt_bytes;
        let bounds = (prompt_rate / REPLY_FACTOR_MAX, prompt_rate * REPLY_FACTOR_MAX);
        let reply_rate = if reply_bytes > 0.0 && figures.output_tokens > 0 {
            (figures.output_tokens as f64 / reply_bytes).clamp(bounds.0, bounds.1)
        } else {
            prompt_rate
        };
        Some(Self { prompt_bytes, prompt_rate, reply_rate })
    }

    /// Returns the position in tokens of a position in bytes.
    pub(super) fn tokens_at(&self, bytes: f64) -> f64 {
        let in_prompt = bytes.min(self.prompt_bytes);
        in_prompt * self.prompt_rate + (bytes - in_prompt).max(0.0) * self.reply_rate
    }

    /// Returns the tokens of a byte of the prompt.
    pub(super) fn prompt_rate(&self) -> f64 {
        self.prompt_rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_has_a_rate_of_its_own_within_limits() {
        let figures = |prompt_tokens, output_tokens| ReplyFigures {
            prompt_bytes: 1_000,
            prompt_tokens,
            output_tokens,
            ..ReplyFigures::default()
        };
        let map = TokenMap::of(&figures(Some(250), 100), 300.0).unwrap();
        assert_eq!(map.tokens_at(500.0), 125.0);
        assert_eq!(map.tokens_at(1_300.0).round(), 350.0);
        let map = TokenMap::of(&figures(Some(250), 9_000), 300.0).unwrap();
        assert_eq!(map.tokens_at(1_300.0), 400.0, "twice the prompt's at most");
        assert_eq!(TokenMap::of(&figures(None, 5), 1.0), None);
        assert_eq!(TokenMap::of(&figures(Some(0), 5), 1.0), None);
        assert_eq!(TokenMap::usual(0.25).tokens_at(1_300.0), 325.0);
    }
}
