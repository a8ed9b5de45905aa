//! Bytes of server-sent events.

use std::fmt::Display;

use bytes::Bytes;
use serde_json::Value;

/// Event that ends a stream of completions.
pub(crate) const DONE: Bytes = Bytes::from_static(b"data: [DONE]\n\n");

/// Returns an event without a name.
pub(crate) fn data(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

/// Returns an event with a name.
pub(crate) fn named(name: &str, value: &impl Display) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {value}\n\n"))
}

/// Template of events that differ only in a text. One event is written per token, so it is not
/// built as a JSON tree each time.
#[derive(Debug)]
pub(crate) struct TextEvent {
    before: String,
    after: String,
}

impl TextEvent {
    /// Creates a template from an event in which the string [`Self::MARK`] takes the place of the
    /// text.
    pub(crate) fn new(value: &Value) -> Self {
        let event = format!("data: {value}\n\n");
        let quoted = format!("\"{}\"", Self::MARK);
        match event.split_once(&quoted) {
            Some((before, after)) => Self { before: before.to_owned(), after: after.to_owned() },
            None => Self { before: event, after: String::new() },
        }
    }

    /// Placeholder of the text. The only other free text in these events is the name of a served
    /// model, and no model is called this.
    pub(crate) const MARK: &'static str = "<the text of the token goes here>";

    /// Returns the event with this text.
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
