//! The operators' listener: metrics, health, and what is known of replicas.

mod connections;
mod places;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde::Serialize;
use serde::de::DeserializeOwned;
use spillway_admin::{AdminRole, Reply};
use spillway_health::{DrainReason, Order, UnknownReplica};
use spillway_types::{LoadReport, ReplicaName};
use tokio::time::timeout;

pub(crate) use self::connections::{AdminSocket, serve_admin};
use crate::feedback::Feedback;
use crate::keeper::KeeperHandle;

/// Bytes of a request's body: orders and load reports are short.
const BODY_BYTES_MAX: usize = 16 << 10;
/// How long a request's body may take to arrive.
const BODY_LIMIT: Duration = Duration::from_secs(10);
/// How long a drain may take where its order does not say.
const DRAIN_S: u64 = 600;

/// The format of `/metrics`.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the listener shows and passes on.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) feedback: Arc<Feedback>,
    pub(crate) keeper: KeeperHandle,
    /// What the cluster agrees on.
    pub(crate) api: spillway_admin::Admin,
}

/// The body of an order to drain; all of it may be left out.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DrainBody {
    /// Requests that are still running after so many seconds don't keep it from being removed.
    limit_s: Option<u64>,
    /// The machine is going to be taken away.
    preemption: bool,
}

impl Admin {
    /// Whether whoever sends a request is let in at all. Checks of this node's health let nobody in:
    /// anybody may send them.
    fn knows<B>(&self, request: &Request<B>) -> bool {
        !is_check(request.uri().path()) && self.is_let_in(request).is_ok()
    }

    /// What may be done by whoever may read.
    fn is_let_in<B>(&self, request: &Request<B>) -> Result<(), Box<Reply>> {
        self.api.check(&head_of(request), AdminRole::Read)
    }

    async fn answer(&self, request: Request<Incoming>) -> Reply {
        let path = request.uri().path().to_owned();
        if path.starts_with("/v1/") {
            return self.api.answer(request).await;
        }
        if is_check(&path) {
            return match self.api.check_host(&head_of(&request)) {
                Ok(()) => self.checked(&path),
                Err(refusal) => *refusal,
            };
        }
        if let Err(refusal) = self.is_let_in(&request) {
            return *refusal;
        }
        if let Some(rest) = path.strip_prefix("/replicas/") {
            return match self.api.check(&head_of(&request), AdminRole::Operate) {
                Ok(()) => self.about_replica(rest, request).await,
                Err(refusal) => *refusal,
            };
        }
        match path.as_str() {
            "/metrics" => reply(StatusCode::OK, OPEN_METRICS, self.feedback.scrape().into()),
            "/replicas" => json(StatusCode::OK, &self.keeper.members().await),
            "/usage" => json(StatusCode::OK, &self.feedback.usage()),
            _ => error(
                StatusCode::NOT_FOUND,
                "try /metrics, /replicas, /usage, /livez, /readyz or /v1/openapi.json",
            ),
        }
    }

    /// The answer to a check of this node's health, which says nothing else about it.
    fn checked(&self, path: &str) -> Reply {
        if path != "/readyz" || self.is_ready() {
            return json(StatusCode::OK, &serde_json::json!({}));
        }
        error(
            StatusCode::SERVICE_UNAVAILABLE,
            "draining, no replica is configured, or shares of limits are awaited",
        )
    }

    /// `/replicas/{name}/{action}`.
    async fn about_replica(&self, rest: &str, request: Request<Incoming>) -> Reply {
        let Some((name, action)) = rest.rsplit_once('/') else {
            return error(StatusCode::NOT_FOUND, "try /replicas/NAME/drain, /resume or /load");
        };
        if !matches!(*request.method(), Method::POST | Method::PUT) {
            return error(StatusCode::METHOD_NOT_ALLOWED, "use POST");
        }
        let Some(name) = spillway_protocol::decode_name(name) else {
            return error(StatusCode::BAD_REQUEST, "the name is badly encoded");
        };
        let name = ReplicaName::from(&*name);
        let done = match action {
            "drain" => match body::<DrainBody>(request).await {
                Ok(body) => self.keeper.order(name, body.order()).await,
                Err(message) => return error(StatusCode::BAD_REQUEST, &message),
            },
            "resume" => self.keeper.order(name, Order::Resume).await,
            "load" => match body::<LoadReport>(request).await {
                Ok(report) => match report.fault() {
                    Some(field) => {
                        let message = format!(
                            "{field} can't be true: numbers are not negative, and shares are 1 at most"
                        );
                        return error(StatusCode::BAD_REQUEST, &message);
                    }
                    None => self.keeper.report(name, report).await,
                },
                Err(message) => return error(StatusCode::BAD_REQUEST, &message),
            },
            _ => return error(StatusCode::NOT_FOUND, "known actions: drain, resume, load"),
        };
        match done {
            Ok(()) => json(StatusCode::OK, &serde_json::json!({})),
            Err(UnknownReplica(name)) => {
                error(StatusCode::NOT_FOUND, &format!("no replica is called {name}"))
            }
        }
    }

    fn is_ready(&self) -> bool {
        let gateway = &self.feedback.gateway;
        !gateway.is_leaving()
            && gateway.quotas().is_ready()
            && !gateway.view().replicas().is_empty()
    }
}

impl DrainBody {
    fn order(&self) -> Order {
        let limit = Duration::from_secs(self.limit_s.unwrap_or(DRAIN_S));
        let why = if self.preemption { DrainReason::Preemption } else { DrainReason::Operator };
        Order::Drain { limit, why }
    }
}

/// Whether anybody may ask: load balancers and orchestrators have no token.
fn is_check(path: &str) -> bool {
    matches!(path, "/livez" | "/readyz" | "/healthz")
}

/// A request without its body, for those who only look at its head.
fn head_of<B>(request: &Request<B>) -> http::request::Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = request.method().clone();
    head.uri = request.uri().clone();
    head.headers = request.headers().clone();
    head
}

/// A JSON body; an empty one stands for `{}`.
///
/// # Errors
/// What is wrong with it.
async fn body<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, String> {
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX);
    let collected = timeout(BODY_LIMIT, body.collect()).await;
    let collected = collected.map_err(|_| "the body did not arrive in time".to_owned())?;
    let bytes = collected.map_err(|error| error.to_string())?.to_bytes();
    let text = if bytes.is_empty() { b"{}".as_slice() } else { &bytes };
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

fn json(status: StatusCode, value: &impl Serialize) -> Reply {
    // What is shown are plain structs, which always have a JSON form.
    let text = serde_json::to_vec(value).unwrap_or_default();
    reply(status, "application/json", text.into())
}

fn error(status: StatusCode, message: &str) -> Reply {
    json(status, &serde_json::json!({ "error": message }))
}

fn reply(status: StatusCode, content_type: &'static str, body: Bytes) -> Reply {
    let mut response =
        Response::new(Full::new(body).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
