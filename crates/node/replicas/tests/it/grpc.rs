//! gRPC health protocol, against a server made of h2's frames.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use spillway_replicas::{ActiveCheck, CheckKind, CheckResult, Probe, ReplicaTarget, RequestError};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::{Watching, active, target};

/// Answers `SERVING` for "up", `NOT_SERVING` for "down", and status 5 for any other service.
async fn start() -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            connections.spawn(serve(stream));
        }
    });
    (port, tasks)
}

async fn serve(stream: TcpStream) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    let mut requests = JoinSet::new();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        requests.spawn(async move {
            assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
            assert_eq!(request.headers()["content-type"], "application/grpc");
            assert_eq!(request.headers()["te"], "trailers");
            let mut stream = request.into_body();
            let mut body = Vec::new();
            while let Some(piece) = stream.data().await {
                body.extend_from_slice(&piece.unwrap());
            }
            let head = Response::builder().header("content-type", "application/grpc");
            let (status, code) = match &body[..] {
                [0, 0, 0, 0, 4, 0x0a, 2, b'u', b'p'] => (1, "0"),
                [0, 0, 0, 0, 6, 0x0a, 4, b'd', b'o', b'w', b'n'] => (2, "0"),
                _ => {
                    let head = head.header("grpc-status", "5").body(()).unwrap();
                    respond.send_response(head, true).unwrap();
                    return;
                }
            };
            let mut reply = respond.send_response(head.body(()).unwrap(), false).unwrap();
            reply.send_data(Bytes::copy_from_slice(&[0, 0, 0, 0, 2, 0x08, status]), false).unwrap();
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static(code));
            reply.send_trailers(trailers).unwrap();
        });
    }
}

#[tokio::test]
async fn serving_is_good_and_all_else_is_told_as_what_it_is() {
    let (port, _server) = start().await;
    for (service, expected) in [
        ("up", CheckResult::Good),
        ("down", CheckResult::NotReady),
        ("unheard-of", CheckResult::Failed(RequestError::GrpcStatus(5))),
    ] {
        let probe = Probe::Grpc { service: service.to_owned(), port: None };
        let check = ActiveCheck { probe, ..active() };
        let mut watching = Watching::of(ReplicaTarget { active: Some(check), ..target(port) });
        watching.until_check(CheckKind::Active, expected).await;
    }
}

#[tokio::test]
async fn the_emulator_is_serving_and_a_server_without_http_2_is_broken() {
    let emulator = crate::support::emulator().await;
    let probe = Probe::Grpc { service: String::new(), port: None };
    let check = ActiveCheck { probe, ..active() };
    let port = emulator.replica(0).address().port();
    let mut watching = Watching::of(ReplicaTarget { active: Some(check.clone()), ..target(port) });
    watching.until_check(CheckKind::Active, CheckResult::Good).await;

    let http1 = crate::scripted::Scripted::start(200, "ok").await;
    let mut watching = Watching::of(ReplicaTarget { active: Some(check), ..target(http1.port) });
    watching.until_check(CheckKind::Active, CheckResult::Failed(RequestError::Broken)).await;
}

#[tokio::test]
async fn an_http_check_may_speak_http_2() {
    let emulator = crate::support::emulator().await;
    let port = emulator.replica(0).address().port();
    let mut watching = Watching::of(ReplicaTarget {
        active: Some(active()),
        deep: Some(crate::support::deep()),
        protocol: spillway_replicas::HttpProtocol::Http2,
        ..target(port)
    });
    watching.until_check(CheckKind::Active, CheckResult::Good).await;
    watching.until_check(CheckKind::Deep, CheckResult::Good).await;
}
