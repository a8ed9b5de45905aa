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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_takes_its_methods_and_names_them_to_others() {
        for (path, allowed) in [
            ("/v1/chat/completions", "POST"),
            ("/v1/completions/", "POST"),
            ("/v1/responses", "POST"),
            ("/v1/embeddings", "POST"),
            ("/v2/rerank", "POST"),
            ("/v1/audio/speech", "POST"),
            ("/v1/audio/transcriptions", "POST"),
            ("/v1/responses/resp_1", "GET, POST, DELETE"),
            ("/v1/responses/resp_1/cancel", "GET, POST, DELETE"),
            ("/v2/models/a/infer", "GET, HEAD, POST"),
            ("/v1/models", "GET, HEAD"),
            ("/v1/models/a", "GET, HEAD"),
            ("/v2", "GET, HEAD"),
            ("/v2/health/live", "GET, HEAD"),
            ("/v2/health/ready", "GET, HEAD"),
            ("/livez", "GET, HEAD"),
            ("/readyz", "GET, HEAD"),
            ("/health", "GET, HEAD"),
            ("/steering", "GET, HEAD"),
        ] {
            let endpoint = Endpoint::classify(path);
            assert_ne!(endpoint, Endpoint::Other, "{path}");
            for method in
                ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get", "", "GET, HEAD"]
            {
                let Ok(method) = method.parse::<Method>() else { continue };
                let is_allowed = allowed.split(", ").any(|name| name == method.as_str());
                let found = check_method(endpoint, &method);
                assert_eq!(found.is_ok(), is_allowed, "{method} {path}");
                if let Err(error) = found {
                    assert_eq!(error.kind, ErrorKind::MethodNotAllowed);
                    assert!(error.message.contains(allowed), "{}", error.message);
                }
            }
        }
    }

    #[test]
    fn an_unknown_path_is_refused_as_such_whatever_the_method() {
        for path in ["/", "/v1", "/v1/chat", "/v3/models"] {
            let endpoint = Endpoint::classify(path);
            for method in [Method::GET, Method::POST, Method::DELETE] {
                assert!(check_method(endpoint, &method).is_ok(), "{method} {path}");
            }
        }
    }
}
