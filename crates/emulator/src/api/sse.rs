//! Server-sent events as bytes.

use bytes::Bytes;
use serde_json::Value;

/// The end of a stream of completions.
pub(crate) const DONE: Bytes = Bytes::from_static(b"data: [DONE]\n\n");

/// An event without a name.
pub(crate) fn data(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

/// An event with a name.
pub(crate) fn named(name: &str, value: &Value) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {value}\n\n"))
}

/// An event that differs from the one before only in a text and is written once per token, so it
/// is not built as a tree each time.
#[derive(Debug)]
pub(crate) struct TextEvent {
    before: String,
    after: String,
}

impl TextEvent {
    /// The event `value`, in which the string [`Self::MARK`] stands where the text goes.
    pub(crate) fn new(value: &Value) -> Self {
        let event = format!("data: {value}\n\n");
        let quoted = format!("\"{}\"", Self::MARK);
        match event.split_once(&quoted) {
            Some((before, after)) => Self { before: before.to_owned(), after: after.to_owned() },
            None => Self { before: event, after: String::new() },
        }
    }

    /// Where the text goes. The only other free text in these events is the name of a model that
    /// is served, and none is called this.
    pub(crate) const MARK: &'static str = "<the text of the token goes here>";

    /// The event with this text.
    pub(crate) fn with(&self, text: &str) -> Bytes {
        let text = Value::from(text).to_string();
        let mut event = String::with_capacity(self.before.len() + text.len() + self.after.len());
        event.push_str(&self.before);
        event.push_str(&text);
        event.push_str(&self.after);
        Bytes::from(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_event_equals_the_event_built_in_full() {
        for text in ["the ", "\"quoted\"\n", ""] {
            let event = TextEvent::new(&json!({ "a": 1, "text": TextEvent::MARK, "z": [2] }));
            let full = data(&json!({ "a": 1, "text": text, "z": [2] }));
            assert_eq!(event.with(text), full);
        }
    }

    #[test]
    fn events_end_with_an_empty_line() {
        assert_eq!(data(&json!({})), "data: {}\n\n");
        assert_eq!(named("response.created", &json!({})), "event: response.created\ndata: {}\n\n");
    }
}
