//! Facts of one reply.

use super::finish::Finish;
use super::found::Found;
use super::reply_error::ReplyError;
use super::usage::Usage;

/// Facts of one reply so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyFacts {
    /// The reply's own id: a member of the reply, of `response` in the Responses API's events, or of
    /// `message` in Anthropic's. `None` for an id of more than 256 bytes.
    pub id: Option<Box<str>>,
    /// Model that the engine names. `None` for a name of more than 256 bytes.
    pub model: Option<Box<str>>,
    /// Usage; over several events the largest count of each kind.
    pub usage: Option<Usage>,
    /// End of the content; `None` until the engine gives a reason. Of several choices, one that was
    /// aborted decides.
    pub finish: Option<Finish>,
    /// First error that the reply reports.
    pub error: Option<ReplyError>,
    /// True once the reply has generated content of any kind: text, tool calls, reasoning, audio,
    /// token ids, embeddings, scores or output items.
    pub has_content: bool,
    /// True once the reply has its own end: `[DONE]`, the last event of its API, or the end of its
    /// JSON.
    pub is_done: bool,
    /// True for a reply in one piece.
    pub is_whole: bool,
    /// True if a part of the reply is no JSON, so that facts may be missing.
    pub is_unreadable: bool,
}

impl ReplyFacts {
    /// Adds what an event of a stream has. Earlier events keep their id, model and error.
    pub(super) fn add(&mut self, found: &mut Found) {
        self.id = self.id.take().or_else(|| found.id.take());
        self.model = self.model.take().or_else(|| found.model.take());
        self.usage = match (self.usage, found.usage) {
            (Some(before), Some(now)) => Some(before.largest(now)),
            (before, now) => before.or(now),
        };
        self.finish = self.finish.max(found.finish);
        if self.error.is_none() {
            self.error = found.error.take().map(|error| *error);
        }
        self.has_content |= found.has_content;
    }

    /// Takes what a document has so far. Of members that are given twice, the last one counts.
    pub(super) fn take(&mut self, found: &mut Found) {
        if found.id.is_some() {
            self.id = found.id.take();
        }
        if found.model.is_some() {
            self.model = found.model.take();
        }
        if found.error.as_deref() != self.error.as_ref() {
            self.error = found.error.as_deref().cloned();
        }
        self.usage = found.usage;
        self.finish = found.finish;
        self.has_content = found.has_content;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(id: &str, tokens: u64, finish: Option<Finish>) -> Found {
        let usage =
            Usage { prompt_tokens: tokens, completion_tokens: 10 - tokens, cached_tokens: None };
        let mut found = Found::default();
        (found.id, found.usage, found.finish) = (Some(id.into()), Some(usage), finish);
        found
    }

    #[test]
    fn of_several_events_the_first_id_and_the_largest_counts_stay() {
        let mut facts = ReplyFacts::default();
        facts.add(&mut Found::default());
        assert_eq!(facts, ReplyFacts::default());
        facts.add(&mut found("a", 7, Some(Finish::Aborted)));
        facts.add(&mut found("b", 2, Some(Finish::Normal)));
        facts.add(&mut Found::default());
        assert_eq!(facts.id.as_deref(), Some("a"));
        let usage = Usage { prompt_tokens: 7, completion_tokens: 8, cached_tokens: None };
        assert_eq!((facts.usage, facts.finish), (Some(usage), Some(Finish::Aborted)));
    }

    #[test]
    fn of_one_document_the_last_values_count() {
        let mut facts = ReplyFacts::default();
        facts.take(&mut found("a", 7, None));
        facts.take(&mut found("b", 2, Some(Finish::Normal)));
        assert_eq!(facts.id.as_deref(), Some("b"));
        let usage = Usage { prompt_tokens: 2, completion_tokens: 8, cached_tokens: None };
        assert_eq!((facts.usage, facts.finish), (Some(usage), Some(Finish::Normal)));
        let mut later = Found::default();
        later.usage = Some(usage);
        facts.take(&mut later);
        assert_eq!(facts.id.as_deref(), Some("b"), "an id that was taken stays");
    }
}
