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

    /// Replaces what a document has so far. Of members that are given twice, the last one counts.
    pub(super) fn replace(&mut self, found: &Found) {
        self.id.clone_from(&found.id);
        self.model.clone_from(&found.model);
        self.usage = found.usage;
        self.finish = found.finish;
        self.error = found.error.as_deref().cloned();
        self.has_content = found.has_content;
    }
}
