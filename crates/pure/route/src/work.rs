//! Amount of work that a replica does for a reply.

use std::time::Duration;

use spillway_types::{Inquiry, Worked, WorkedPart};

use crate::Attempt;

/// Prompt tokens that are read in the time of one generated token: 50 to 300 by published figures
/// of servers; only the order of magnitude matters here.
const READ_PER_STEP: f32 = 150.0;

/// Tokens behind the first one from which on the pace of a stream says something: a few come in one
/// piece, or in one step of speculative decoding.
const NEXT_TOKENS_MIN: u64 = 8;

/// Bytes of prompt per token, where nothing is predicted.
const BYTES_PER_TOKEN: f32 = 4.0;

/// Work that a request asks of a replica, so that replicas can be compared: time alone does not
/// show which replica is slow if one has more to read and to write.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Prompt tokens to be read; `None` if there is no prompt, and so no text to be written.
    uncached: Option<f32>,
}

impl Work {
    /// Returns the work of an attempt: the uncached part of the prompt as predicted, or else the
    /// whole prompt.
    #[must_use]
    pub fn of(inquiry: &Inquiry, attempt: &Attempt) -> Self {
        let guessed = inquiry.prompt_bytes as f32 / BYTES_PER_TOKEN;
        let uncached = attempt.prediction.map_or(guessed, |predicted| {
            predicted.prompt_tokens.saturating_sub(predicted.cached_tokens) as f32
        });
        Self { uncached: (inquiry.prompt_bytes > 0).then_some(uncached) }
    }

    /// Returns the work done at the first byte of a reply; `None` for a text in one piece, whose
    /// length is not known yet.
    #[must_use]
    pub fn begun(self, after: Duration, is_stream: bool) -> Option<Worked> {
        let read = match self.uncached {
            Some(uncached) if is_stream => uncached / READ_PER_STEP,
            // The length of a text in one piece is known only at its end.
            Some(_) => return None,
            None => 0.0,
        };
        let part = if is_stream { WorkedPart::FirstToken } else { WorkedPart::Whole };
        Some(Worked { after, steps: 1.0 + read, part })
    }

    /// Returns the work of a complete stream behind its first token, which took `after`. `None` for
    /// a stream that is too short to be judged.
    #[must_use]
    pub fn streamed(self, after: Duration, tokens: u64) -> Option<Worked> {
        let next = tokens.saturating_sub(1);
        let is_text = self.uncached.is_some() && next >= NEXT_TOKENS_MIN;
        is_text.then_some(Worked { after, steps: next as f32, part: WorkedPart::NextTokens })
    }

    /// Returns the work of a complete text in one piece that took `after`. `None` for any other
    /// reply, and where the replica does not report the number of tokens.
    #[must_use]
    pub fn finished(self, after: Duration, completion_tokens: Option<u64>) -> Option<Worked> {
        let (uncached, written) = (self.uncached?, completion_tokens?);
        let steps = 1.0 + uncached / READ_PER_STEP + written as f32;
        Some(Worked { after, steps, part: WorkedPart::Whole })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(2);
    const WRITTEN: Option<u64> = Some(40);

    fn steps(worked: Option<Worked>) -> Option<f32> {
        worked.map(|worked| worked.steps)
    }

    #[test]
    fn a_stream_is_judged_by_its_first_token_and_the_next_and_a_text_in_one_piece_by_all_of_it() {
        let chat = Work { uncached: Some(1_500.0) };
        assert_eq!(steps(chat.begun(AFTER, true)), Some(11.0));
        assert_eq!(steps(chat.streamed(AFTER, 40)), Some(39.0));
        assert_eq!(steps(chat.streamed(AFTER, 8)), None, "too few to be judged");
        assert_eq!(steps(chat.begun(AFTER, false)), None);
        assert_eq!(steps(chat.finished(AFTER, WRITTEN)), Some(51.0));
        assert_eq!(steps(chat.finished(AFTER, None)), None, "it may be as long as it likes");
    }

    #[test]
    fn without_a_prompt_every_answer_is_one_step() {
        let inference = Work { uncached: None };
        assert_eq!(steps(inference.begun(AFTER, false)), Some(1.0));
        assert_eq!(steps(inference.finished(AFTER, WRITTEN)), None);
        assert_eq!(steps(inference.streamed(AFTER, 40)), None);
    }
}
