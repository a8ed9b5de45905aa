//! End of a request as seen by its client: a whole reply, a clear error, or neither.

use std::fmt;

use serde::Serialize;
use serde_json::Value;
use spillway_harness::{AttemptEnd, AttemptError, LoadReply};

use super::plan::FaultKind;

/// End of one request as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    /// A whole, well-formed reply.
    Complete,
    /// The client got a clear error.
    Failed(Failure),
    /// The client got no clear error, or not in time.
    Lost(Loss),
}

/// Clear error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Failure {
    /// Kind of error, for counting.
    pub(crate) kind: String,
    /// True if the client had received part of a good reply.
    pub(crate) is_begun: bool,
    /// True if the gateway's code promises to send the request again: the replica was not reached,
    /// or broke off before its reply.
    pub(crate) is_resendable: bool,
}

/// Kind of loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Loss {
    /// The connection ended before the reply began.
    NoReply,
    /// The reply was not over when the client gave up.
    TooLate,
    /// The reply ended properly by HTTP, but was not complete.
    Truncated,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoReply => "lost: closed without a reply",
            Self::TooLate => "lost: no end in time",
            Self::Truncated => "lost: cut short without a word",
        })
    }
}

/// Decides how a request of this kind ended.
pub(crate) fn judge(kind: FaultKind, end: &AttemptEnd) -> Ending {
    let (reply, error) = match end {
        AttemptEnd::Whole(reply) => (reply, None),
        AttemptEnd::Cut(reply, error) => (reply, Some(error)),
        AttemptEnd::Unsent(error) | AttemptEnd::Nothing(error) => {
            let is_late = *error == AttemptError::TooLate;
            return Ending::Lost(if is_late { Loss::TooLate } else { Loss::NoReply });
        }
    };
    // A head in time does not help a client whose reply does not end.
    if error == Some(&AttemptError::TooLate) {
        return Ending::Lost(Loss::TooLate);
    }
    if reply.status != 200 {
        // The gateway names a code in each of its own errors, so an error without one is a
        // replica's.
        let code = if reply.code.is_empty() { "from the replica" } else { &reply.code };
        let is_resendable = matches!(code, "replica_connect" | "replica_reset");
        return failed(format!("{} {code}", reply.status), false, is_resendable);
    }
    match (kind, error) {
        (FaultKind::Stream, _) => judge_stream(reply, error.is_none()),
        (FaultKind::Unary | FaultKind::Infer, None) if is_whole(kind, &reply.body) => {
            Ending::Complete
        }
        (FaultKind::Unary | FaultKind::Infer, None) => Ending::Lost(Loss::Truncated),
        // A connection that breaks inside a reply is a clear error to any HTTP client.
        _ => failed("broken off".to_owned(), !reply.body.is_empty(), false),
    }
}

fn failed(kind: String, is_begun: bool, is_resendable: bool) -> Ending {
    Ending::Failed(Failure { kind, is_begun, is_resendable })
}

/// Decides how a stream ended: an event with an error makes it fail, `[DONE]` makes it whole.
/// `is_ended` is true if the message ended as HTTP requires.
fn judge_stream(reply: &LoadReply, is_ended: bool) -> Ending {
    let stream = reply.stream();
    match stream.error {
        Some(code) => failed(format!("stream {code}"), true, false),
        None if stream.is_done => Ending::Complete,
        // The end of HTTP without `[DONE]` looks like success, which is worse than a clear break.
        None if is_ended => Ending::Lost(Loss::Truncated),
        None => failed("stream broken off".to_owned(), !reply.body.is_empty(), false),
    }
}

/// Returns true if the body is a complete answer to a request of this kind.
fn is_whole(kind: FaultKind, body: &[u8]) -> bool {
    let field = if kind == FaultKind::Infer { "outputs" } else { "choices" };
    serde_json::from_slice::<Value>(body).is_ok_and(|value| value[field].is_array())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges a reply that ended with `error`; status 0 means no reply.
    fn check(kind: FaultKind, status: u16, body: &str, error: Option<AttemptError>) -> Ending {
        let body = body.as_bytes().to_vec().into();
        let reply = LoadReply { status, body, ..LoadReply::default() };
        let end = match (status, error) {
            (0, error) => AttemptEnd::Nothing(error.unwrap()),
            (_, None) => AttemptEnd::Whole(reply),
            (_, Some(error)) => AttemptEnd::Cut(reply, error),
        };
        judge(kind, &end)
    }

    fn failure(ending: Ending) -> (String, bool, bool) {
        let Ending::Failed(failure) = ending else { panic!("{ending:?}") };
        (failure.kind, failure.is_begun, failure.is_resendable)
    }

    const WHOLE: Option<AttemptError> = None;
    const BROKEN: Option<AttemptError> = Some(AttemptError::TooLong);
    const LATE: Option<AttemptError> = Some(AttemptError::TooLate);

    #[test]
    fn a_whole_reply_is_what_was_asked_for() {
        assert_eq!(check(FaultKind::Unary, 200, r#"{"choices":[]}"#, WHOLE), Ending::Complete);
        assert_eq!(check(FaultKind::Infer, 200, r#"{"outputs":[]}"#, WHOLE), Ending::Complete);
        let stream = "data: {\"a\":1}\n\ndata: [DONE]\n\n";
        assert_eq!(check(FaultKind::Stream, 200, stream, WHOLE), Ending::Complete);
        let says_done = "data: {\"a\":\"[DONE]\"}\n\n";
        assert_eq!(check(FaultKind::Stream, 200, says_done, WHOLE), Ending::Lost(Loss::Truncated));
        // Everything that matters has arrived.
        assert_eq!(check(FaultKind::Stream, 200, stream, BROKEN), Ending::Complete);
    }

    #[test]
    fn a_short_reply_that_looks_whole_is_lost() {
        let truncated = Ending::Lost(Loss::Truncated);
        assert_eq!(check(FaultKind::Unary, 200, r#"{"choi"#, WHOLE), truncated);
        assert_eq!(check(FaultKind::Unary, 200, "{}", WHOLE), truncated);
        assert_eq!(check(FaultKind::Stream, 200, "data: {\"a\":1}\n\n", WHOLE), truncated);
        assert_eq!(check(FaultKind::Stream, 200, "data: [DONE]", WHOLE), truncated);
    }

    #[test]
    fn what_breaks_off_for_all_to_see_is_a_failure() {
        let seen = failure(check(FaultKind::Unary, 200, r#"{"choi"#, BROKEN));
        assert_eq!(seen, ("broken off".to_owned(), true, false));
        let seen = failure(check(FaultKind::Infer, 200, "", BROKEN));
        assert_eq!(seen, ("broken off".to_owned(), false, false));
        let stream = "data: {\"a\":1}\n\ndata: {\"error\":{\"code\":\"stream_cut\"}}\n\n";
        for stream in [stream.to_owned(), format!("data: [DONE]\n\n{stream}")] {
            let seen = failure(check(FaultKind::Stream, 200, &stream, WHOLE));
            assert_eq!(seen, ("stream stream_cut".to_owned(), true, false));
        }
    }

    #[test]
    fn silence_is_loss() {
        assert_eq!(check(FaultKind::Unary, 0, "", BROKEN), Ending::Lost(Loss::NoReply));
        assert_eq!(check(FaultKind::Unary, 0, "", LATE), Ending::Lost(Loss::TooLate));
        let late = check(FaultKind::Stream, 200, "data: 1\n\n", LATE);
        assert_eq!(late, Ending::Lost(Loss::TooLate));
    }

    #[test]
    fn errors_are_told_apart_by_who_made_them() {
        let seen = failure(check(FaultKind::Unary, 500, "{}", WHOLE));
        assert_eq!(seen, ("500 from the replica".to_owned(), false, false));
        let (code, body) = ("replica_reset".to_owned(), "{}".into());
        let reply = LoadReply { status: 502, code, body, ..LoadReply::default() };
        let seen = failure(judge(FaultKind::Unary, &AttemptEnd::Whole(reply)));
        assert_eq!(seen, ("502 replica_reset".to_owned(), false, true));
    }
}
