//! `GET /v1/models` and `GET /v1/models/{id}`, with the fields of vLLM.

use http::StatusCode;
use serde_json::{Value, json};

use super::{ApiCall, Reply, json};
use crate::text::{hash_tokens, tokens_of};

pub(crate) fn list(call: &ApiCall) -> Reply {
    let models: Vec<Value> = call.replica.models.iter().map(|model| card(call, model)).collect();
    Ok(json(StatusCode::OK, &json!({ "object": "list", "data": models })))
}

pub(crate) fn fetch(call: &ApiCall, id: &str) -> Reply {
    call.check_model(id)?;
    Ok(json(StatusCode::OK, &card(call, id)))
}

fn card(call: &ApiCall, model: &str) -> Value {
    json!({
        "id": model,
        "object": "model",
        "created": 0,
        "owned_by": "vllm",
        "root": model,
        "parent": null,
        "max_model_len": call.replica.driver.config().context_tokens_max,
        "permission": [{
            "id": format!("modelperm-{:016x}", hash_tokens(&tokens_of(model))),
            "object": "model_permission",
            "created": 0,
            "allow_create_engine": false,
            "allow_sampling": true,
            "allow_logprobs": true,
            "allow_search_indices": false,
            "allow_view": true,
            "allow_fine_tuning": false,
            "organization": "*",
            "group": null,
            "is_blocking": false,
        }],
    })
}
