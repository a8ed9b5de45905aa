//! Methods that each built-in endpoint allows.

use http::Method;
use spillway_protocol::{Echo, Endpoint, ErrorKind, GatewayError};

/// Refuses a method that the endpoint does not allow.
///
/// # Errors
/// Returns an error that names the allowed methods.
pub fn check_method(endpoint: Endpoint<'_>, method: &Method) -> Result<(), GatewayError> {
    let allowed = allowed_methods(endpoint);
    // An empty list means that the path does not exist; the client gets that error whatever the
    // method.
    if allowed.is_empty() || allowed.split(", ").any(|name| name == method.as_str()) {
        return Ok(());
    }
    let method = Echo(method.as_str());
    let message = format!("{method} is not understood here, but {allowed} is");
    Err(GatewayError::new(ErrorKind::MethodNotAllowed, message))
}

/// Returns the allowed methods in the form of an `Allow` header; empty for an unknown path.
pub fn allowed_methods(endpoint: Endpoint<'_>) -> &'static str {
    match endpoint {
        Endpoint::ChatCompletions
        | Endpoint::Completions
        | Endpoint::Responses
        | Endpoint::Embeddings
        | Endpoint::Rerank
        | Endpoint::JsonPassthrough
        | Endpoint::FormPassthrough
        | Endpoint::Grpc(_) => "POST",
        Endpoint::ResponseById { .. } => "GET, POST, DELETE",
        Endpoint::V2Model { .. } => "GET, HEAD, POST",
        Endpoint::ModelList
        | Endpoint::ModelById { .. }
        | Endpoint::V2Live
        | Endpoint::V2Ready
        | Endpoint::V2Server
        | Endpoint::Livez
        | Endpoint::Readyz
        | Endpoint::Steering => "GET, HEAD",
        Endpoint::Other => "",
    }
}
