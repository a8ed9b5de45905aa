//! The admin listener: metrics, health of this node, and state of its replicas.

mod connections;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde::Serialize;
use serde::de::DeserializeOwned;
use spillway_admin::{AdminRole, DiscoveryOverview, Recorded, Reply};
use spillway_health::{DrainReason, Order, UnknownReplicaError};
use spillway_telemetry::Exposition;
use spillway_types::{LoadReport, ReplicaName};
use spillway_usage::UsageLine;
use tokio::time::timeout;

pub(crate) use self::connections::{AdminSocket, serve_admin};
use crate::local_node::LocalNode;
use crate::scrape::Scrape;

/// Maximum size of a request's body in bytes: orders and load reports are short.
const BODY_BYTES_MAX: usize = 16 << 10;
/// Longest time in which the body of a request must arrive.
const BODY_LIMIT: Duration = Duration::from_secs(10);
/// User agent of `spillway health`.
pub const OWN_AGENT: &str = "spillway-health";
/// Time limit in seconds of a drain whose order names none.
const DRAIN_S: u64 = 600;

/// Sources of the admin listener's answers, and receivers of its orders.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) local: LocalNode,
    pub(crate) scrape: Arc<Scrape>,
    /// The admin API of the cluster, below `/v1/`.
    pub(crate) api: spillway_admin::Admin,
}

/// Usage of this node since it started.
#[derive(Debug, Serialize)]
struct NodeUsage {
    /// Start of the node, in milliseconds since 1970.
    since_ms: u64,
    /// Usage by tenant, key and model.
    usage: Vec<UsageLine>,
}

/// The body of an order to drain; all of it may be left out.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DrainBody {
    /// Time limit in seconds: after it the drain ends even if requests are still running.
    limit_s: Option<u64>,
    /// True if the machine is going to be taken away.
    preemption: bool,
}

impl Admin {
    /// Returns true if the request has a good token or needs none. Health checks are excluded: any
    /// client may send them.
    fn knows<B>(&self, request: &Request<B>) -> bool {
        !is_check(request.uri().path()) && self.is_let_in(request).is_ok()
    }

    /// Checks that the request may read.
    fn is_let_in<B>(&self, request: &Request<B>) -> Result<(), Box<Reply>> {
        self.api.check(&head_of(request), AdminRole::Read)
    }

    async fn answer(&self, request: Request<Incoming>, client: IpAddr) -> Reply {
        let path = request.uri().path().to_owned();
        if path.starts_with("/v1/") {
            return self.api.answer(request).await;
        }
        // Files of console and docs are the same for everybody, and need no token.
        if let Some(reply) = self.file(&request) {
            return reply;
        }
        // Checks need no token, but the host that they name has to be right.
        if is_check(&path) {
            // A check by the node's own program, as an image's health check, takes no client out of
            // service.
            let agent = request.headers().get(header::USER_AGENT);
            if matches!(&*path, "/readyz" | "/steering") && agent.is_none_or(|it| it != OWN_AGENT) {
                self.local.gateway.clients.readiness_polls.note(client, Instant::now());
            }
            return match self.api.check_host(&head_of(&request)) {
                Ok(()) => self.checked(&path),
                Err(refusal) => *refusal,
            };
        }
        if let Err(refusal) = self.is_let_in(&request) {
            return *refusal;
        }
        // Orders need the role `operate`; what follows is only read.
        if let Some(rest) = path.strip_prefix("/replicas/") {
            return match self.api.authorize(&head_of(&request), AdminRole::Operate) {
                Ok(caller) => self.about_replica(rest, &caller, request).await,
                Err(refusal) => *refusal,
            };
        }
        match path.as_str() {
            "/metrics" => self.metrics(request.headers()),
            "/replicas" => json(StatusCode::OK, &self.local.keeper.members().await),
            "/usage" => json(StatusCode::OK, &self.usage_since_start()),
            "/certificates" => {
                let link = self.scrape.link();
                json(StatusCode::OK, &self.scrape.certificates.own(link.as_deref()))
            }
            "/certificates/nodes" => self.certificates_of_nodes().await,
            _ => error(
                StatusCode::NOT_FOUND,
                "try /console/, /docs/, /metrics, /replicas, /usage, /certificates, /livez, /readyz, /steering or /v1/openapi.json",
            ),
        }
    }

    /// Answers with the metrics in the format that the scraper accepts.
    fn metrics(&self, headers: &HeaderMap) -> Reply {
        let accepted = headers.get_all(header::ACCEPT).iter();
        let format = Exposition::of_accept(accepted.filter_map(|value| value.to_str().ok()));
        let page = format.of_open_metrics(self.scrape.text());
        let mut reply = reply(StatusCode::OK, format.content_type(), page.into());
        // A cache must not give one scraper the format of another.
        reply.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
        reply
    }

    fn usage_since_start(&self) -> NodeUsage {
        let usage = self.local.outcomes.usage_since_start();
        NodeUsage { since_ms: self.local.started_ms(), usage }
    }

    /// Answers a request for a file of the console or the docs; `None` for other paths.
    fn file<B>(&self, request: &Request<B>) -> Option<Reply> {
        let head = head_of(request);
        let reply = spillway_admin::console(&head).or_else(|| spillway_admin::docs(&head))?;
        Some(self.api.check_host(&head).map_or_else(|refusal| *refusal, |()| reply))
    }

    /// Returns the certificate that each node of the cluster shows now.
    async fn certificates_of_nodes(&self) -> Reply {
        let Some(link) = self.scrape.link() else {
            return error(StatusCode::NOT_FOUND, "this node is in no cluster");
        };
        match self.scrape.certificates.of_all(&link).await {
            Some(nodes) => json(StatusCode::OK, &serde_json::json!({ "nodes": nodes })),
            None => error(StatusCode::TOO_MANY_REQUESTS, "somebody else is looking: try again"),
        }
    }

    /// Answers a check of this node's health, which shows nothing else about the node.
    fn checked(&self, path: &str) -> Reply {
        if path == "/steering" {
            let (status, body) = self.local.gateway.switches.steering_answer();
            return reply(status, "application/json", body);
        }
        if path != "/readyz" || self.is_ready() {
            return json(StatusCode::OK, &self.readiness(path));
        }
        error(
            StatusCode::SERVICE_UNAVAILABLE,
            "draining, nothing to serve with here or elsewhere, shares of limits are awaited, or the \
             cluster is heard and can't be followed",
        )
    }

    /// Returns the detail of a good answer: discoveries in a state in which replicas may be missing,
    /// and kinds of problems.
    fn readiness(&self, path: &str) -> serde_json::Value {
        let discoveries = self.local.keeper.figures.discoveries();
        let is_missing = |it: &&DiscoveryOverview| path == "/readyz" && it.is_fault();
        let missing = discoveries.iter().filter(is_missing);
        let missing: BTreeMap<&str, &str> =
            missing.map(|it| (it.name.as_str(), it.state.as_str())).collect();
        let kinds = self.local.outcomes.health.kinds();
        let mut detail = serde_json::Map::new();
        if !missing.is_empty() {
            detail.insert("discovery".to_owned(), serde_json::json!(missing));
        }
        if path == "/readyz" && !kinds.is_empty() {
            detail.insert("problems".to_owned(), serde_json::json!(kinds));
        }
        detail.into()
    }

    /// Answers `/replicas/{name}/{action}`.
    async fn about_replica(&self, rest: &str, caller: &str, request: Request<Incoming>) -> Reply {
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
        let (recorded, what) = match action {
            "load" => (Recorded::Hourly, "report load of"),
            "resume" => (Recorded::EachTime, "resume"),
            _ => (Recorded::EachTime, "drain"),
        };
        let what = format!("{what} replica {name} of this node");
        let done = match action {
            "drain" => match body::<DrainBody>(request).await {
                Ok(body) => self.local.keeper.order(name, body.order()).await,
                Err(message) => return error(StatusCode::BAD_REQUEST, &message),
            },
            "resume" => self.local.keeper.order(name, Order::Resume).await,
            "load" => match body::<LoadReport>(request).await {
                Ok(report) => match report.fault() {
                    Some(field) => {
                        let message = format!(
                            "{field} can't be true: numbers are not negative, and shares are 1 at most"
                        );
                        return error(StatusCode::BAD_REQUEST, &message);
                    }
                    None => self.local.keeper.report(name, report).await,
                },
                Err(message) => return error(StatusCode::BAD_REQUEST, &message),
            },
            _ => return error(StatusCode::NOT_FOUND, "known actions: drain, resume, load"),
        };
        match done {
            Ok(()) => {
                self.api.record(caller, what, recorded);
                json(StatusCode::OK, &serde_json::json!({}))
            }
            Err(UnknownReplicaError(name)) => {
                error(StatusCode::NOT_FOUND, &format!("no replica is called {name}"))
            }
        }
    }

    fn is_ready(&self) -> bool {
        let gateway = &self.local.gateway;
        let view = gateway.routing.view();
        // An edge node has no replicas of its own, and is ready once other regions serve for it.
        let can_serve = !view.replicas().is_empty() || !view.serves_nothing();
        gateway.admits_clients() && can_serve
    }
}

impl DrainBody {
    fn order(&self) -> Order {
        let limit = Duration::from_secs(self.limit_s.unwrap_or(DRAIN_S));
        let why = if self.preemption { DrainReason::Preemption } else { DrainReason::Operator };
        Order::Drain { limit, why }
    }
}

/// Returns true for the paths that need no token: load balancers and orchestrators have none.
fn is_check(path: &str) -> bool {
    matches!(path, "/livez" | "/readyz" | "/healthz" | "/steering")
}

/// Copies a request without its body, for checks that read only the head.
fn head_of<B>(request: &Request<B>) -> http::request::Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = request.method().clone();
    head.uri = request.uri().clone();
    head.headers = request.headers().clone();
    head
}

/// Reads a JSON body; an empty one counts as `{}`.
///
/// # Errors
/// Returns a message if the body is too long, too slow or not valid.
async fn body<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, String> {
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX);
    let collected = timeout(BODY_LIMIT, body.collect()).await;
    let collected = collected.map_err(|_| "the body did not arrive in time".to_owned())?;
    let bytes = collected.map_err(|error| error.to_string())?.to_bytes();
    let text = if bytes.is_empty() { b"{}".as_slice() } else { &bytes };
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

fn json(status: StatusCode, value: &impl Serialize) -> Reply {
    // Only plain structs are shown, and they always have a JSON form.
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
