//! The operators' listener: metrics, health, and what is known of replicas.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use socket2::SockRef;
use spillway_admin::{AdminRole, Reply, connection_builder};
use spillway_health::{DrainReason, Order, UnknownReplica};
use spillway_types::{LoadReport, ReplicaName};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::feedback::Feedback;
use crate::keeper::KeeperHandle;

/// Connections at a time: a few scrapers, people, and replicas that push their load.
const CONNECTIONS_MAX: usize = 256;
/// Who takes nothing that is sent for so long has lost the connection: a watcher that never reads
/// would keep its place for ever.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Bytes of a request's body: orders and load reports are short.
const BODY_BYTES_MAX: usize = 16 << 10;
/// How long a drain may take where its order does not say.
const DRAIN_S: u64 = 600;

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

/// Serves until told to stop.
pub(crate) async fn serve_admin(
    listener: TcpListener,
    admin: Admin,
    stop: CancellationToken,
    tracker: TaskTracker,
) {
    let places = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((tcp, _)) = accepted else { continue };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        if let Err(error) = bound_stalls(&tcp, STALL_MAX) {
            tracing::debug!(%error, "a stalled client of the admin listener will not be noticed");
        }
        let admin = admin.clone();
        let stop = stop.clone();
        tracker.spawn(async move {
            let service = service_fn(move |request| {
                let admin = admin.clone();
                async move { Ok::<_, Infallible>(admin.answer(request).await) }
            });
            let connection = connection_builder().serve_connection(TokioIo::new(tcp), service);
            tokio::select! {
                _ = connection => {}
                () = stop.cancelled() => {}
            }
            drop(place);
        });
    }
}

/// Lets the kernel end a connection whose peer takes nothing for `limit`, whether it is gone or only
/// does not read.
fn bound_stalls(tcp: &TcpStream, limit: Duration) -> std::io::Result<()> {
    SockRef::from(tcp).set_tcp_user_timeout(Some(limit))
}

impl Admin {
    async fn answer(&self, request: Request<Incoming>) -> Reply {
        const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        let path = request.uri().path().to_owned();
        if path.starts_with("/v1/") {
            return self.api.answer(request).await;
        }
        if let Some(rest) = path.strip_prefix("/replicas/") {
            let (head, body) = request.into_parts();
            return match self.api.check(&head, AdminRole::Operate) {
                Ok(()) => self.about_replica(rest, Request::from_parts(head, body)).await,
                Err(refusal) => *refusal,
            };
        }
        match path.as_str() {
            "/metrics" => reply(StatusCode::OK, OPEN_METRICS, self.feedback.scrape().into()),
            "/replicas" => json(StatusCode::OK, &self.keeper.members().await),
            "/livez" => json(StatusCode::OK, &serde_json::json!({})),
            "/readyz" if self.is_ready() => json(StatusCode::OK, &serde_json::json!({})),
            "/readyz" => {
                error(StatusCode::SERVICE_UNAVAILABLE, "draining, or no replica is configured")
            }
            _ => error(
                StatusCode::NOT_FOUND,
                "try /metrics, /replicas, /livez, /readyz or /v1/openapi.json",
            ),
        }
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
                Ok(report) => self.keeper.report(name, report).await,
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
        !gateway.is_leaving() && !gateway.view().replicas().is_empty()
    }
}

impl DrainBody {
    fn order(&self) -> Order {
        let limit = Duration::from_secs(self.limit_s.unwrap_or(DRAIN_S));
        let why = if self.preemption { DrainReason::Preemption } else { DrainReason::Operator };
        Order::Drain { limit, why }
    }
}

/// A JSON body; an empty one stands for `{}`.
///
/// # Errors
/// What is wrong with it.
async fn body<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, String> {
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX);
    let bytes = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
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

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn a_client_that_never_reads_is_let_go() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut tcp, _) = listener.accept().await.unwrap();
        bound_stalls(&tcp, Duration::from_millis(500)).unwrap();
        let writing = async {
            let chunk = vec![0; 1 << 20];
            loop {
                if let Err(error) = tcp.write_all(&chunk).await {
                    return error.kind();
                }
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(20), writing).await;
        assert_eq!(ended.expect("an end"), ErrorKind::TimedOut);
        drop(silent);
    }
}
