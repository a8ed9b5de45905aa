//! Endpoints of `/v1/responses`: create, fetch, follow, cancel, delete.

use std::sync::Arc;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::chat::call_ids;
use super::draft::{Draft, fields_from};
use super::generate::{self, Started};
use super::response_items::{OutputIds, input_items as items_of, last_said, push_items};
use super::response_store::{StoreState, StoredResponse};
use super::responses_stream::ResponseEvents;
use super::sampling::{Sampling, alternatives};
use super::shape::Shape;
use super::tools::Tools;
use super::{ApiCall, ApiError, Reply, background, event_stream, fields_of, json, with_type};
use crate::body::ReplyBody;
use crate::text::{Conversation, opaque_id, token_count};

/// Path prefix of single responses.
pub(crate) const BY_ID: &str = "/v1/responses/";
/// Number of items in one reply: default and limit of OpenAI's API.
const ITEMS: usize = 20;
const ITEMS_MAX: usize = 100;

/// Fields of a request that are read by name. The others are read from the body itself.
#[derive(Debug, Deserialize)]
struct ResponsesRequest {
    model: String,
    input: Value,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    store: Option<bool>,
    background: Option<bool>,
    #[serde(flatten)]
    sampling: Sampling,
}

/// Handles `POST /v1/responses`.
pub(crate) async fn answer(call: &ApiCall) -> Reply {
    let body: Value = call.json()?;
    let request: ResponsesRequest = fields_of(&body)?;
    call.check_model(&request.model)?;
    request.sampling.check(false)?;
    let (keeps, is_background) =
        (request.store.unwrap_or(true), request.background.unwrap_or(false));
    // A response that is not stored could never be fetched.
    if is_background && !keeps {
        let message = "background can only be used when `store` is true";
        return Err(ApiError::invalid(message, Some("background")));
    }
    let Read { prompt, items } = read(call, &request, &body)?;
    let form = Shape::of(&body["text"]["format"])?;
    let (asked, was_user) = last_said(&items)?;
    let shape = Tools::of(&body)?.calls(&asked, was_user).unwrap_or(form);
    let started =
        generate::start_all(call, std::slice::from_ref(&prompt), &request.sampling, &shape)?;
    let draft = Arc::new(draft_of(call, &body, &started, prompt, items)?);

    if is_background {
        let tracks = started.tracks.into_iter();
        tracks.for_each(|track| background::begin(&call.replica, &draft, track.generation));
        if request.sampling.is_stream() {
            return Ok(event_stream(background::follow(call, &draft.id, 0)?));
        }
        return Ok(json(StatusCode::OK, &draft.body("queued")));
    }
    let store = keeps.then(|| Arc::clone(&call.replica));
    if request.sampling.is_stream() {
        return Ok(event_stream(started.into_stream(ResponseEvents::new(draft, store))));
    }
    let (answers, usage) = started.finished(call).await?;
    let cached_tokens = usage.cached_tokens;
    let answer = answers.first();
    if let Some(replica) = store
        && answer.is_some_and(|answer| answer.early_end.is_none())
    {
        let stored = StoredResponse::new(Arc::clone(&draft), StoreState::Done { cached_tokens });
        replica.responses().insert(stored);
    }
    let body = answer.map_or_else(|| draft.empty(), |answer| draft.ended(answer, cached_tokens));
    Ok(with_type(ReplyBody::whole(draft.text(body)), "application/json"))
}

/// Handles `POST /v1/responses/input_tokens`.
pub(crate) fn count(call: &ApiCall) -> Reply {
    let body: Value = call.json()?;
    let request: ResponsesRequest = fields_of(&body)?;
    call.check_model(&request.model)?;
    let Read { prompt, .. } = read(call, &request, &body)?;
    let body = json!({ "object": "response.input_tokens", "input_tokens": token_count(&prompt) });
    Ok(json(StatusCode::OK, &body))
}

/// Handles `GET /v1/responses/{id}`, also as a stream of all its events.
pub(crate) fn fetch(call: &ApiCall, id: &str) -> Reply {
    if call.parameter("stream") == Some("true") {
        let after = call.parameter("starting_after").map(str::parse::<u64>).transpose();
        let after = after.map_err(|_| {
            ApiError::invalid("starting_after must be a number", Some("starting_after"))
        })?;
        let first = after.map_or(0, |after| after.saturating_add(1));
        return Ok(event_stream(background::follow(call, id, first)?));
    }
    let responses = call.replica.responses();
    let stored = responses.find(id).ok_or_else(|| ApiError::unknown_response(id))?;
    Ok(json(StatusCode::OK, &stored.body()))
}

/// Handles `DELETE /v1/responses/{id}`.
pub(crate) fn delete(call: &ApiCall, id: &str) -> Reply {
    if !call.replica.responses().remove(id) {
        return Err(ApiError::unknown_response(id));
    }
    Ok(json(StatusCode::OK, &json!({ "id": id, "object": "response", "deleted": true })))
}

/// Handles `POST /v1/responses/{id}/cancel`. A second call changes nothing, as in OpenAI's API.
pub(crate) fn cancel(call: &ApiCall, id: &str) -> Reply {
    let mut responses = call.replica.responses();
    let stored = responses.find(id).ok_or_else(|| ApiError::unknown_response(id))?;
    // OpenAI refuses this too.
    if !stored.draft.is_background {
        return Err(ApiError::invalid(
            "Cannot cancel a synchronous response.",
            Some("response_id"),
        ));
    }
    responses.cancel(id);
    let body = responses.find(id).map(StoredResponse::body);
    Ok(json(StatusCode::OK, &body))
}

/// Handles `GET /v1/responses/{id}/input_items`: the newest item first unless the client asks
/// otherwise.
pub(crate) fn input_items(call: &ApiCall, id: &str) -> Reply {
    let responses = call.replica.responses();
    let stored = responses.find(id).ok_or_else(|| ApiError::unknown_response(id))?;
    let limit = call.parameter("limit").map_or(Ok(ITEMS), str::parse);
    let limit = limit.ok().filter(|limit| (1..=ITEMS_MAX).contains(limit));
    let limit = limit.ok_or_else(|| ApiError::invalid("limit must be 1 to 100", Some("limit")))?;
    let mut items: Vec<&Value> = stored.draft.items.iter().collect();
    if call.parameter("order") != Some("asc") {
        items.reverse();
    }
    if let Some(after) = call.parameter("after") {
        let at = items.iter().position(|item| item["id"] == after);
        items.drain(..at.map_or(0, |at| at + 1));
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    let id_of = |item: Option<&&Value>| item.map(|item| item["id"].clone());
    let body = json!({
        "object": "list",
        "data": items,
        "first_id": id_of(items.first()),
        "last_id": id_of(items.last()),
        "has_more": has_more,
    });
    Ok(json(StatusCode::OK, &body))
}

/// Input of a request: the prompt for the model, and the items it came from.
struct Read {
    prompt: Vec<u32>,
    items: Vec<Value>,
}

fn read(call: &ApiCall, request: &ResponsesRequest, body: &Value) -> Result<Read, ApiError> {
    let mut conversation = previous(call, request.previous_response_id.as_deref())?;
    if let Some(tools) = Tools::prompt(body) {
        conversation.push("tools", &tools);
    }
    if let Some(instructions) = &request.instructions {
        conversation.push("system", instructions);
    }
    let items = items_of(&request.input, "msg")?;
    push_items(&mut conversation, &items)?;
    Ok(Read { prompt: conversation.into_prompt(), items })
}

fn previous(call: &ApiCall, id: Option<&str>) -> Result<Conversation, ApiError> {
    let Some(id) = id else { return Ok(Conversation::default()) };
    let responses = call.replica.responses();
    let stored = responses.find(id).ok_or_else(|| ApiError::unknown_response(id))?;
    // Its answer would be missing from the conversation.
    if !matches!(stored.state, StoreState::Done { .. }) {
        let message = format!("Response with id '{id}' is not complete.");
        return Err(ApiError::invalid(message, Some("previous_response_id")));
    }
    let draft = &stored.draft;
    Ok(Conversation::answered(draft.prompt.clone(), draft.answer.raw()))
}

/// Makes the draft of a response whose generation has started.
fn draft_of(
    call: &ApiCall,
    body: &Value,
    started: &Started,
    prompt: Vec<u32>,
    items: Vec<Value>,
) -> Result<Draft, ApiError> {
    let wanted = body["include"].as_array().into_iter().flatten();
    let tells = |wanted: &Value| wanted == "message.output_text.logprobs";
    let top = alternatives(body, "top_logprobs")?;
    // As in OpenAI's API, they have to be asked for by name; `top_logprobs` alone shows none.
    let logprobs = wanted.clone().any(tells).then_some(top.unwrap_or(0));
    let track = started.tracks.first().ok_or_else(|| ApiError::internal("no answer"))?;
    let request = track.generation.id();
    let answer = track.answer.clone();
    let instance = call.replica.instance;
    let output = OutputIds {
        message: opaque_id("msg_", instance, request),
        calls: call_ids(call, request, answer.calls.names.len()),
    };
    let bytes = call.body.len() + prompt.len() * 4 + answer.raw().len() * 2;
    Ok(Draft {
        id: opaque_id("resp_", instance, request),
        output,
        request,
        answer,
        is_background: body["background"] == json!(true),
        logprobs,
        usage_first: call.replica.options().usage_first,
        bytes,
        prompt,
        items,
        fields: fields_from(body),
    })
}
