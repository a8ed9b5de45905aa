//! Streamed replies: server-sent events that carry the text of a chat.

use serde_json::Value;

/// Data of the event that ends a stream.
const DONE: &str = "[DONE]";

/// Content of a stream of chat events. An event that is not over does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamReply {
    /// Text of all events.
    pub text: String,
    /// True if the stream has come to its `[DONE]`.
    pub is_done: bool,
    /// Code of the first error event, at whatever position; `error` if the event names none.
    pub error: Option<String>,
}

impl StreamReply {
    /// Reads the events of a body.
    pub(crate) fn read(body: &[u8]) -> Self {
        let body = String::from_utf8_lossy(body);
        // Bytes after the last empty line are no whole event.
        let events = body.rfind("\n\n").map_or("", |end| &body[..end]);
        let mut stream = Self::default();
        for data in events.lines().filter_map(|line| line.strip_prefix("data:")) {
            if data.trim() == DONE {
                stream.is_done = true;
            } else if let Ok(event) = serde_json::from_str(data) {
                stream.add(&event);
            }
        }
        stream
    }

    fn add(&mut self, event: &Value) {
        self.text.push_str(event["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
        let error = &event["error"];
        if !error.is_null() {
            let code = error["code"].as_str().unwrap_or("error");
            self.error.get_or_insert_with(|| code.to_owned());
        }
    }

    /// Returns true if the stream came to its end, and no event reported a failure.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_done && self.error.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: &str = "data: [DONE]\n\n";
    const CUT: &str = "data: {\"error\":{\"code\":\"stream_cut\"}}\n\n";

    fn event(delta: &str) -> String {
        format!("data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n")
    }

    fn is_whole(body: &str) -> bool {
        StreamReply::read(body.as_bytes()).is_whole()
    }

    #[test]
    fn the_text_of_all_events_is_read() {
        let events = event("{\"role\":\"assistant\"}") + &event("{\"content\":\"a \"}");
        let stream = StreamReply::read((events + &event("{\"content\":\"b\"}") + DONE).as_bytes());
        assert_eq!((stream.text.as_str(), stream.is_whole()), ("a b", true));
    }

    #[test]
    fn only_a_stream_with_its_last_event_is_whole() {
        let text = event("{\"content\":\"a\"}");
        assert!(is_whole(&format!("{text}{DONE}")));
        assert!(!is_whole(&text) && !is_whole(""));
        // The event itself is not over.
        assert!(!is_whole(&format!("{text}data: [DONE]")));
        assert!(!is_whole(&event("{\"content\":\"[DONE]\"}")));
    }

    #[test]
    fn an_error_anywhere_makes_a_stream_fail() {
        let text = event("{\"content\":\"a\"}");
        for body in [format!("{CUT}{text}{DONE}"), format!("{text}{DONE}{CUT}")] {
            let stream = StreamReply::read(body.as_bytes());
            assert!(stream.is_done && !stream.is_whole(), "{body}");
            assert_eq!(stream.error.as_deref(), Some("stream_cut"), "{body}");
        }
        let nameless = StreamReply::read(b"data: {\"error\":{}}\n\n");
        assert_eq!(nameless.error.as_deref(), Some("error"));
        // Some engines write the field into each event.
        assert!(is_whole(&format!("data: {{\"error\":null}}\n\n{DONE}")));
    }
}
