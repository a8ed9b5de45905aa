//! Errors by which an engine reports that it can serve no request at all.

use serde::Deserialize;

/// State of an engine that can serve nothing until it has been restarted or has recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineTrouble {
    /// A process of the engine has died, or the engine has failed for good.
    Dying,
    /// The engine is being stopped, and refuses new requests.
    Draining,
}

/// Place of a wording in the message. A client can choose a part of some messages, so a wording
/// counts only where no client's text can be.
#[derive(Clone, Copy, Debug)]
enum Wording {
    Begins(&'static str),
    Ends(&'static str),
}

use EngineTrouble::{Draining, Dying};
use Wording::{Begins, Ends};

/// Wordings of engines, with the project whose source has them.
///
/// No such wording is in SGLang, llama.cpp and TEI: SGLang and llama.cpp close their connections
/// when they stop or crash, and TEI reports `unhealthy` to health checks alone. An engine that is
/// still loading (llama.cpp `Loading model`, Triton `Server not ready`), that sleeps, or that is full
/// is in none of these states.
const WORDINGS: [(EngineTrouble, Wording); 17] = [
    // vLLM from 0.6 on (engine V1): the core process has died.
    (Dying, Begins("EngineCore encountered an issue")),
    // vLLM and TensorRT-LLM: the exception's name, where a server in front prints it.
    (Dying, Begins("EngineDeadError")),
    (Dying, Begins("vllm.v1.engine.exceptions.EngineDeadError")),
    // vLLM before (engine V0, with and without a process of its own).
    (Dying, Begins("Background loop has errored already")),
    (Dying, Begins("Background loop is not running")),
    (Dying, Begins("Background loop is stopped")),
    (Dying, Begins("Engine loop has died")),
    (Dying, Begins("Engine loop is not running")),
    // TGI: the router cannot reach the shards of the model.
    (
        Dying,
        Begins("Request failed during generation: Could not connect to Text Generation server"),
    ),
    // Triton, Python backend: the process of the model has died.
    (Dying, Ends("Stub process is not healthy.")),
    // MLServer: a worker process has died, with the requests it had.
    (Dying, Begins("Worker process stopped unexpectedly")),
    // LMDeploy: the loop of the engine has stopped.
    (Dying, Begins("The inference engine is unavailable")),
    // CPython's thread pools. vLLM with `--shutdown-timeout`: it finishes what runs, and its pool
    // for new prompts is closed.
    (Draining, Begins("cannot schedule new futures after shutdown")),
    (Draining, Begins("cannot schedule new futures after interpreter shutdown")),
    // vLLM: calls of the core while it is being stopped.
    (Draining, Begins("Server shutting down")),
    // vLLM with elastic expert parallelism: all requests are refused while it changes its size.
    (Draining, Begins("The model is currently scaling")),
    // Triton: the id of the request stands before it.
    (Draining, Ends("scheduler for model has stopped accepting new inference requests")),
];

/// Longest body in bytes that is looked at. Errors are shorter.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Returns the trouble that an engine reports by the message of an error. `status` is that of the
/// reply; for an error event it is the error's own, or 500 if the event has none. Errors that are
/// not the server's are never such a report.
#[must_use]
pub fn engine_trouble(status: u16, message: &str) -> Option<EngineTrouble> {
    if status < 500 {
        return None;
    }
    let message = message.trim();
    let is_in = |wording: &Wording| match wording {
        Begins(text) => message.starts_with(text),
        Ends(text) => message.ends_with(text),
    };
    WORDINGS.iter().find(|(_, wording)| is_in(wording)).map(|(trouble, _)| *trouble)
}

/// Returns the trouble that an engine reports by a whole reply of this status: by the message of its
/// `error`, by `detail` or `message`, or by plain text. Only the first 64 KiB of a body are read.
#[must_use]
pub fn engine_trouble_in(status: u16, body: &[u8]) -> Option<EngineTrouble> {
    if status < 500 {
        return None;
    }
    let body = &body[..body.len().min(BODY_BYTES_MAX)];
    let text = std::str::from_utf8(body).ok()?.trim();
    if !text.starts_with(['{', '"']) {
        return engine_trouble(status, text);
    }
    let Ok(body) = serde_json::from_str::<ErrorBody>(text) else { return None };
    body.messages().into_iter().flatten().find_map(|message| engine_trouble(status, &message))
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ErrorBody {
    Text(String),
    Object(ErrorObject),
}

#[derive(Deserialize)]
struct ErrorObject {
    error: Option<serde_json::Value>,
    detail: Option<serde_json::Value>,
    message: Option<serde_json::Value>,
}

impl ErrorBody {
    fn messages(self) -> [Option<String>; 3] {
        match self {
            Self::Text(text) => [Some(text), None, None],
            Self::Object(ErrorObject { error, detail, message }) => {
                [error, detail, message].map(|value| value.and_then(message_of))
            }
        }
    }
}

/// Returns the message of an error that is a text, or an object with one.
fn message_of(value: serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) => Some(text),
        serde_json::Value::Object(mut members) => match members.remove("message")? {
            serde_json::Value::String(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(message: &str, expected: Option<EngineTrouble>) {
        for status in [500, 503, 599] {
            assert_eq!(engine_trouble(status, message), expected, "{message}");
            for body in [
                json!({"error": {"message": message, "code": status}}).to_string(),
                json!({"error": message}).to_string(),
                json!({"detail": message}).to_string(),
                json!({"object": "error", "message": message}).to_string(),
                json!(message).to_string(),
                message.to_owned(),
            ] {
                assert_eq!(engine_trouble_in(status, body.as_bytes()), expected, "{body}");
            }
        }
        for status in [200, 400, 404, 424, 429, 499] {
            assert_eq!(engine_trouble(status, message), None, "{status} {message}");
            assert_eq!(engine_trouble_in(status, message.as_bytes()), None, "{status} {message}");
        }
    }

    #[test]
    fn a_dying_engine_is_known_by_its_words() {
        for message in [
            "EngineCore encountered an issue. See stack trace (above) for the root cause.",
            "EngineCore encountered an issue",
            "EngineDeadError: engine is dead",
            "vllm.v1.engine.exceptions.EngineDeadError: x",
            "Background loop has errored already.",
            "Background loop is not running. If it was running, inspect the output",
            "Background loop is stopped.",
            "Engine loop has died",
            "Engine loop is not running. Inspect the stacktrace to find the original error",
            "Request failed during generation: Could not connect to Text Generation server: x",
            "Failed to process the request(s) for model instance 'm', message: Stub process is not healthy.",
            "Worker process stopped unexpectedly with exit code -9.",
            "The inference engine is unavailable.",
        ] {
            check(message, Some(Dying));
        }
    }

    #[test]
    fn a_draining_engine_is_known_by_its_words() {
        for message in [
            "cannot schedule new futures after shutdown",
            "cannot schedule new futures after interpreter shutdown",
            "Server shutting down",
            "The model is currently scaling. Please try again later.",
            "[request id: 5] Server is stopping, scheduler for model has stopped accepting new \
             inference requests",
        ] {
            check(message, Some(Draining));
        }
    }

    #[test]
    fn errors_of_single_requests_are_no_trouble_of_the_engine() {
        for message in [
            "",
            "Internal server error",
            "list index out of range",
            "CUDA out of memory",
            "Loading model",
            "Server not ready",
            "Request queue full.",
            "Model is overloaded",
            "Engine is sleeping; call POST /wakeup before inference",
            "Generation aborted",
            "Request failed during generation: Server error: x",
        ] {
            check(message, None);
        }
    }

    #[test]
    fn a_text_of_the_client_in_a_message_is_no_report() {
        for message in [
            "Invalid template: EngineCore encountered an issue",
            "Unknown field 'cannot schedule new futures after shutdown'",
            "[request id: scheduler for model has stopped accepting new inference requests] x failed",
            "Stub process is not healthy. is no model",
        ] {
            check(message, None);
        }
        let nested = json!({"error": {"message": "x", "input": {"message": "Engine loop has died"}},
            "input": "Engine loop has died", "detail": [{"message": "Engine loop has died"}]});
        assert_eq!(engine_trouble_in(500, nested.to_string().as_bytes()), None);
    }

    #[test]
    fn a_body_that_cannot_be_read_is_no_report() {
        for body in
            ["{", "{\"error\":\"Engine loop has died\"", "[\"Engine loop has died\"]", "\"", "{}"]
        {
            assert_eq!(engine_trouble_in(500, body.as_bytes()), None, "{body}");
        }
        let long = json!({"error": "Engine loop has died", "x": "x".repeat(BODY_BYTES_MAX)});
        assert_eq!(engine_trouble_in(500, long.to_string().as_bytes()), None);
        assert_eq!(engine_trouble_in(500, b"Engine loop has died\xff"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..80), status in any::<u16>()) {
            let trouble = engine_trouble_in(status, &body);
            prop_assert!(trouble.is_none() || status >= 500);
        }
    }
}
