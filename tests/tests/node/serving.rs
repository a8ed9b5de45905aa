//! Plain proxying: bytes pass unchanged, on both versions of HTTP and in both directions.

use bytes::Bytes;
use http::{Method, Request};
use spillway_tests::{
    Client, Closed, OK, Page, RAW_ROUTE, Reply, Scripted, Setup, Wire, both, chat, emulator,
    eventually, full, message, noise, post, streamed,
};

#[tokio::test]
async fn request_bodies_arrive_byte_for_byte() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().table(RAW_ROUTE).replica("a", replica.address).start().await;
    for client in &mut both(&node).await {
        for length in [1, 2, 1023, 65_535, 1 << 20] {
            let body = noise(length);
            let request = message(Method::POST, "/raw/x", "a/b", full(body.clone()));
            assert_eq!(client.fetch(request).await.status, 200);
            assert_eq!(replica.requests.last().body, body, "{length} bytes");

            let (pieces, streaming) = streamed();
            let sent = body.clone();
            let sender = spillway_tests::spawn(async move {
                for piece in sent.chunks(100_000) {
                    pieces.send(Bytes::copy_from_slice(piece)).await.expect("is read");
                }
            });
            let request = message(Method::PUT, "/raw/x?q=%20", "a/b", streaming);
            assert_eq!(client.fetch(request).await.status, 200);
            sender.await.expect("sends all");
            let arrived = replica.requests.last();
            assert_eq!(arrived.body, body, "{length} bytes without a length");
            assert_eq!(arrived.first_line(), "PUT /raw/x?q=%20 HTTP/1.1");
        }
    }
}

#[tokio::test]
async fn json_bodies_arrive_byte_for_byte() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().replica("a", replica.address).start().await;
    for client in &mut both(&node).await {
        for length in [0, 1, 1000, 1 << 20] {
            let filler = "x".repeat(length);
            let body = format!("{{ \"input\" :\t[\"{filler}\\u00e9\"],\r\n\"model\":\"tiny\" }}\n");
            assert_eq!(client.fetch(post("/v1/embeddings", body.clone())).await.status, 200);
            assert_eq!(replica.requests.last().text(), body);
        }
    }
}

#[tokio::test]
async fn one_client_connection_serves_many_requests() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().replica("a", replica.address).start().await;
    for (client, before) in both(&node).await.iter_mut().zip([0, 20]) {
        for _ in 0..20 {
            assert_eq!(client.fetch(chat("tiny", "")).await.body, "ok");
        }
        assert_eq!(replica.requests.count(), before + 20);
        assert!(client.is_open());
    }
}

#[tokio::test]
async fn trailers_of_a_reply_are_passed_on() {
    let reply = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                 3\r\nabc\r\n0\r\nx-sum: 7\r\n\r\n";
    let replica = Scripted::start().await.serve(reply);
    let node = Setup::new().replica("a", replica.address).start().await;

    let mut http2 = Client::http2(node.addresses()[0]).await;
    let reply = http2.fetch(chat("tiny", "")).await;
    assert_eq!(reply.body, "abc");
    assert_eq!(reply.trailers.expect("trailers")["x-sum"], "7");

    let mut wire = Wire::connect(node.addresses()[0]).await;
    let body = r#"{"model":"tiny"}"#;
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nte: trailers\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    wire.send(head + body).await;
    let reply = wire.message().await;
    assert_eq!(reply.text(), "abc");
    assert_eq!(reply.trailers, "x-sum: 7\r\n");
}

#[tokio::test]
async fn a_client_that_asks_first_is_told_to_go_on_or_why_not() {
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new().set("limits.body_bytes_max = 1000").replica("a", replica.address);
    let node = setup.start().await;
    let mut wire = Wire::connect(node.addresses()[0]).await;
    let head = |length: usize| {
        format!(
            "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n\
             content-length: {length}\r\n\r\n"
        )
    };
    let body = r#"{"model":"tiny"}"#;
    wire.send(head(body.len())).await;
    assert!(wire.head().await.starts_with("HTTP/1.1 100 "));
    wire.send(body).await;
    assert_eq!(wire.message().await.text(), "ok");

    wire.send(head(1001)).await;
    let reply = wire.message().await;
    assert_eq!(reply.status(), 413, "no 100 before it");
    assert_eq!(replica.requests.count(), 1);
}

#[tokio::test]
async fn head_is_answered_without_a_body_and_the_connection_goes_on() {
    let replica = Scripted::start().await.serve("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n");
    let node = Setup::new().table(RAW_ROUTE).replica("a", replica.address).start().await;
    let mut wire = Wire::connect(node.addresses()[0]).await;
    for _ in 0..2 {
        wire.send("HEAD /raw HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let head = wire.head().await;
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("content-length: 5"), "{head}");
        wire.send("HEAD /v1/models HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!(wire.head().await.starts_with("HTTP/1.1 200 "));
    }
    let head = Request::head("/raw").body(full("")).expect("a request");
    let mut http2 = Client::http2(node.addresses()[0]).await;
    let reply = http2.fetch(head).await;
    assert_eq!((reply.status, reply.body.len()), (200, 0));
    eventually("all places are free", || {
        Page::of(&node).sum("spillway_replica_in_flight", &[]) == 0.0
    })
    .await;
}

#[tokio::test]
async fn a_client_that_reads_slowly_holds_its_replica_back() {
    const BYTES: usize = 48 << 20;
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    for client in &mut both(&node).await {
        let (response, mut wire) = tokio::join!(client.send(chat("tiny", "")), async {
            let (mut wire, _) = replica.request().await;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {BYTES}\r\n\r\n");
            wire.send(head).await;
            wire
        });
        let response = response.expect("a head");
        let taken = wire.send_until_blocked(&[7; 1 << 16], BYTES).await;
        assert!(taken < BYTES / 4 * 3, "{taken} bytes were taken for a client that reads none");
        let (reply, ()) = tokio::join!(Reply::collect(response), async {
            let mut left = BYTES - taken;
            while left > 0 {
                let piece = left.min(1 << 16);
                wire.send(&[7; 1 << 16][..piece]).await;
                left -= piece;
            }
        });
        assert_eq!(reply.expect("a whole reply").body.len(), BYTES);
    }
}

#[tokio::test]
async fn events_come_through_as_the_replica_wrote_them() {
    let events = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n\
                  : a comment\n\n\
                  event: odd\r\ndata: 1\r\ndata: 2\r\n\r\n\
                  data: [DONE]\n\n";
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    for client in &mut both(&node).await {
        let (response, mut wire) = tokio::join!(client.send(chat("tiny", "")), async {
            let (mut wire, _) = replica.request().await;
            wire.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
            wire
        });
        let script = async {
            for piece in events.as_bytes().chunks(7) {
                wire.send(piece).await;
                tokio::task::yield_now().await;
            }
            wire.finish().await;
        };
        let response = response.expect("a head");
        let (reply, ()) = tokio::join!(Reply::collect(response), script);
        assert_eq!(reply.expect("a whole reply").text(), events);
    }
}

#[tokio::test]
async fn a_stream_through_the_gateway_equals_the_stream_from_the_replica() {
    let emulator = emulator(1).await;
    let node = Setup::new().emulated(&emulator).start().await;
    let request = || chat("tiny", r#","stream":true,"max_tokens":40"#);
    let direct = plain(&Client::once(emulator.addresses()[0], request()).await);
    assert!(direct.len() > 40, "{} events", direct.len());
    for client in &mut both(&node).await {
        let reply = client.fetch(request()).await;
        assert_eq!(reply.header("content-type"), Some("text/event-stream; charset=utf-8"));
        assert_eq!(plain(&reply), direct);
    }
}

/// The events without what differs between any two requests.
fn plain(reply: &Reply) -> Vec<String> {
    let plain = |event: &str| {
        let Some(json) = event.strip_prefix("data: {") else { return event.to_owned() };
        let mut value: serde_json::Value =
            serde_json::from_str(&format!("{{{json}")).expect("JSON");
        value["id"] = "".into();
        value["created"] = 0.into();
        value.to_string()
    };
    reply.events().into_iter().map(plain).collect()
}

#[tokio::test]
async fn an_http_1_0_client_gets_its_reply_and_the_end_of_the_connection() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().replica("a", replica.address).start().await;
    let mut wire = Wire::connect(node.addresses()[0]).await;
    let body = r#"{"model":"tiny"}"#;
    let head = format!(
        "POST /v1/completions HTTP/1.0\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    wire.send(head + body).await;
    assert_eq!(wire.message().await.text(), "ok");
    assert_eq!(wire.end().await, (Vec::new(), Closed::Fin));
}
