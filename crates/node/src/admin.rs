//! The operators' listener: metrics and health.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::feedback::Feedback;

/// Connections at a time: a few scrapers and people.
const CONNECTIONS_MAX: usize = 64;

/// Serves until told to stop.
pub(crate) async fn serve_admin(
    listener: TcpListener,
    feedback: Arc<Feedback>,
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
        let feedback = Arc::clone(&feedback);
        let stop = stop.clone();
        tracker.spawn(async move {
            let service = service_fn(move |request| {
                let reply = answer(&feedback, &request);
                async move { Ok::<_, Infallible>(reply) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(tcp), service);
            tokio::select! {
                _ = connection => {}
                () = stop.cancelled() => {}
            }
            drop(place);
        });
    }
}

fn answer(feedback: &Feedback, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match request.uri().path() {
        "/metrics" => reply(StatusCode::OK, OPEN_METRICS, feedback.scrape().into()),
        "/livez" => reply(StatusCode::OK, "application/json", Bytes::from_static(b"{}")),
        "/readyz" if is_ready(feedback) => {
            reply(StatusCode::OK, "application/json", Bytes::from_static(b"{}"))
        }
        "/readyz" => {
            let why = Bytes::from_static(b"{\"error\":\"draining, or no replica is configured\"}");
            reply(StatusCode::SERVICE_UNAVAILABLE, "application/json", why)
        }
        _ => {
            let known = Bytes::from_static(b"{\"error\":\"try /metrics, /livez or /readyz\"}");
            reply(StatusCode::NOT_FOUND, "application/json", known)
        }
    }
}

fn is_ready(feedback: &Feedback) -> bool {
    let gateway = &feedback.gateway;
    !gateway.is_draining() && !gateway.view().replicas().is_empty()
}

fn reply(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
