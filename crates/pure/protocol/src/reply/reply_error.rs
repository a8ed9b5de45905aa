//! Errors in the body of a reply, or in an event.

use super::text::text_of;

/// Error that an engine reports inside of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyError {
    /// HTTP status that the error has as its code; `None` if the code is no number.
    pub status: Option<u16>,
    /// Code of the error if it is a word, e.g. `server_error`.
    pub code: Option<Box<str>>,
    /// Type of the error, e.g. `InternalServerError`.
    pub kind: Option<Box<str>>,
    /// Message, at most 512 bytes; empty if there is none.
    pub message: Box<str>,
}

/// Codes that name a failure of the server: of this gateway for a stream that broke off, if the
/// replica is another node, and of the Responses API.
const SERVER_CODES: [&str; 3] = ["stream_cut", "stream_stalled", "server_error"];
/// Types of errors that the server is to blame for.
const SERVER_KINDS: [&str; 7] = [
    "InternalServerError",
    "Internal Server Error",
    "internal_server_error",
    "server_error",
    // Anthropic's, and vLLM's for streams of messages.
    "api_error",
    "overloaded_error",
    "internal_error",
];

impl ReplyError {
    /// Returns true if the server is to blame: by the status, as vLLM and SGLang report it; by a
    /// code that names such a failure; or else by the error's type.
    #[must_use]
    pub fn is_of_server(&self) -> bool {
        match (self.status, self.code.as_deref()) {
            (Some(status), _) => status >= 500,
            (None, Some(code)) => SERVER_CODES.contains(&code),
            (None, None) => self.kind.as_deref().is_some_and(|kind| SERVER_KINDS.contains(&kind)),
        }
    }

    /// Takes the JSON of the code: a status, or a word.
    pub(super) fn take_code(&mut self, json: &[u8]) {
        let text = json.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
        let status = std::str::from_utf8(text.unwrap_or(json)).ok().and_then(|it| it.parse().ok());
        match (status, text) {
            (Some(status), _) => self.status = Some(status),
            (None, Some(_)) => self.code = text_of(json),
            (None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::read_error;
    use super::super::text::MESSAGE_BYTES_MAX;
    use super::*;

    fn read(error: &Value) -> Option<ReplyError> {
        read_error(error.to_string().as_bytes())
    }

    #[test]
    fn the_members_of_an_error_are_read() {
        let error = json!({"message": "it \"broke\"", "type": "T", "param": null, "code": 500});
        let expected = ReplyError {
            status: Some(500),
            code: None,
            kind: Some("T".into()),
            message: "it \"broke\"".into(),
        };
        assert_eq!(read(&error), Some(expected));
        let word = read(&json!({"code": "server_error", "message": "m"})).unwrap();
        assert_eq!((word.status, word.code.as_deref()), (None, Some("server_error")));
        assert_eq!(read(&json!({"code": "503"})).unwrap().status, Some(503));
        assert_eq!(read(&json!({"code": 5.5})), Some(ReplyError::default()));
        assert_eq!(&*read(&json!("text")).unwrap().message, "text");
        assert_eq!(read(&json!({})), Some(ReplyError::default()));
        assert_eq!(&*read(&json!({"a": {"message": "m"}})).unwrap().message, "");
        for none in [json!(null), json!(5), json!(true), json!([{"message": "m"}])] {
            assert_eq!(read(&none), None, "{none}");
        }
    }

    #[test]
    fn the_server_is_to_blame_by_status_or_code_or_type() {
        let check = |error: Value, expected: bool| {
            let read = read(&error).unwrap();
            assert_eq!(read.is_of_server(), expected, "{error}");
        };
        check(json!({"code": 500}), true);
        check(json!({"code": "503"}), true);
        check(json!({"code": 499, "type": "server_error"}), false);
        check(json!({"code": "stream_cut"}), true);
        check(json!({"code": "stream_stalled"}), true);
        check(json!({"code": "server_error"}), true);
        check(json!({"code": "content_filter", "type": "server_error"}), false);
        check(json!({"code": null, "type": "InternalServerError"}), true);
        check(json!({"type": "overloaded_error"}), true);
        check(json!({"type": "internal_error"}), true);
        check(json!({"type": "invalid_request_error"}), false);
        check(json!("some text"), false);
        check(json!({}), false);
    }

    proptest! {
        #[test]
        fn a_message_is_kept_up_to_its_limit(message in "[a-z\"\\\\\u{e9}\u{1f600}\n]{0,600}") {
            let error = read(&json!({"message": message, "code": 500})).unwrap();
            prop_assert!(error.message.len() <= MESSAGE_BYTES_MAX);
            prop_assert!(message.starts_with(&*error.message), "{:?}", error.message);
            if serde_json::to_string(&message).unwrap().len() <= MESSAGE_BYTES_MAX {
                prop_assert_eq!(&*error.message, &message);
            }
            prop_assert_eq!(error.status, Some(500));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let error = read_error(&bytes);
            prop_assert!(error.is_none_or(|error| error.message.len() <= MESSAGE_BYTES_MAX));
        }
    }
}
