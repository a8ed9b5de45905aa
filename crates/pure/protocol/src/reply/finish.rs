//! Reasons why a reply ended, as the engine gives them.

/// End of a reply's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finish {
    /// The model or a limit of the request ended the content.
    Normal,
    /// The engine gave the request up, e.g. because it is being stopped.
    Aborted,
}

/// Meaning of a value that gives a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinishWord {
    /// No reason yet.
    Open,
    /// The content has ended.
    Ended(Finish),
    /// The engine failed at this request.
    Failed,
}

impl FinishWord {
    /// Reads the JSON of `finish_reason` or `stop_reason`. SGLang's own API gives an object with a
    /// `type`.
    pub(super) fn of_reason(json: &[u8]) -> Self {
        let word = match json.first() {
            Some(b'"') => json,
            Some(b'{') => match type_of(json) {
                Some(word) => word,
                None => return Self::Ended(Finish::Normal),
            },
            _ => return Self::Open,
        };
        match word {
            b"\"\"" => Self::Open,
            // vLLM and SGLang, for requests that run while the engine stops.
            b"\"abort\"" => Self::Ended(Finish::Aborted),
            // vLLM answers such a request with an error; its name for the reason is this one.
            b"\"error\"" => Self::Failed,
            _ => Self::Ended(Finish::Normal),
        }
    }

    /// Reads the JSON of a response's `status`.
    pub(super) fn of_status(json: &[u8]) -> Self {
        match json {
            b"\"completed\"" | b"\"incomplete\"" => Self::Ended(Finish::Normal),
            b"\"failed\"" => Self::Failed,
            // vLLM, for requests that run while the engine stops.
            b"\"cancelled\"" => Self::Ended(Finish::Aborted),
            _ => Self::Open,
        }
    }
}

/// Returns the `type` of an object, as JSON.
fn type_of(json: &[u8]) -> Option<&[u8]> {
    #[derive(serde::Deserialize)]
    struct Reason<'j> {
        #[serde(borrow, rename = "type")]
        kind: Option<&'j serde_json::value::RawValue>,
    }
    let reason: Reason<'_> = serde_json::from_slice(json).ok()?;
    Some(reason.kind?.get().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NORMAL: FinishWord = FinishWord::Ended(Finish::Normal);
    const ABORTED: FinishWord = FinishWord::Ended(Finish::Aborted);

    #[test]
    fn reasons_are_normal_unless_they_say_otherwise() {
        let check = |json: &str, expected: FinishWord| {
            assert_eq!(FinishWord::of_reason(json.as_bytes()), expected, "{json}");
        };
        for word in ["stop", "length", "tool_calls", "end_turn", "eos_token", "Abort", "new"] {
            check(&format!("\"{word}\""), NORMAL);
        }
        check("\"abort\"", ABORTED);
        check("\"error\"", FinishWord::Failed);
        for open in ["null", "\"\"", "", "5", "[]", "false"] {
            check(open, FinishWord::Open);
        }
        check(r#"{"type":"abort","message":"x"}"#, ABORTED);
        check(r#"{"message":"abort","type":"stop"}"#, NORMAL);
        check(r#"{"matched":2}"#, NORMAL);
        check(r#"{"type":"abort""#, NORMAL);
    }

    #[test]
    fn a_status_is_an_end_once_the_response_is_over() {
        let check = |json: &str, expected: FinishWord| {
            assert_eq!(FinishWord::of_status(json.as_bytes()), expected, "{json}");
        };
        check("\"completed\"", NORMAL);
        check("\"incomplete\"", NORMAL);
        check("\"cancelled\"", ABORTED);
        check("\"failed\"", FinishWord::Failed);
        for open in ["\"queued\"", "\"in_progress\"", "null", "200", "\"ok\""] {
            check(open, FinishWord::Open);
        }
    }

    #[test]
    fn an_abort_outweighs_a_normal_end() {
        assert_eq!(Finish::Normal.max(Finish::Aborted), Finish::Aborted);
    }
}
