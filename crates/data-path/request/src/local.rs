//! Endpoints that the node answers itself.

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use spillway_front::access::Grant;
use spillway_protocol::{
    Echo, Endpoint, ErrorKind, GatewayError, RETRY_DELAY, decode_name, model_card, model_list,
};
use spillway_route::ShedReason;
use spillway_view::View;

use crate::gateway::{Gateway, RoutingState};
use crate::methods::check_method;

/// Answer of a local endpoint, and true for `is_health` if it is a health check.
#[derive(Debug)]
pub struct LocalAnswer {
    /// Reply.
    pub response: Response<Bytes>,
    /// True for a health check, which leaves no outcome.
    pub is_health: bool,
}

/// Answers an endpoint that needs no replica; `None` for all others.
pub fn local_answer(
    gateway: &Gateway,
    view: &View,
    grant: &Grant,
    method: &Method,
    endpoint: Endpoint<'_>,
) -> Option<Result<LocalAnswer, GatewayError>> {
    let is_ready = gateway.is_ready_with(view);
    let (status, body, is_health) = match endpoint {
        Endpoint::Livez | Endpoint::V2Live => (StatusCode::OK, Bytes::from_static(b"{}"), true),
        Endpoint::Readyz | Endpoint::V2Ready if is_ready => {
            (StatusCode::OK, Bytes::from_static(b"{}"), true)
        }
        Endpoint::Readyz | Endpoint::V2Ready => {
            (StatusCode::SERVICE_UNAVAILABLE, Bytes::from_static(b"{}"), true)
        }
        Endpoint::Steering => {
            let (status, body) = gateway.switches.steering_answer();
            (status, body, true)
        }
        Endpoint::V2Server => (StatusCode::OK, server_metadata(), false),
        Endpoint::ModelList => {
            let models = usable(view, grant).map(|model| view.card(model));
            (StatusCode::OK, model_list(models, gateway.started_s()), false)
        }
        Endpoint::ModelById { model } => match known_model(&gateway.routing, view, grant, model) {
            Ok(model) => {
                (StatusCode::OK, model_card(view.card(&model), gateway.started_s()), false)
            }
            Err(error) => return Some(Err(error)),
        },
        _ => return None,
    };
    if let Err(error) = check_method(endpoint, method) {
        return Some(Err(error));
    }
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Some(Ok(LocalAnswer { response, is_health }))
}

/// Returns the error for a model that is unknown, or that the client may not ask for: no answer
/// distinguishes the two. A node that has just started does not know all models of other nodes yet:
/// it asks the client to retry.
pub fn unknown_model(
    routing: &RoutingState,
    view: &View,
    grant: &Grant,
    name: &str,
) -> GatewayError {
    // The request's view may be older than the news that all models are known; then the present
    // view has the model.
    let is_new = || {
        let model = name.into();
        let is_for_client = grant.allows_name(name, |name| view.names().behind(name));
        is_for_client && !view.is_known(&model) && routing.view().is_known(&model)
    };
    if !routing.regions().knows_models || is_new() {
        let name = Echo(name);
        let message = format!(
            "the model {name:?} is not known yet: this node has just started and is still learning \
             what other nodes serve"
        );
        return not_known_yet(message).with_param("model");
    }
    if let Some(replica) = view.unread().first() {
        let name = Echo(name);
        let message = format!(
            "the model {name:?} is not known yet: the replica {replica} could not be asked so far which \
             models it serves"
        );
        return not_known_yet(message).with_param("model");
    }
    let name = Echo(name);
    let fault = match grant.models.is_all() {
        true => "does not exist",
        false => "does not exist, or is not for this key",
    };
    let message = match named_here(view, grant) {
        None => format!("the model {name:?} {fault}: no model is served here"),
        Some(names) => format!("the model {name:?} {fault}; served here: {names}"),
    };
    GatewayError::new(ErrorKind::ModelNotFound, message).with_param("model")
}

/// Returns the first names that a client may ask for, for a message; `None` if there are none.
pub fn named_here(view: &View, grant: &Grant) -> Option<String> {
    const SHOWN_MAX: usize = 20;
    // One more than is shown, to know if there are more.
    let names: Vec<&str> = usable(view, grant).take(SHOWN_MAX + 1).collect();
    let (shown, more) = match names.get(..SHOWN_MAX) {
        Some(first) if names.len() > SHOWN_MAX => (first, ", …"),
        _ => (&names[..], ""),
    };
    (!shown.is_empty()).then(|| shown.join(", ") + more)
}

/// Returns the error for a request that a new node can neither refuse nor serve yet.
pub fn not_known_yet(message: impl Into<String>) -> GatewayError {
    let error = GatewayError::new(ErrorKind::NoReplica, message).with_retry_after(RETRY_DELAY);
    error.with_shed(ShedReason::NobodyInReach.name())
}

/// Returns the names that a client may ask for.
fn usable<'v>(view: &'v View, grant: &'v Grant) -> impl Iterator<Item = &'v str> {
    let models = view.models().iter().map(|model| model.as_str());
    models.filter(|model| {
        grant.allows_name(model, |name| view.names().behind(name)) && view.is_asked_for(model)
    })
}

/// Returns true if clients may ask for this name, encoded as in a path.
pub fn is_listed(view: &View, encoded: &str) -> bool {
    view.is_asked_for(&decode_name(encoded).unwrap_or_default())
}

fn known_model(
    routing: &RoutingState,
    view: &View,
    grant: &Grant,
    encoded: &str,
) -> Result<String, GatewayError> {
    // A badly encoded name names no model, like the empty name.
    let name = decode_name(encoded).unwrap_or_default();
    if !grant.may_ask_for(&name, |name| view.names().behind(name)) || !view.is_asked_for(&name) {
        return Err(unknown_model(routing, view, grant, &name));
    }
    Ok(name.into_owned())
}

/// Returns KServe V2's description of the server itself.
fn server_metadata() -> Bytes {
    let version = env!("CARGO_PKG_VERSION");
    Bytes::from(format!(
        r#"{{"name":"spillway","version":"{version}","extensions":["binary_tensor_data"]}}"#
    ))
}

#[cfg(test)]
#[path = "local_test.rs"]
mod tests;
