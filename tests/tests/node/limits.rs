//! Limits of clients, and the answers to clients that exceed them.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use spillway_emulator::Fault;
use spillway_node::Node;
use spillway_tests::{
    Client, OK, Page, RAW_ROUTE, Scripted, Setup, Wire, both, chat, emulator, eventually, full,
    get, message, post, spawn, streamed,
};

fn closed(node: &Node, reason: &str) -> f64 {
    Page::of(node).sum("spillway_client_connections_closed_total", &[("reason", reason)])
}

#[tokio::test]
async fn heads_that_are_too_large_get_431() {
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new()
        .set("limits.header_bytes_max = 16384")
        .with(|config| config.gateway.limits.headers_max = 20);
    let node = setup.replica("a", replica.address).start().await;
    for headers in [format!("x-long: {}\r\n", "x".repeat(20_000)), "x-many: 1\r\n".repeat(30)] {
        let mut wire = Wire::connect(node.addresses()[0]).await;
        wire.send(format!("GET /v1/models HTTP/1.1\r\nhost: x\r\n{headers}\r\n")).await;
        assert!(wire.head().await.starts_with("HTTP/1.1 431 "));
    }
    let mut client = Client::http2(node.addresses()[0]).await;
    let mut request = get("/v1/models");
    let long = "x".repeat(20_000).parse().expect("a header");
    request.headers_mut().insert("x-long", long);
    assert_eq!(client.fetch(request).await.status, 431);
    assert_eq!(client.fetch(get("/v1/models")).await.status, 200, "the connection lives on");
}

#[tokio::test]
async fn bodies_that_are_too_large_get_413() {
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new().set("limits.body_bytes_max = 100000").table(RAW_ROUTE);
    let node = setup.replica("a", replica.address).start().await;
    let json = format!("{{\"model\":\"tiny\",\"x\":\"{}\"}}", "x".repeat(200_000));
    for path in ["/v1/completions", "/raw/x"] {
        for is_chunked in [false, true] {
            for client in &mut both(&node).await {
                let body = if is_chunked { dripping(&json) } else { full(json.clone()) };
                let reply =
                    client.fetch(message(Method::POST, path, "application/json", body)).await;
                let seen = (reply.status, reply.code());
                assert_eq!(seen, (413, Some("body_too_large")), "{path} chunked: {is_chunked}");
            }
        }
    }
    assert_eq!(replica.requests.count(), 0, "no replica gets a whole one");
}

/// The text in pieces, without a length.
fn dripping(text: &str) -> spillway_tests::ClientBody {
    let (pieces, body) = streamed();
    let text = text.to_owned();
    spawn(async move {
        for piece in text.as_bytes().chunks(8192) {
            if pieces.send(Bytes::copy_from_slice(piece)).await.is_err() {
                return;
            }
        }
    });
    body
}

#[tokio::test]
async fn malformed_json_is_refused_with_its_place() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for (body, place) in [
        ("{\"model\":\"tiny\",\n  \"x\": nope}", "line 2, column 9"),
        ("", "line 1, column"),
        ("[1]", "line 1, column 1"),
        ("{\"model\":\"tiny\"} trailing", "line 1, column 18"),
        ("{\"model\":\"\u{1}\"}", "line 1, column 10"),
    ] {
        let reply = client.fetch(post("/v1/completions", body)).await;
        assert_eq!((reply.status, reply.code()), (400, Some("bad_request")), "{body:?}");
        let error = reply.json();
        let message = error["error"]["message"].as_str().expect("a message");
        assert!(message.contains(place), "{body:?}: {message}");
    }
    assert!(replica.is_alone().await);
}

#[tokio::test]
async fn requests_whose_length_is_ambiguous_are_never_read_twice() {
    for (lines, body) in [
        ("content-length: 4\r\ncontent-length: 5\r\n", "12345"),
        ("content-length: 4, 5\r\n", "12345"),
        ("content-length: +4\r\n", "1234"),
        ("content-length: 0x4\r\n", "1234"),
        ("transfer-encoding : chunked\r\n", "0\r\n\r\n"),
        ("transfer-encoding: chunked, identity\r\n", "0\r\n\r\n"),
        ("transfer-encoding: xchunked\r\n", "0\r\n\r\n"),
        (" folded: 1\r\ncontent-length: 4\r\n", "1234"),
        ("transfer-encoding: chunked\r\n", "-1\r\n\r\n"),
        ("transfer-encoding: chunked\r\n", "ffffffffffffffff1\r\n\r\n"),
    ] {
        let replica = Scripted::start().await.serve(OK);
        let node = Setup::new().table(RAW_ROUTE).replica("a", replica.address).start().await;
        let mut wire = Wire::connect(node.addresses()[0]).await;
        let smuggled = "GET /raw/smuggled HTTP/1.1\r\nhost: x\r\n\r\n";
        wire.send(format!("POST /raw/x HTTP/1.1\r\nhost: x\r\n{lines}\r\n{body}{smuggled}")).await;
        let reply = String::from_utf8_lossy(&wire.end().await.0).into_owned();
        assert!(reply.starts_with("HTTP/1.1 400 "), "{lines:?}: {reply:?}");
        assert_eq!(reply.matches("HTTP/1.1").count(), 1, "{lines:?}: {reply:?}");
        assert_eq!(replica.requests.count(), 0, "{lines:?}");
    }
}

#[tokio::test]
async fn a_length_beside_chunks_smuggles_nothing() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().table(RAW_ROUTE).replica("a", replica.address).start().await;
    for lines in [
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n",
    ] {
        let mut wire = Wire::connect(node.addresses()[0]).await;
        let smuggled = "GET /raw/smuggled HTTP/1.1\r\nhost: x\r\n\r\n";
        wire.send(format!("POST /raw/x HTTP/1.1\r\nhost: x\r\n{lines}\r\n0\r\n\r\n{smuggled}"))
            .await;
        wire.finish().await;
        let reply = String::from_utf8_lossy(&wire.end().await.0).into_owned();
        // RFC 9112, section 6.1: refuse it, or answer it and close the connection.
        assert!(reply.matches("HTTP/1.1").count() <= 1, "{lines:?}: {reply:?}");
        let seen = replica.requests.all();
        assert!(seen.iter().all(|message| !message.head.contains("smuggled")), "{seen:?}");
        assert!(seen.iter().all(|message| message.header("content-length") != Some("4")));
    }
}

#[tokio::test]
async fn a_head_that_drips_is_cut_off_while_others_are_served() {
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new()
        .with(|config| config.gateway.limits.head_timeout = Duration::from_millis(300))
        .replica("a", replica.address);
    let node = setup.start().await;
    let mut slow: Vec<Wire> = Vec::new();
    for start in ["", "G", "GET /v1/models HT", "POST /v1/completions HTTP/1.1\r\nhost: x\r\n"] {
        let mut wire = Wire::connect(node.addresses()[0]).await;
        wire.send(start).await;
        slow.push(wire);
    }
    // A connection that was served before, and then sends slowly.
    let mut wire = Wire::connect(node.addresses()[0]).await;
    wire.send("GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n").await;
    wire.message().await;
    wire.send("GET /").await;
    slow.push(wire);
    assert_eq!(Client::once(node.addresses()[0], chat("tiny", "")).await.status, 200);
    for wire in &mut slow {
        let (answer, _) = wire.end().await;
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 408 "), "{answer:?}");
    }
    eventually("they are counted", || closed(&node, "slow_head") == 5.0).await;
}

#[tokio::test]
async fn a_body_that_drips_is_answered_408_while_others_are_served() {
    let replica = Scripted::start().await;
    let address = replica.address;
    let setup = Setup::new().set("limits.stall_timeout_ms = 300").table(RAW_ROUTE);
    let node = setup.replica("a", address).start().await;
    for path in ["/v1/completions", "/raw/x"] {
        for lines in ["content-length: 100", "transfer-encoding: chunked"] {
            let mut wire = Wire::connect(node.addresses()[0]).await;
            let start = format!("POST {path} HTTP/1.1\r\nhost: x\r\n{lines}\r\n\r\n5\r\nhello\r\n");
            wire.send(start).await;
            let mut others = Vec::new();
            let (other, ()) =
                tokio::join!(Client::once(node.addresses()[0], chat("tiny", "")), async {
                    // The streamed one is sent on while it arrives; it is never complete in memory.
                    while !others
                        .last()
                        .is_some_and(|head: &(Wire, String)| head.1.contains("/v1/chat"))
                    {
                        let mut taken = replica.accept().await;
                        let head = taken.head().await;
                        others.push((taken, head));
                    }
                    others.last_mut().expect("one").0.send(OK).await;
                });
            assert_eq!(other.status, 200);
            let reply = wire.message().await;
            assert_eq!(reply.status(), 408, "{path} {lines}");
            assert_eq!(reply.header("x-spillway-code"), Some("body_timeout"));
        }
    }
}

#[tokio::test]
async fn a_steady_upload_may_take_longer_than_a_pause() {
    const PIECES: usize = 25;
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new().set("limits.stall_timeout_ms = 2000").table(RAW_ROUTE);
    let node = setup.replica("a", replica.address).start().await;
    let upload = async |path: &str| {
        let mut wire = Wire::connect(node.addresses()[0]).await;
        let (begin, piece, end) = (r#"{"model":"tiny","prompt":""#, "x".repeat(16 << 10), r#""}"#);
        let length = begin.len() + PIECES * piece.len() + end.len();
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
        wire.send(head + begin).await;
        for _ in 0..PIECES {
            // wait: the whole takes longer than a pause may.
            tokio::time::sleep(Duration::from_millis(100)).await;
            wire.send(&piece).await;
        }
        wire.send(end).await;
        wire.message().await.status()
    };
    assert_eq!(tokio::join!(upload("/v1/completions"), upload("/raw/x")), (200, 200));
}

#[tokio::test]
async fn a_connection_without_requests_is_closed_after_its_time() {
    let node = Setup::new().set("limits.idle_timeout_ms = 300").start().await;
    let mut both = both(&node).await;
    for client in &mut both {
        assert_eq!(client.fetch(get("/livez")).await.status, 200);
    }
    for client in &both {
        eventually("it is closed", || !client.is_open()).await;
    }
    eventually("it is counted", || closed(&node, "idle") == 2.0).await;
}

#[tokio::test]
async fn a_request_may_last_longer_than_a_connection_may_idle() {
    let replica = Scripted::start().await;
    let setup = Setup::new()
        .set("limits.idle_timeout_ms = 100")
        .with(|config| config.gateway.limits.head_timeout = Duration::from_millis(60000));
    let node = setup.replica("a", replica.address).start().await;
    let address = node.addresses()[0];
    for is_http2 in [false, true] {
        let request = spawn(async move {
            let mut client = match is_http2 {
                true => Client::http2(address).await,
                false => Client::http1(address).await,
            };
            client.fetch(chat("tiny", "")).await
        });
        let (mut wire, _) = replica.request().await;
        // wait: a reply that takes longer than the idle time-out of the connection.
        tokio::time::sleep(Duration::from_millis(400)).await;
        wire.send(OK).await;
        assert_eq!(request.await.expect("a reply").status, 200);
    }
}

#[tokio::test]
async fn a_client_that_stops_reading_is_cut_off() {
    let replica = Scripted::start().await;
    let setup = Setup::new().set("limits.stall_timeout_ms = 400").replica("a", replica.address);
    let node = setup.start().await;
    let filler = vec![7; 1 << 16];
    for client in &mut both(&node).await {
        let (response, mut wire) = tokio::join!(client.send(chat("tiny", "")), async {
            let (mut wire, _) = replica.request().await;
            wire.send("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n").await;
            wire
        });
        let held = response.expect("a head");
        // Ends when the gateway gives the replica's connection up.
        while wire.try_send(&filler).await.is_ok() {}
        drop(held);
    }
    eventually("all places are free", || {
        Page::of(&node).sum("spillway_replica_in_flight", &[]) == 0.0
    })
    .await;
    assert!(closed(&node, "stalled") >= 1.0);
}

#[tokio::test]
async fn a_replica_that_answers_garbage_is_a_bad_gateway() {
    let emulator = emulator(1).await;
    emulator.replica(0).set_fault(Fault::Garbage).await.expect("breaks");
    let node = Setup::new().emulated(&emulator).start().await;
    let reply = Client::once(node.addresses()[0], chat("tiny", "")).await;
    assert_eq!((reply.status, reply.code()), (502, Some("replica_bad_response")));
    for garbage in
        ["SSH-2.0-OpenSSH\r\n", "HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 200 OK\r\nbad header\r\n\r\n"]
    {
        let replica = Scripted::start().await.serve(garbage);
        let node = Setup::new().replica("a", replica.address).start().await;
        let reply = Client::once(node.addresses()[0], chat("tiny", "")).await;
        assert_eq!(
            (reply.status, reply.code()),
            (502, Some("replica_bad_response")),
            "{garbage:?}"
        );
        assert_eq!(replica.requests.count(), 1, "it is not asked again");
    }
}

#[tokio::test]
async fn what_a_client_says_is_repeated_only_in_part() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    let long = "x".repeat(20_000);
    let json = format!("{{\"model\":\"{long}\"}}");
    let form =
        format!("--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\n{long}\r\n--b--\r\n");
    let upload = "multipart/form-data; boundary=b";
    let requests = || {
        [
            post("/v1/chat/completions", json.clone()),
            post("/v1/responses", json.clone()),
            message(Method::POST, "/v1/audio/transcriptions", upload, full(form.clone())),
            get(&format!("/v1/models/{long}")),
            get(&format!("/v1/responses/{long}")),
            get(&format!("/v2/models/{long}/ready")),
            get(&format!("/{long}")),
            message(
                Method::from_bytes(&long.as_bytes()[..300]).expect("a method"),
                "/v1/models",
                "a/b",
                full(""),
            ),
        ]
    };
    for client in &mut both(&node).await {
        for request in requests() {
            let asked = format!("{} {:.40}", request.method(), request.uri().path());
            let reply = client.fetch(request).await;
            assert!((400..500).contains(&reply.status), "{asked}: {}", reply.status);
            assert!(reply.body.len() < 1_000, "{asked}: {} bytes", reply.body.len());
        }
    }
}

#[tokio::test]
async fn a_replica_that_sends_informational_replies_without_end_has_broken_http() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    for status in ["102 Processing", "103 Early Hints"] {
        let reply = spawn(Client::once(node.addresses()[0], chat("tiny", "")));
        let (mut wire, _) = replica.request().await;
        let flood = format!("HTTP/1.1 {status}\r\n\r\n").repeat(1_000);
        let mut sent = 0;
        while wire.try_send(&flood).await.is_ok() {
            sent += flood.len();
            assert!(sent < 64 << 20, "it is read for ever");
        }
        let reply = reply.await.expect("a reply");
        assert_eq!((reply.status, reply.code()), (502, Some("replica_bad_response")));
    }
    // A few are allowed, as the protocol intends.
    let reply = spawn(Client::once(node.addresses()[0], chat("tiny", "")));
    let (mut wire, _) = replica.request().await;
    wire.send("HTTP/1.1 102 Processing\r\n\r\n".repeat(100)).await;
    wire.send(OK).await;
    assert_eq!(reply.await.expect("a reply").status, 200);
}

#[tokio::test]
async fn bodies_that_memory_has_no_place_for_get_503() {
    let replica = Scripted::start().await;
    let setup = Setup::new().set("limits.body_bytes_total_max = 100000");
    // Requests of a proxy come from many clients. A single client may not hold that much.
    let setup = setup.listener("trusted_proxies = [\"127.0.0.0/8\"]");
    let node = setup.replica("a", replica.address).start().await;
    let json = format!("{{\"model\":\"tiny\",\"x\":\"{}\"}}", "x".repeat(60_000));
    let address = node.addresses()[0];
    let first = spawn(Client::once(address, post("/v1/completions", json.clone())));
    let (mut wire, _) = replica.request().await;
    let reply = Client::once(address, post("/v1/completions", json.clone())).await;
    assert_eq!((reply.status, reply.code()), (503, Some("overloaded")));
    wire.send(OK).await;
    assert_eq!(first.await.expect("a reply").status, 200);
    let held = || Page::of(&node).sum("spillway_request_body_bytes", &[]);
    eventually("the memory is free again", || held() == 0.0).await;
    let (reply, ()) = tokio::join!(Client::once(address, post("/v1/completions", json)), async {
        wire.message().await;
        wire.send(OK).await;
    });
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn a_part_of_the_memory_for_bodies_is_for_short_ones() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new()
        .set("limits.body_bytes_total_max = 800000")
        .replica("a", replica.address)
        .start()
        .await;
    for (bytes, status) in [(650_000, 200), (750_000, 503), (60_000, 200)] {
        let json = format!("{{\"model\":\"tiny\",\"x\":\"{}\"}}", "x".repeat(bytes));
        let reply = Client::once(node.addresses()[0], post("/v1/completions", json)).await;
        assert_eq!(reply.status, status, "{bytes} bytes");
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_at_once() {
    let node = Setup::new().set("limits.connections_max = 3").start().await;
    let address = node.addresses()[0];
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut client = Client::http1(address).await;
        assert_eq!(client.fetch(get("/livez")).await.status, 200);
        held.push(client);
    }
    let mut wire = Wire::connect(address).await;
    assert_eq!(wire.end().await.0, b"");
    assert_eq!(closed(&node, "full"), 1.0);
    for client in &mut held {
        assert_eq!(client.fetch(get("/livez")).await.status, 200, "the others are unharmed");
    }
    drop(held);
    let open = || Page::of(&node).sum("spillway_client_connections", &[]);
    eventually("places are given back", || open() == 0.0).await;
    assert_eq!(Client::once(address, get("/livez")).await.status, 200);
}

#[tokio::test]
async fn one_client_cannot_take_all_connections() {
    let node = Setup::new().set("limits.connections_per_client_max = 2").start().await;
    let address = node.addresses()[0];
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = Client::http1(address).await;
        assert_eq!(client.fetch(get("/livez")).await.status, 200);
        held.push(client);
    }
    assert_eq!(Wire::connect(address).await.end().await.0, b"");
    assert_eq!((closed(&node, "client"), closed(&node, "full")), (1.0, 0.0));
    for client in &mut held {
        assert_eq!(client.fetch(get("/livez")).await.status, 200, "the others are unharmed");
    }
    drop(held.pop());
    let open = || Page::of(&node).sum("spillway_client_connections", &[]);
    eventually("a place is given back", || open() == 1.0).await;
    assert_eq!(Client::once(address, get("/livez")).await.status, 200);
}

#[tokio::test]
async fn clients_behind_a_proxy_are_told_apart_and_the_proxy_has_no_limit() {
    const LIVEZ: &str = "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";
    let listener = "proxy_protocol = \"required\"\ntrusted_proxies = [\"127.0.0.0/8\"]\n";
    let limit = "limits.connections_per_client_max = 1";
    let node = Setup::new().set(limit).listener(listener).start().await;
    let open = async |source: &str| {
        let mut wire = Wire::connect(node.addresses()[0]).await;
        let header = format!("PROXY TCP4 {source} 10.0.0.1 4711 80\r\n");
        drop(wire.try_send(format!("{header}{LIVEZ}")).await);
        wire
    };
    let mut held = Vec::new();
    for source in ["203.0.113.1", "203.0.113.2", "203.0.113.3"] {
        let mut wire = open(source).await;
        assert!(wire.head().await.starts_with("HTTP/1.1 200 "), "{source}");
        held.push(wire);
    }
    assert_eq!(open("203.0.113.2").await.end().await.0, b"");
    assert_eq!(closed(&node, "client"), 1.0);
}
