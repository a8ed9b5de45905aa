//! Explanations of routing: the place that a request would go to, and why.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use spillway_types::TenantName;

use crate::call::AdminCall;
use crate::config::AdminRole;
use crate::error::ApiError;
use crate::explain::{Explain, ExplainError, ExplainRequest};
use crate::reply::{Reply, json};

/// Most headers of one request, as many as the front door takes.
const HEADERS_MAX: usize = 100;
/// Path of a request that names none.
const PATH: &str = "/v1/chat/completions";

/// A request to explain. It is sent nowhere.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainOrder {
    /// Path that a client would send the request to; `/v1/chat/completions` if it is left out.
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// Headers that a client would send.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// The tenant whose request it would be.
    #[serde(default)]
    pub(crate) tenant: Option<String>,
    /// Address of the client; without it, the client's country is unknown.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) client: Option<IpAddr>,
    /// The body that a client would send.
    #[schemars(with = "Value")]
    pub(crate) body: Box<RawValue>,
}

/// Place that a request would go to at this moment, and the reasons against the others.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Explanation {
    /// Decision: `replica`, `region`, `wait`, `shed` or `refuse`.
    #[serde(default)]
    pub(crate) decision: Option<String>,
    /// Reason of the decision.
    #[serde(default)]
    pub(crate) reason: Option<String>,
    /// Milliseconds until a replica takes requests again, if all of them asked for a pause.
    #[serde(default)]
    pub(crate) rests_ms: Option<u64>,
    /// Overflow replica that would be asked in place of a refusal, or after some time of a wait.
    #[serde(default)]
    pub(crate) overflow: Option<String>,
    /// Route of the request.
    #[serde(default)]
    pub(crate) route: Option<String>,
    /// The country of the client, if a location database knows it.
    #[serde(default)]
    pub(crate) client_country: Option<String>,
    /// Places where the request may be served, by its route, its tenant and its client's country.
    #[serde(default)]
    pub(crate) may_be_served: Option<String>,
    /// The model that would serve it, aliases resolved.
    pub(crate) model: Option<String>,
    /// Policy that chooses among replicas.
    pub(crate) policy: Option<String>,
    /// The replica or region that the request would go to; null if it would wait or be refused.
    pub(crate) chosen: Option<String>,
    /// Full blocks of the prompt.
    pub(crate) blocks: Option<u64>,
    /// Leading blocks in the cache that has most of them.
    #[serde(default)]
    pub(crate) cached_blocks: Option<u64>,
    /// Replicas of this region.
    pub(crate) candidates: Vec<ExplainedCandidate>,
    /// Other regions, if they were weighed.
    #[serde(default)]
    pub(crate) regions: Vec<ExplainedCandidate>,
    /// Further facts that the node tells.
    #[serde(flatten)]
    pub(crate) more: Map<String, Value>,
}

/// A replica or a region that could serve a request.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ExplainedCandidate {
    /// Name of the replica or region.
    pub(crate) name: String,
    /// Region of the replica; null for a region.
    #[serde(default)]
    pub(crate) region: Option<String>,
    /// True if the request would go there.
    pub(crate) chosen: bool,
    /// Reason why the request would not go there.
    pub(crate) why: Option<String>,
    /// Sum of all terms: milliseconds until the first token. Null where nothing is predicted.
    pub(crate) cost_ms: Option<f64>,
    /// Terms of the cost, by name.
    #[serde(default)]
    pub(crate) terms: BTreeMap<String, Option<f64>>,
    /// Further facts that the node tells.
    #[serde(flatten)]
    pub(crate) more: Map<String, Value>,
}

/// Answers a request for an explanation. Needs no cluster: routing is this node's own decision.
pub(crate) async fn explain(by: Option<&dyn Explain>, call: &AdminCall) -> Result<Reply, ApiError> {
    let by = by.ok_or_else(no_explanation)?;
    let mut request = request(call.json()?)?;
    request.sees_isolated = call.caller.role >= AdminRole::Operate;
    let explained = by.explain(request).await.map_err(of_fault)?;
    Ok(json(StatusCode::OK, &explained))
}

pub(super) fn request(order: ExplainOrder) -> Result<ExplainRequest, ApiError> {
    let path = order.path.unwrap_or_else(|| PATH.to_owned());
    if !path.starts_with('/') {
        let remedy = format!("write it as {PATH}");
        return Err(ApiError::bad_request("the path does not begin with a slash", remedy));
    }
    if order.headers.len() > HEADERS_MAX {
        let remedy = format!("send {HEADERS_MAX} at most");
        return Err(ApiError::bad_request("there are too many headers", remedy));
    }
    let headers = order.headers.iter().map(header).collect::<Result<HeaderMap, _>>()?;
    let body: Box<str> = order.body.into();
    let tenant = order.tenant.map(|name| TenantName::from(name.as_str()));
    let body = Bytes::from(body.into_string());
    let sees_isolated = false;
    Ok(ExplainRequest { path, headers, body, tenant, client: order.client, sees_isolated })
}

fn header((name, value): (&String, &String)) -> Result<(HeaderName, HeaderValue), ApiError> {
    let parsed = (name.parse::<HeaderName>(), HeaderValue::from_str(value));
    let (Ok(name), Ok(value)) = parsed else {
        let cause = format!("{:?} is no header", name.chars().take(32).collect::<String>());
        return Err(ApiError::bad_request(cause, "write it as HTTP has it"));
    };
    Ok((name, value))
}

fn of_fault(fault: ExplainError) -> ApiError {
    let ExplainError { cause, remedy } = fault;
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", cause, remedy)
}

fn no_explanation() -> ApiError {
    let cause = "this node routes no requests";
    let status = StatusCode::SERVICE_UNAVAILABLE;
    ApiError::new(status, "no_explanation", cause, "ask a node that serves clients")
}
