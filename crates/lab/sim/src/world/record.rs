//! Records of single requests, and the objectives that judge them.

use serde::Serialize;
use spillway_engine::EngineConfig;

/// End of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    // Open => (Answered | Shed | Failed)
    /// The request did not end within the run.
    #[default]
    Open,
    /// The whole reply came.
    Answered,
    /// The client got a retry time beyond its patience.
    Shed,
    /// The client got an error or a part of a reply, or lost its patience.
    Failed,
}

/// Fate of one request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Record {
    /// Region of the client.
    pub region: usize,
    /// Region of the replica that the request went to last; `None` if it went to none.
    pub served_by: Option<usize>,
    /// Seconds from the beginning until the client sent the request.
    pub arrived_s: f64,
    /// Milliseconds until the first token was at the client; `None` if none came.
    pub first_token_ms: Option<f64>,
    /// Milliseconds until the last token was at the client; `None` if it did not come.
    pub ended_ms: Option<f64>,
    /// Length of the prompt in tokens.
    pub prompt_tokens: u32,
    /// Prompt tokens found in the replica's cache.
    pub cached_tokens: u32,
    /// Length of the reply in tokens.
    pub reply_tokens: u32,
    /// True if a region other than the client's served the request.
    pub is_forwarded: bool,
    /// Fate of the request.
    pub fate: Fate,
    /// Times that the client was rejected with a retry time and retried then.
    pub returns: u32,
    /// Milliseconds from the first time that the client asked to the last one.
    pub asked_again_ms: f64,
}

impl Record {
    /// Returns the mean milliseconds per token after the first one; `None` without a whole reply of
    /// several tokens.
    #[must_use]
    pub fn token_ms(&self) -> Option<f64> {
        let span_ms = self.ended_ms? - self.first_token_ms?;
        (self.reply_tokens > 1).then(|| span_ms / f64::from(self.reply_tokens - 1))
    }

    /// Returns the request as if its client had asked for the first time when it asked last.
    #[must_use]
    pub fn as_asked_last(&self) -> Self {
        let since = |ms: Option<f64>| ms.map(|ms| ms - self.asked_again_ms);
        let (first_token_ms, ended_ms) = (since(self.first_token_ms), since(self.ended_ms));
        Self { first_token_ms, ended_ms, asked_again_ms: 0.0, ..*self }
    }
}

/// Service level objective of a single request: a bound of the time to first token that grows with
/// the prompt, and one of the time per token after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slo {
    /// Milliseconds to the first token that any request may take.
    pub base_ms: f64,
    /// Factor of the time in which an idle engine without a cache would read the prompt; that time
    /// is granted on top.
    pub prefill_factor: f64,
    /// Longest mean time per token after the first one in milliseconds.
    pub token_ms: f64,
    /// Milliseconds to the first token for which a request without one counts.
    pub failed_ms: f64,
}

impl Slo {
    /// Objective for replicas on an L4.
    pub const L4: Self =
        Self { base_ms: 1_000.0, prefill_factor: 2.0, token_ms: 250.0, failed_ms: 30_000.0 };

    /// Objective for replicas on an A100.
    pub const A100: Self =
        Self { base_ms: 500.0, prefill_factor: 2.0, token_ms: 60.0, failed_ms: 60_000.0 };

    /// Returns true if a request met the objective on replicas with this engine.
    #[must_use]
    pub fn is_good(&self, record: &Record, engine: &EngineConfig) -> bool {
        let (Some(first_ms), Some(ended_ms)) = (record.first_token_ms, record.ended_ms) else {
            return false;
        };
        let token_ms = engine.cost.prefill_token_ns as f64 / 1e6;
        let prefill_ms = token_ms * f64::from(record.prompt_tokens);
        // A reply of one token has no time per token.
        let later_tokens = f64::from(record.reply_tokens.saturating_sub(1).max(1));
        first_ms <= self.base_ms + self.prefill_factor * prefill_ms
            && (ended_ms - first_ms) / later_tokens <= self.token_ms
    }
}

#[cfg(test)]
mod tests {
    use spillway_engine::Profile;

    use super::*;

    #[test]
    fn long_prompts_have_more_time_and_slow_tokens_or_missing_ones_are_not_good() {
        let engine = EngineConfig::from_profile(Profile::L4);
        let good = |prompt_tokens, first_token_ms, ended_ms| {
            let record = Record {
                region: 0,
                served_by: Some(0),
                arrived_s: 0.0,
                first_token_ms,
                ended_ms,
                prompt_tokens,
                cached_tokens: 0,
                reply_tokens: 11,
                is_forwarded: false,
                fate: Fate::Answered,
                returns: 0,
                asked_again_ms: 0.0,
            };
            Slo::L4.is_good(&record, &engine)
        };
        // 1,000 tokens of 0.478 ms: 1,956 ms in all.
        assert!(good(1_000, Some(1_950.0), Some(2_950.0)));
        assert!(!good(1_000, Some(1_960.0), Some(2_960.0)));
        assert!(!good(900, Some(1_950.0), Some(2_950.0)));
        assert!(good(1_000, Some(500.0), Some(2_999.0)));
        assert!(!good(1_000, Some(500.0), Some(3_001.0)));
        assert!(!good(1_000, Some(500.0), None) && !good(1_000, None, None));
    }

    #[test]
    fn who_came_again_when_told_to_waits_from_then_on() {
        let engine = EngineConfig::from_profile(Profile::L4);
        let late = Record {
            region: 0,
            served_by: Some(0),
            arrived_s: 0.0,
            first_token_ms: Some(9_900.0),
            ended_ms: Some(10_900.0),
            prompt_tokens: 100,
            cached_tokens: 0,
            reply_tokens: 11,
            is_forwarded: false,
            fate: Fate::Answered,
            returns: 1,
            asked_again_ms: 9_000.0,
        };
        assert!(!Slo::L4.is_good(&late, &engine));
        assert!(Slo::L4.is_good(&late.as_asked_last(), &engine));
        let never = Record { first_token_ms: None, ended_ms: None, ..late };
        assert!(!Slo::L4.is_good(&never.as_asked_last(), &engine));
    }
}
