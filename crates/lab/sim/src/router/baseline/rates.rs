//! Rates of the engines, for rules whose authors measured them in advance.

use std::collections::VecDeque;

use super::rule::News;

/// Prompts with fewer tokens to read reveal little about the time of a token.
const TOKENS_MIN: u32 = 256;

/// Milliseconds of reading a token before any was seen: what GORGO's authors measured on A100s.
const PREFILL_MS: f64 = 0.0938;

/// Milliseconds from one token of a reply to the next before any was seen, and the number of
/// replies that count: both as in Preble's code.
const TOKEN_MS: f64 = 150.0;
const REPLIES_MAX: usize = 200;

/// Times that engines take for a token, learned from replies.
///
/// Preble and GORGO take them from measurements of idle engines. The fastest reply so far replaces
/// those measurements here, because no request is read faster than by an idle engine.
#[derive(Debug, Default)]
pub(super) struct Rates {
    fastest_ms: Option<f64>,
    replies_ms: VecDeque<f64>,
    replies: u64,
    reply_tokens: u64,
}

impl Rates {
    /// Learns from a reply.
    pub(super) fn note(&mut self, news: &News<'_>) {
        match news {
            News::Replied(replied) => {
                let read = replied.prompt_tokens.saturating_sub(replied.cached_tokens);
                if read >= TOKENS_MIN {
                    let each_ms = replied.first_token_ms / f64::from(read);
                    let fastest = self.fastest_ms.unwrap_or(f64::INFINITY);
                    self.fastest_ms = Some(fastest.min(each_ms));
                }
            }
            News::Ended(ended) if ended.tokens > 0 => {
                if self.replies_ms.len() == REPLIES_MAX {
                    self.replies_ms.pop_front();
                }
                self.replies_ms.push_back(ended.span_ms / f64::from(ended.tokens));
                self.replies += 1;
                self.reply_tokens += u64::from(ended.tokens) + 1;
            }
            News::Ended(_) | News::Sent(_) | News::Forwarded(_) | News::Left(_) => {}
        }
    }

    /// Returns the milliseconds that reading a token of a prompt takes.
    pub(super) fn prefill_ms(&self) -> f64 {
        self.fastest_ms.unwrap_or(PREFILL_MS)
    }

    /// Returns the median milliseconds from one token of a reply to the next.
    pub(super) fn token_ms(&self) -> f64 {
        let seen: Vec<f64> = self.replies_ms.iter().copied().collect();
        median(seen).unwrap_or(TOKEN_MS)
    }

    /// Returns the mean tokens of a reply; `before` until one has ended.
    pub(super) fn reply_tokens(&self, before: f64) -> f64 {
        if self.replies == 0 { before } else { self.reply_tokens as f64 / self.replies as f64 }
    }
}

/// Returns the median of some values.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
