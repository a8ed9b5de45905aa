//! Endpoints `POST /tokenize` and `POST /detokenize`, in vLLM's form.

use http::StatusCode;
use serde_json::{Value, json};

use super::chat::conversation_of;
use super::{ApiCall, ApiError, Reply, json};
use crate::text::{detokenize, tokens_of};

/// Returns the tokens of a text, or of a conversation as a chat completion would read it.
pub(crate) fn tokenize(call: &ApiCall) -> Reply {
    let body: Value = call.json()?;
    check_model(call, &body)?;
    let tokens = match &body["prompt"] {
        Value::String(text) => tokens_of(text),
        Value::Null => {
            let conversation = conversation_of(&body)?;
            match body["add_generation_prompt"].as_bool() {
                Some(false) => conversation.into_tokens(),
                _ => conversation.into_prompt(),
            }
        }
        _ => return Err(ApiError::invalid("prompt must be a text", Some("prompt"))),
    };
    let texts = || tokens.iter().map(|token| detokenize(&[*token])).collect::<Vec<String>>();
    let texts = (body["return_token_strs"] == json!(true)).then(texts);
    let reply = json!({
        "count": tokens.len(),
        "max_model_len": call.replica.driver.config().context_tokens_max,
        "tokens": tokens,
        "token_strs": texts,
    });
    Ok(json(StatusCode::OK, &reply))
}

/// Returns the text of tokens.
pub(crate) fn detokenize_all(call: &ApiCall) -> Reply {
    let body: Value = call.json()?;
    check_model(call, &body)?;
    let tokens: Vec<u32> = serde_json::from_value(body["tokens"].clone())
        .map_err(|_| ApiError::invalid("tokens must be a list of tokens", Some("tokens")))?;
    Ok(json(StatusCode::OK, &json!({ "prompt": detokenize(&tokens) })))
}

/// Checks the model's name, which may be left out.
fn check_model(call: &ApiCall, body: &Value) -> Result<(), ApiError> {
    body["model"].as_str().map_or(Ok(()), |model| call.check_model(model))
}
