//! The second address that a replica may have for gRPC.

use std::path::Path;
use std::sync::Arc;

use spillway_config::Config;
use spillway_emulator::kserve::InferResponse;
use spillway_tests::{
    CallServer, Client, OK, Page, Scripted, Setup, chat, eventually, full, spawn,
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::certificates::Certificates;
use crate::grpc_calls::{code, connect, frame, infer, kserve, scripted, text};

/// A replica that speaks HTTP/1.1 at one address and gRPC at another.
fn two_lines(setup: Setup, http: &impl std::fmt::Display, grpc: &str) -> Setup {
    setup.replica_with("a", &format!("http://{http}"), &format!("grpc_url = \"{grpc}\""))
}

#[tokio::test]
async fn each_kind_of_request_goes_to_its_own_address() {
    let http = Scripted::start().await.serve(OK);
    let mut grpc = CallServer::start().await;
    let url = format!("http://{}", grpc.address);
    let node = two_lines(Setup::new(), &http.address, &url).start().await;
    assert_eq!(Client::once(node.addresses()[0], chat("tiny", "")).await.body, "ok");
    let mut client = connect(&node).await;
    for _ in 0..3 {
        let request = kserve("ModelInfer", full(frame(&infer("tiny", &[1]))));
        let (reply, ()) = tokio::join!(client.fetch(request), async {
            let mut call = grpc.call().await;
            assert_eq!(call.header("host"), None);
            let authority = call.head.uri.authority().map(ToString::to_string);
            assert_eq!(authority, Some(grpc.address.to_string()));
            call.reply(frame(&InferResponse::default()));
        });
        assert_eq!(code(&reply), "0");
    }
    assert_eq!(http.requests.count(), 1);
    assert_eq!(Page::of(&node).sum("spillway_replica_connections", &[]), 2.0, "one of each");
}

#[tokio::test]
async fn both_addresses_share_the_replica_s_places() {
    let http = Scripted::start().await.serve(OK);
    let mut grpc = CallServer::start().await;
    let url = format!("http://{}", grpc.address);
    let lines = format!("grpc_url = \"{url}\"\nconnections_max = 1");
    let http_url = format!("http://{}", http.address);
    let setup = Setup::new().set("spill.queue_max = 0");
    let node = setup.replica_with("a", &http_url, &lines).start().await;
    let mut client = connect(&node).await;
    let request = kserve("ModelInfer", full(frame(&infer("tiny", &[1]))));
    let waiting = spawn(async move { client.fetch(request).await });
    let mut held = grpc.call().await;
    assert_eq!(Page::of(&node).sum("spillway_replica_in_flight", &[]), 1.0);
    let refused = Client::once(node.addresses()[0], chat("tiny", "")).await;
    assert_eq!(refused.code(), Some("overloaded"));
    held.reply(frame(&InferResponse::default()));
    assert_eq!(code(&waiting.await.expect("a reply")), "0");
    let in_flight = || Page::of(&node).sum("spillway_replica_in_flight", &[]);
    eventually("the place is free", || in_flight() == 0.0).await;
    assert_eq!(Client::once(node.addresses()[0], chat("tiny", "")).await.body, "ok");
}

#[tokio::test]
async fn a_replica_with_http2_at_both_addresses_gets_each_request_at_its_own() {
    let (mut main, mut grpc) = (CallServer::start().await, CallServer::start().await);
    let lines = format!("protocol = \"http2\"\ngrpc_url = \"http://{}\"", grpc.address);
    let url = format!("http://{}", main.address);
    let node = Setup::new().replica_with("a", &url, &lines).start().await;
    let mut client = connect(&node).await;
    for _ in 0..3 {
        let request = kserve("ModelInfer", full(frame(&infer("tiny", &[1]))));
        let (reply, ()) = tokio::join!(client.fetch(request), async {
            grpc.call().await.reply(frame(&InferResponse::default()));
        });
        assert_eq!(code(&reply), "0");
        let (reply, ()) = tokio::join!(client.fetch(chat("tiny", "")), async {
            main.call().await.answer_with(http::Response::builder().body(()).expect("a head"));
        });
        assert_eq!(reply.status, 200);
    }
    assert_eq!(Page::of(&node).sum("spillway_replica_connections", &[]), 2.0, "one of each");
}

#[tokio::test]
async fn only_replicas_that_speak_it_are_asked_over_grpc() {
    let http = Scripted::start().await.serve(OK);
    let mut grpc = CallServer::start().await;
    let setup = Setup::new().replica("http1", http.address);
    let node = scripted(setup, "http2", &grpc).start().await;
    let mut client = connect(&node).await;
    for _ in 0..8 {
        let request = kserve("ModelInfer", full(frame(&infer("tiny", &[1]))));
        let (reply, ()) = tokio::join!(client.fetch(request), async {
            grpc.call().await.reply(frame(&InferResponse::default()));
        });
        assert_eq!(code(&reply), "0");
    }
    assert_eq!(http.requests.count(), 0);
}

#[tokio::test]
async fn tls_is_spoken_to_the_address_that_says_so() {
    let certificates = Certificates::for_name("replica.test");
    let http = Scripted::start().await.serve(OK);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    let (mut grpc, sink) = CallServer::detached(address);
    let mut config = rustls::ServerConfig::clone(certificates.acceptor().config());
    config.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let tls = acceptor.accept(tcp).await.expect("a handshake");
            assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            spawn(sink.clone().serve(tls));
        }
    });
    let ca = certificates.ca_file().display().to_string();
    let lines = format!(
        "grpc_url = \"https://{address}\"\ntls = {{ ca = \"{ca}\", server_name = \"replica.test\" }}"
    );
    let url = format!("http://{}", http.address);
    let node = Setup::new().replica_with("a", &url, &lines).start().await;
    assert_eq!(Client::once(node.addresses()[0], chat("tiny", "")).await.body, "ok");
    let mut client = connect(&node).await;
    let request = kserve("ModelInfer", full(frame(&infer("tiny", &[1]))));
    let (reply, ()) = tokio::join!(client.fetch(request), async {
        let mut call = grpc.call().await;
        assert_eq!(call.head.uri.scheme_str(), Some("https"));
        call.reply(frame(&InferResponse::default()));
    });
    assert_eq!(code(&reply), "0", "{}", text(&reply.headers, "grpc-message"));
}

#[test]
fn a_bad_address_is_refused_with_its_line() {
    let parse = |lines: &str| {
        let setup = Setup::new().replica_with("a", "http://127.0.0.1:1", lines);
        Config::parse(&setup.text(), Path::new("test.toml"), [])
    };
    for (line, part) in [
        ("grpc_url = \"127.0.0.1:2\"", "scheme"),
        ("grpc_url = \"http://127.0.0.1:2/path\"", "path"),
        ("grpc_url = \"grpc://127.0.0.1:2\"", "scheme"),
    ] {
        let error = parse(line).expect_err(line).to_string();
        assert!(error.contains(part) && error.contains("test.toml:"), "{error}");
    }
    assert!(parse("grpc_url = \"http://127.0.0.1:2\"").is_ok());
    let error = parse("grpc_url = \"http://127.0.0.1:2\"\ntls = { server_name = \"x\" }");
    assert!(error.expect_err("tls for nothing").to_string().contains("tls"));
}

#[tokio::test]
async fn calls_beyond_what_a_server_takes_wait_in_the_queue() {
    /// Connections over which a node spreads its calls.
    const CONNECTIONS: usize = 64;
    let mut grpc = CallServer::with_streams(1).await;
    let setup = Setup::new().set("node.workers = 1");
    let lines = "protocol = \"http2\"\nconcurrency = \"unlimited\"";
    let node = setup.replica_with("a", &format!("http://{}", grpc.address), lines).start().await;
    let call = || {
        let address = node.addresses()[0];
        spawn(async move {
            let request = kserve("ModelInfer", full(frame(&infer("tiny", &[1]))));
            code(&Client::http2(address).await.fetch(request).await).to_owned()
        })
    };
    // The first one learns the server's limit.
    let mut calls = vec![call()];
    let mut held = vec![grpc.call().await];
    calls.extend((0..CONNECTIONS).map(|_| call()));
    for _ in 1..CONNECTIONS {
        held.push(grpc.call().await);
    }
    let sum = |name: &str| Page::of(&node).sum(name, &[]);
    eventually("one waits", || sum("spillway_waiting") == 1.0).await;
    assert_eq!(sum("spillway_replica_connections"), CONNECTIONS as f64);
    assert!(grpc.is_alone());
    held.pop().expect("one of them").reply(frame(&InferResponse::default()));
    held.push(grpc.call().await);
    for mut call in held {
        call.reply(frame(&InferResponse::default()));
    }
    for call in calls {
        assert_eq!(call.await.expect("a reply"), "0");
    }
}
