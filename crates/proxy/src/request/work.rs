//! How much a replica does for a reply.

use std::time::Duration;

use http::{HeaderMap, header};
use spillway_protocol::Usage;
use spillway_route::Attempt;
use spillway_types::{Inquiry, Worked};

/// Prompt tokens that are read in about the time that one takes to be generated: 50 to 300 with
/// published figures of servers, and only orders of magnitude matter here.
const READ_PER_STEP: f32 = 150.0;

/// Bytes of a prompt that make a token, where nothing is predicted.
const BYTES_PER_TOKEN: f32 = 4.0;

/// What a replica is asked to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Prompt tokens that it has to read; `None` if there is no prompt, and so no text to be written.
    uncached: Option<f32>,
}

impl Work {
    pub(crate) fn of(inquiry: &Inquiry, attempt: &Attempt) -> Self {
        let guessed = inquiry.prompt_bytes as f32 / BYTES_PER_TOKEN;
        let uncached = attempt.prediction.map_or(guessed, |predicted| {
            predicted.prompt_tokens.saturating_sub(predicted.cached_tokens) as f32
        });
        Self { uncached: (inquiry.prompt_bytes > 0).then_some(uncached) }
    }

    /// What the first byte of a reply says, as soon as it is there; `None` of a text in one piece, whose
    /// length nobody knows yet.
    pub(crate) fn begun(self, after: Duration, is_stream: bool) -> Option<Worked> {
        let read = match self.uncached {
            Some(uncached) if is_stream => uncached / READ_PER_STEP,
            Some(_) => return None,
            None => 0.0,
        };
        Some(Worked { after, steps: 1.0 + read, is_stream })
    }

    /// What a text in one piece says that took so long; `None` of anything else, and where the replica
    /// does not tell its length.
    pub(crate) fn finished(
        self,
        after: Duration,
        is_stream: bool,
        usage: Option<Usage>,
    ) -> Option<Worked> {
        let (uncached, usage) = (self.uncached.filter(|_| !is_stream)?, usage?);
        let steps = 1.0 + uncached / READ_PER_STEP + usage.completion_tokens as f32;
        Some(Worked { after, steps, is_stream })
    }
}

/// Whether a reply is a stream of events.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(2);
    const USAGE: Usage = Usage { prompt_tokens: 1_500, completion_tokens: 40, cached_tokens: None };

    fn steps(worked: Option<Worked>) -> Option<f32> {
        worked.map(|worked| worked.steps)
    }

    #[test]
    fn a_stream_is_judged_by_its_first_word_and_a_text_in_one_piece_by_all_of_it() {
        let chat = Work { uncached: Some(1_500.0) };
        assert_eq!(steps(chat.begun(AFTER, true)), Some(11.0));
        assert_eq!(steps(chat.finished(AFTER, true, Some(USAGE))), None, "once is enough");
        assert_eq!(steps(chat.begun(AFTER, false)), None);
        assert_eq!(steps(chat.finished(AFTER, false, Some(USAGE))), Some(51.0));
        assert_eq!(steps(chat.finished(AFTER, false, None)), None, "it may be as long as it likes");
    }

    #[test]
    fn without_a_prompt_every_answer_is_one_step() {
        let inference = Work { uncached: None };
        assert_eq!(steps(inference.begun(AFTER, false)), Some(1.0));
        assert_eq!(steps(inference.finished(AFTER, false, Some(USAGE))), None);
    }
}
