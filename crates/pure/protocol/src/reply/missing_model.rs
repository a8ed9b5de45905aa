//! Errors by which a model server says that it does not have the model of a request.

use serde::Deserialize;
use serde_json::Value;

/// Longest body in bytes that is looked at. Errors are shorter.
const BODY_BYTES_MAX: usize = 16 << 10;

/// Codes and types of errors that have this one meaning: OpenAI's and those of servers after it, and
/// TorchServe's.
const CODES: [&str; 2] = ["model_not_found", "ModelNotFoundException"];

/// Wordings of servers, before and behind the name of the model. The text may go on behind them. A
/// wording that names a version is none of them: the server has the model.
const WORDINGS: [(&str, &str); 14] = [
    // vLLM, and servers after it; OpenAI adds "or you do not have access to it".
    ("The model `", "` does not exist"),
    // LMDeploy.
    ("The model '", "' does not exist"),
    // Ollama since 2024, and the router of llama.cpp.
    ("model '", "' not found"),
    // Ollama, at its paths of OpenAI's API.
    ("model \"", "\" not found"),
    // Triton, over HTTP and gRPC.
    ("Request for unknown model: '", "' is not found"),
    ("Request for unknown model: '", "' has no available versions"),
    // MLServer, over HTTP and gRPC.
    ("Model ", " not found"),
    // KServe's own servers.
    ("Model with name ", " does not exist"),
    // TorchServe, Dynamo.
    ("Model not found: ", ""),
    // TensorFlow Serving: inference, and the state of a model.
    ("Servable not found for request: Latest(", ")"),
    ("Could not find any versions of model ", ""),
    // SGLang, whose models with an adapter are called `base:adapter`.
    ("Got LoRA adapter that has never been loaded: ", ""),
    ("The following requested LoRA adapters are not loaded: ", ""),
    // Xinference.
    ("Model not found in the model list, uid: ", ""),
];

/// Returns true if a server says by a reply of this status that it does not have `model`. Errors about
/// a path, a file, a stored response or a version of the model are no such reply.
#[must_use]
pub fn lacks_model(status: u16, body: &[u8], model: &str) -> bool {
    if !matches!(status, 400 | 404) || body.len() > BODY_BYTES_MAX {
        return false;
    }
    let Ok(body) = serde_json::from_slice::<Body>(body) else { return false };
    body.errors().any(|error| error.is_about(model))
}

/// Returns true if a server says by the message of an error that it does not have `model`.
#[must_use]
pub fn lacks_model_by(message: &str, model: &str) -> bool {
    let message = message.trim();
    // SGLang names the adapter alone.
    let adapter = model.rsplit_once(':').map(|(_, adapter)| adapter);
    [Some(model), adapter].into_iter().flatten().filter(|name| !name.is_empty()).any(|name| {
        WORDINGS.iter().any(|(before, behind)| {
            let rest = message.strip_prefix(before).and_then(|rest| rest.strip_prefix(name));
            rest.is_some_and(|rest| rest.starts_with(behind) && ends_name(&rest[behind.len()..]))
        })
    })
}

/// Returns true if the name of a model is over here: `rest` does not continue it.
fn ends_name(rest: &str) -> bool {
    rest.chars().next().is_none_or(|next| !next.is_alphanumeric() && !"-_/@:".contains(next))
}

/// Body of an error: flat, or with an object or a text as `error` or, as of FastAPI, `detail`.
#[derive(Deserialize)]
struct Body {
    error: Option<Value>,
    detail: Option<Value>,
    #[serde(flatten)]
    flat: ErrorObject,
}

#[derive(Default, Deserialize)]
struct ErrorObject {
    message: Option<Value>,
    code: Option<Value>,
    #[serde(rename = "type")]
    kind: Option<Value>,
}

impl Body {
    fn errors(self) -> impl Iterator<Item = ErrorObject> {
        let nested = [self.error, self.detail].into_iter().flatten().map(|error| match error {
            Value::Object(_) => serde_json::from_value(error).unwrap_or_default(),
            text => ErrorObject { message: Some(text), ..ErrorObject::default() },
        });
        std::iter::once(self.flat).chain(nested)
    }
}

impl ErrorObject {
    fn is_about(&self, model: &str) -> bool {
        let text =
            |value: &Option<Value>| value.as_ref().and_then(Value::as_str).map(str::to_owned);
        let codes = [text(&self.code), text(&self.kind)];
        let message = text(&self.message).unwrap_or_default();
        let has_code = codes.iter().flatten().any(|code| CODES.contains(&code.as_str()));
        // Anthropic's error for any missing thing says in its message what is missing.
        let is_of_anthropic = codes[1].as_deref() == Some("not_found_error")
            && message.strip_prefix("model: ") == Some(model);
        has_code || is_of_anthropic || lacks_model_by(&message, model)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(status: u16, body: &Value, expected: bool) {
        let text = body.to_string();
        assert_eq!(
            lacks_model(status, text.as_bytes(), "base:lora-a"),
            expected,
            "{status} {text}"
        );
    }

    #[test]
    fn servers_say_in_their_own_words_that_they_lack_a_model() {
        let name = "base:lora-a";
        for message in [
            "The model `base:lora-a` does not exist.",
            "The model `base:lora-a` does not exist or you do not have access to it.",
            "The model 'base:lora-a' does not exist.",
            "model 'base:lora-a' not found",
            "model \"base:lora-a\" not found, try pulling it first",
            "Request for unknown model: 'base:lora-a' is not found",
            "Request for unknown model: 'base:lora-a' has no available versions",
            "Model base:lora-a not found",
            "Model with name base:lora-a does not exist.",
            "Model not found: base:lora-a",
            "Servable not found for request: Latest(base:lora-a)",
            "Could not find any versions of model base:lora-a",
            "Got LoRA adapter that has never been loaded: lora-a",
            "The following requested LoRA adapters are not loaded: lora-a\nLoaded adapters: dict_keys([]).",
            "Model not found in the model list, uid: base:lora-a",
        ] {
            for status in [400, 404] {
                check(status, &json!({"error": {"message": message, "code": status}}), true);
                check(status, &json!({"error": message}), true);
                check(status, &json!({"detail": message}), true);
                check(status, &json!({"object": "error", "message": message, "code": 404}), true);
            }
            for status in [200, 401, 403, 409, 422, 500, 503] {
                check(status, &json!({"error": message}), false);
            }
            let other = message.replace("lora-a", "lora-ab");
            check(404, &json!({ "error": other }), false);
        }
        let code = json!({"error": {"message": "no", "type": "invalid_request_error", "code": "model_not_found"}});
        check(404, &code, true);
        check(404, &json!({"code": 404, "type": "ModelNotFoundException", "message": "x"}), true);
        let anthropic = |message: &str| json!({"type": "error", "error": {"type": "not_found_error", "message": message}});
        check(404, &anthropic(&format!("model: {name}")), true);
        check(404, &anthropic("message batch: x"), false);
    }

    #[test]
    fn other_errors_are_no_such_reply() {
        for body in [
            json!({"detail": "Not Found"}),
            json!({"error": {"message": "No such File object: file-1", "code": "not_found"}}),
            json!({"error": {"message": "Response with id 'resp_1' not found.", "code": 404}}),
            json!({"error": "Request for unknown model: 'base:lora-a' version 3 is not found"}),
            json!({"error": "Servable not found for request: Specific(base:lora-a, 3)"}),
            json!({"error": {"message": "The model `other` does not exist."}}),
            json!({"error": {"message": "I said: The model `base:lora-a` does not exist."}}),
            json!({"error": {"input": "The model `base:lora-a` does not exist."}}),
            json!({"detail": [{"msg": "The model `base:lora-a` does not exist."}]}),
            json!([]),
            json!("The model `base:lora-a` does not exist."),
            json!(7),
        ] {
            check(404, &body, false);
            check(400, &body, false);
        }
        let long =
            json!({"error": "model 'm' not found", "x": "x".repeat(BODY_BYTES_MAX)}).to_string();
        assert!(!lacks_model(404, long.as_bytes(), "m"));
        assert!(!lacks_model(404, br#"{"error":"model '' not found"}"#, ""));
        assert!(!lacks_model(404, b"{", "m") && !lacks_model(404, b"", "m"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            body in prop::collection::vec(any::<u8>(), 0..80),
            status in any::<u16>(),
            model in ".{0,8}",
        ) {
            let lacks = lacks_model(status, &body, &model);
            prop_assert!(!lacks || matches!(status, 400 | 404));
        }
    }
}
