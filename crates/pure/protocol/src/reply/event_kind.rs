//! Kinds of events, by their names.

use super::finish::{Finish, FinishWord};

/// Meaning of an event, by its name or by the `type` of its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventKind {
    /// True if the event is the last of its stream: in the Responses API, Anthropic's messages,
    /// speech and transcripts.
    pub(crate) is_last: bool,
    /// True if the event is one of the Responses API.
    pub(crate) is_of_response: bool,
    /// True if the event reports an error.
    pub(crate) is_error: bool,
    /// True if the event can have content, but no other fact.
    pub(crate) is_content: bool,
    /// True if the last event reports a failure.
    is_failure: bool,
    /// True if the last event reports that the response was cancelled.
    is_cancelled: bool,
}

impl EventKind {
    /// Classifies a name.
    pub(crate) fn of(name: &[u8]) -> Self {
        // Most events of a stream.
        if name == b"content_block_delta" {
            return Self { is_content: true, ..Self::default() };
        }
        let is_of_response = name.starts_with(b"response.");
        if is_of_response && name.ends_with(b".delta") {
            return Self { is_of_response, is_content: true, ..Self::default() };
        }
        let is_last = matches!(
            name,
            b"response.completed"
                | b"response.incomplete"
                | b"response.failed"
                | b"response.cancelled"
                | b"message_stop"
                | b"speech.audio.done"
                | b"transcript.text.done"
        );
        Self {
            is_last,
            is_of_response,
            is_error: name == b"error",
            is_content: (is_of_response && !is_last)
                || name.starts_with(b"content_block_")
                || name == b"ping",
            is_failure: name == b"response.failed",
            is_cancelled: name == b"response.cancelled",
        }
    }

    /// Returns what is true of either kind. An event has content alone if both say so.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            is_last: self.is_last || other.is_last,
            is_of_response: self.is_of_response || other.is_of_response,
            is_error: self.is_error || other.is_error,
            is_content: self.is_content && other.is_content,
            is_failure: self.is_failure || other.is_failure,
            is_cancelled: self.is_cancelled || other.is_cancelled,
        }
    }

    /// Adds a name of an event. An event with several is what any of them says.
    pub(crate) fn add(&mut self, name: &[u8]) {
        let kind = Self::of(name);
        *self = if *self == Self::default() { kind } else { self.or(kind) };
    }

    /// Returns what the last event of a response says about its end, if its status does not.
    pub(super) fn last_word(self) -> FinishWord {
        match self {
            Self { is_failure: true, .. } => FinishWord::Failed,
            Self { is_cancelled: true, .. } => FinishWord::Ended(Finish::Aborted),
            Self { is_last: true, is_of_response: true, .. } => FinishWord::Ended(Finish::Normal),
            _ => FinishWord::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_events_are_known_by_their_names() {
        let check = |name: &str, is_last: bool, last_word: FinishWord| {
            let kind = EventKind::of(name.as_bytes());
            assert_eq!((kind.is_last, kind.last_word()), (is_last, last_word), "{name}");
            assert!(!(kind.is_last && kind.is_content), "{name}");
        };
        check("response.completed", true, FinishWord::Ended(Finish::Normal));
        check("response.incomplete", true, FinishWord::Ended(Finish::Normal));
        check("response.failed", true, FinishWord::Failed);
        check("response.cancelled", true, FinishWord::Ended(Finish::Aborted));
        check("message_stop", true, FinishWord::Open);
        check("speech.audio.done", true, FinishWord::Open);
        check("transcript.text.done", true, FinishWord::Open);
        check("response.created", false, FinishWord::Open);
        check("response.output_text.done", false, FinishWord::Open);
        check("message_start", false, FinishWord::Open);
        check("", false, FinishWord::Open);
    }

    #[test]
    fn events_with_content_alone_need_no_reading() {
        for (name, expected) in [
            ("response.output_text.delta", true),
            ("response.in_progress", true),
            ("content_block_delta", true),
            ("content_block_start", true),
            ("ping", true),
            ("message_start", false),
            ("message_delta", false),
            ("response.failed", false),
            ("error", false),
            ("", false),
        ] {
            assert_eq!(EventKind::of(name.as_bytes()).is_content, expected, "{name}");
        }
    }

    #[test]
    fn an_event_is_what_its_name_or_its_data_says() {
        let [delta, failed, error] = ["response.output_text.delta", "response.failed", "error"]
            .map(|it| EventKind::of(it.as_bytes()));
        assert_eq!(delta.or(delta), delta);
        assert!(delta.or(failed).is_last && !delta.or(failed).is_content);
        assert!(delta.or(error).is_error && delta.or(error).is_of_response);
        assert_eq!(EventKind::default().or(failed), failed.or(EventKind::default()));
    }
}
