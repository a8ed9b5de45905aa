//! The admin API's question about one request, put to the data path.

use std::sync::Arc;

use http::Method;
use spillway_admin::{Explain, ExplainError, ExplainRequest, Explaining};
use spillway_protocol::{ErrorKind, GatewayError};
use spillway_proxy::Worker;

/// Explainer that asks one of the workers, since all of them decide alike.
#[derive(Debug)]
pub(crate) struct Explainer(pub(crate) Arc<Worker>);

impl Explain for Explainer {
    fn explain(&self, request: ExplainRequest) -> Explaining<'_> {
        Box::pin(async move {
            let ExplainRequest { path, headers, body, tenant, client, sees_isolated } = request;
            let request = spillway_proxy::ExplainRequest {
                // All that have a body to explain are sent so.
                method: Method::POST,
                path,
                headers,
                body,
                tenant,
                client,
                sees_isolated,
            };
            let explanation = spillway_proxy::explain(&self.0, request).await;
            let explanation = explanation.map_err(|error| of_error(&error))?;
            serde_json::to_value(explanation).map_err(|error| ExplainError {
                cause: format!("the explanation is no JSON: {error}"),
                remedy: "report this as a bug of the gateway".to_owned(),
            })
        })
    }
}

/// Returns the error as the client itself would get it.
fn of_error(error: &GatewayError) -> ExplainError {
    let remedy = match error.kind {
        ErrorKind::ModelNotFound => "name a model or an alias that GET /v1/models lists",
        ErrorKind::RouteNotFound => "explain a path that requests are routed from",
        _ => "correct the request as its client would have to",
    };
    ExplainError { cause: error.message.clone(), remedy: remedy.to_owned() }
}
