//! How much a replica does for a reply.

use std::time::Duration;

use spillway_types::{Inquiry, Worked};

use crate::Attempt;

/// Prompt tokens that are read in about the time that one takes to be generated: 50 to 300 with
/// published figures of servers, and only orders of magnitude matter here.
const READ_PER_STEP: f32 = 150.0;

/// Bytes of a prompt that make a token, where nothing is predicted.
const BYTES_PER_TOKEN: f32 = 4.0;

/// What a replica is asked to do, so that its answer can be compared with those of others: time says
/// nothing about who is slow where one has more to read and to write.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Prompt tokens that it has to read; `None` if there is no prompt, and so no text to be written.
    uncached: Option<f32>,
}

impl Work {
    /// What an attempt asks for; what is not cached there by what was predicted, else all of the prompt.
    #[must_use]
    pub fn of(inquiry: &Inquiry, attempt: &Attempt) -> Self {
        let guessed = inquiry.prompt_bytes as f32 / BYTES_PER_TOKEN;
        let uncached = attempt.prediction.map_or(guessed, |predicted| {
            predicted.prompt_tokens.saturating_sub(predicted.cached_tokens) as f32
        });
        Self { uncached: (inquiry.prompt_bytes > 0).then_some(uncached) }
    }

    /// What the first byte of a reply says, as soon as it is there; `None` of a text in one piece, whose
    /// length nobody knows yet.
    #[must_use]
    pub fn begun(self, after: Duration, is_stream: bool) -> Option<Worked> {
        let read = match self.uncached {
            Some(uncached) if is_stream => uncached / READ_PER_STEP,
            Some(_) => return None,
            None => 0.0,
        };
        Some(Worked { after, steps: 1.0 + read, is_stream })
    }

    /// What a text in one piece says that took so long and has so many tokens; `None` of anything else,
    /// and where the replica does not tell its length.
    #[must_use]
    pub fn finished(
        self,
        after: Duration,
        is_stream: bool,
        completion_tokens: Option<u64>,
    ) -> Option<Worked> {
        let (uncached, written) = (self.uncached.filter(|_| !is_stream)?, completion_tokens?);
        let steps = 1.0 + uncached / READ_PER_STEP + written as f32;
        Some(Worked { after, steps, is_stream })
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
    fn a_stream_is_judged_by_its_first_word_and_a_text_in_one_piece_by_all_of_it() {
        let chat = Work { uncached: Some(1_500.0) };
        assert_eq!(steps(chat.begun(AFTER, true)), Some(11.0));
        assert_eq!(steps(chat.finished(AFTER, true, WRITTEN)), None, "once is enough");
        assert_eq!(steps(chat.begun(AFTER, false)), None);
        assert_eq!(steps(chat.finished(AFTER, false, WRITTEN)), Some(51.0));
        assert_eq!(steps(chat.finished(AFTER, false, None)), None, "it may be as long as it likes");
    }

    #[test]
    fn without_a_prompt_every_answer_is_one_step() {
        let inference = Work { uncached: None };
        assert_eq!(steps(inference.begun(AFTER, false)), Some(1.0));
        assert_eq!(steps(inference.finished(AFTER, false, WRITTEN)), None);
    }
}
