//! `GET /v1/models` and `GET /v1/models/{id}`.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Call, Reply, json};

pub(crate) fn list(call: &Call) -> Reply {
    let models: Vec<Value> = call.replica.models.iter().map(|model| card(call, model)).collect();
    Ok(json(StatusCode::OK, &json!({ "object": "list", "data": models })))
}

pub(crate) fn fetch(call: &Call, id: &str) -> Reply {
    call.check_model(id)?;
    Ok(json(StatusCode::OK, &card(call, id)))
}

fn card(call: &Call, model: &str) -> Value {
    json!({
        "id": model,
        "object": "model",
        "created": 0,
        "owned_by": "spillway-emulator",
        "max_model_len": call.replica.driver.config().context_tokens_max,
    })
}
