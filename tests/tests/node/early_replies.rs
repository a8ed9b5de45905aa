//! Replies that a replica sends before it has the whole upload.

use bytes::Bytes;
use http::Method;
use spillway_node::Node;
use spillway_tests::{
    Client, Closed, Page, RAW_ROUTE, Scripted, Setup, Wire, eventually, message, noise, spawn,
    streamed,
};

use crate::http2::{DATA, HEADERS, RST_STREAM, frame, next, reply_head};

/// Bytes of an upload: more than all sockets on the path can buffer.
const UPLOAD_BYTES: usize = 24 << 20;
/// Part of it that is sent before the reply.
const FIRST_BYTES: usize = 100_000;
const REFUSALS: [&str; 3] = [
    "HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig",
    "HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 3\r\n\r\nbig",
    "HTTP/1.1 413 Too Large\r\ntransfer-encoding: chunked\r\n\r\n3\r\nbig\r\n0\r\n\r\n",
];

async fn node_for(replica: &Scripted, lines: &str) -> Node {
    let url = format!("http://{}", replica.address);
    Setup::new().table(RAW_ROUTE).replica_with("a", &url, lines).start().await
}

fn replies(node: &Node, status: &str) -> f64 {
    Page::of(node).sum("spillway_requests_total", &[("status", status)])
}

/// A client that reads nothing before its whole upload is sent.
struct Uploader {
    wire: Wire,
    upload: Bytes,
    is_chunked: bool,
}

impl Uploader {
    async fn start(node: &Node, is_chunked: bool) -> Self {
        let mut wire = Wire::connect(node.addresses()[0]).await;
        let framing = match is_chunked {
            true => "transfer-encoding: chunked".to_owned(),
            false => format!("content-length: {UPLOAD_BYTES}"),
        };
        wire.send(format!("POST /raw/x HTTP/1.1\r\nhost: x\r\n{framing}\r\n\r\n")).await;
        let mut uploader = Self { wire, upload: noise(UPLOAD_BYTES), is_chunked };
        uploader.send(FIRST_BYTES).await;
        uploader
    }

    async fn send(&mut self, bytes: usize) {
        let piece = self.upload.split_to(bytes);
        if self.is_chunked {
            self.wire.send(format!("{bytes:x}\r\n")).await;
        }
        self.wire.send(piece).await;
        if self.is_chunked {
            self.wire.send("\r\n").await;
        }
    }

    /// Sends the rest, and then reads the reply and the end of the connection.
    async fn finish(mut self) {
        self.send(UPLOAD_BYTES - FIRST_BYTES).await;
        let reply = self.wire.message().await;
        assert!(reply.head.starts_with("HTTP/1.1 413 "), "{}", reply.head);
        assert_eq!(reply.header("connection"), Some("close"), "{}", reply.head);
        assert_eq!(reply.text(), "big");
        assert_eq!(self.wire.end().await, (Vec::new(), Closed::Fin));
    }
}

#[tokio::test]
async fn a_reply_before_the_end_of_an_upload_reaches_a_client_that_reads_it_last() {
    let replica = Scripted::start().await;
    let node = node_for(&replica, "").await;
    let mut count = 0.0;
    for refusal in REFUSALS {
        for (is_chunked, closes) in [(false, false), (false, true), (true, false), (true, true)] {
            let uploader = Uploader::start(&node, is_chunked).await;
            let mut wire = replica.accept().await;
            wire.head().await;
            wire.send(refusal).await;
            // Unread bytes turn the replica's close into a reset.
            let open = (!closes).then_some(wire);
            count += 1.0;
            eventually("the reply has ended", || replies(&node, "413") == count).await;
            uploader.finish().await;
            if let Some(mut open) = open {
                open.end().await;
            }
        }
    }
}

#[tokio::test]
async fn a_reply_over_http2_before_the_end_of_an_upload_reaches_such_a_client_too() {
    let replica = Scripted::start().await;
    let node = node_for(&replica, "protocol = \"http2\"").await;
    for (index, (resets, closes)) in
        [(false, false), (true, false), (true, true), (false, true)].into_iter().enumerate()
    {
        let uploader = Uploader::start(&node, false).await;
        let mut wire = replica.accept().await;
        wire.exactly(24).await;
        wire.send(frame(4, 0, 0, &[])).await;
        let (_, stream, _) = next(&mut wire, &[HEADERS]).await;
        assert_eq!(stream, 1);
        let mut reply = [reply_head("413", 0x4), frame(DATA, 0x1, 1, b"big")].concat();
        if resets {
            // RST_STREAM with NO_ERROR: the rest of the upload is not wanted.
            reply.extend(frame(RST_STREAM, 0, 1, &[0; 4]));
        }
        wire.send(reply).await;
        let open = (!closes).then_some(wire);
        let count = index as f64 + 1.0;
        eventually("the reply has ended", || replies(&node, "413") == count).await;
        uploader.finish().await;
        if let Some(wire) = open {
            // The next upload needs a connection of its own here.
            wire.reset();
            let connections = || Page::of(&node).sum("spillway_replica_connections", &[]);
            eventually("the connection is gone", || connections() == 0.0).await;
        }
    }
}

#[tokio::test]
async fn an_http2_client_gets_such_a_reply_and_can_send_all_of_its_upload() {
    let replica = Scripted::start().await;
    let node = node_for(&replica, "").await;
    let mut client = Client::http2(node.addresses()[0]).await;
    for refusal in REFUSALS {
        for closes in [false, true] {
            let (pieces, body) = streamed();
            let upload = spawn(async move {
                let mut sent = 0;
                while sent < UPLOAD_BYTES && pieces.send(noise(FIRST_BYTES)).await.is_ok() {
                    sent += FIRST_BYTES;
                }
                sent
            });
            let request = message(Method::POST, "/raw/x", "application/octet-stream", body);
            let (reply, open) = tokio::join!(client.fetch(request), async {
                let mut wire = replica.accept().await;
                wire.head().await;
                wire.send(refusal).await;
                (!closes).then_some(wire)
            });
            assert_eq!((reply.status, reply.text()), (413, "big"));
            // A reset of the stream would end it before.
            assert!(upload.await.expect("an upload") >= UPLOAD_BYTES);
            drop(open);
        }
    }
}

#[tokio::test]
async fn a_client_that_asked_before_it_sent_gets_the_reply_as_well() {
    let replica = Scripted::start().await;
    let node = node_for(&replica, "").await;
    let mut client = Wire::connect(node.addresses()[0]).await;
    let head = format!(
        "POST /raw/x HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n\
         content-length: {UPLOAD_BYTES}\r\n\r\n"
    );
    client.send(head).await;
    let mut wire = replica.accept().await;
    wire.head().await;
    assert!(client.head().await.starts_with("HTTP/1.1 100 "));
    client.send(noise(FIRST_BYTES)).await;
    wire.send(REFUSALS[0]).await;
    let reply = client.message().await;
    assert!(reply.head.starts_with("HTTP/1.1 413 "), "{}", reply.head);
    assert_eq!(reply.text(), "big");
    // It saw the reply, and ends instead of sending the rest.
    client.finish().await;
    assert_eq!(client.end().await, (Vec::new(), Closed::Fin));
}

#[tokio::test]
async fn a_connection_with_half_an_upload_serves_no_other_request() {
    let replica = Scripted::start().await;
    let node = node_for(&replica, "").await;
    let uploader = Uploader::start(&node, false).await;
    let mut wire = replica.accept().await;
    wire.head().await;
    wire.send(REFUSALS[0]).await;
    eventually("the reply has ended", || replies(&node, "413") == 1.0).await;
    let request = message(Method::POST, "/raw/x", "text/plain", spillway_tests::full("short"));
    let reply = spawn(Client::once(node.addresses()[0], request));
    let (mut second, asked) = replica.request().await;
    assert_eq!(asked.text(), "short");
    second.send(spillway_tests::OK).await;
    assert_eq!(reply.await.expect("a reply").status, 200);
    uploader.finish().await;
}

#[tokio::test]
async fn an_upload_that_goes_on_during_its_reply_arrives_whole() {
    let replica = Scripted::start().await;
    let node = node_for(&replica, "").await;
    let mut client = Wire::connect(node.addresses()[0]).await;
    client.send("POST /raw/x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n").await;
    let mut wire = replica.accept().await;
    wire.head().await;
    wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    for _ in 0..5 {
        client.send("5\r\nthere\r\n").await;
        assert_eq!(wire.chunk().await.as_deref(), Some(&b"there"[..]));
        wire.send("4\r\nback\r\n").await;
        assert_eq!(client.chunk().await.as_deref(), Some(&b"back"[..]));
    }
    client.send("0\r\n\r\n").await;
    assert_eq!(wire.chunk().await, None);
    wire.send("0\r\n\r\n").await;
    assert_eq!(client.chunk().await, None);
}

#[tokio::test]
async fn a_refusal_of_the_gateway_reaches_a_client_that_reads_it_last() {
    let replica = Scripted::start().await;
    let node = node_for(&replica, "").await;
    let mut client = Wire::connect(node.addresses()[0]).await;
    let head =
        format!("POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: {UPLOAD_BYTES}\r\n\r\n");
    client.send(head).await;
    client.send(noise(UPLOAD_BYTES)).await;
    let reply = client.message().await;
    assert!(reply.head.starts_with("HTTP/1.1 404 "), "{}", reply.head);
    assert_eq!(reply.header("connection"), Some("close"));
    assert_eq!(client.end().await, (Vec::new(), Closed::Fin));
}
