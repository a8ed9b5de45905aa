//! HTTP/2 clients that misuse features of the protocol.

use spillway_node::Node;
use spillway_tests::{Client, OK, Page, RAW_ROUTE, Scripted, Setup, Wire, chat, eventually, spawn};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// GET http://x/raw, complete.
fn request(stream: u32) -> Vec<u8> {
    frame(HEADERS, 0x5, stream, b"\x82\x86\x01\x01x\x04\x04/raw")
}

/// RST_STREAM with CANCEL.
fn cancel(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])
}

/// The next frame that is of one of these kinds: kind, stream, payload.
pub(crate) async fn next(wire: &mut Wire, kinds: &[u8]) -> (u8, u32, Vec<u8>) {
    loop {
        let head = wire.exactly(9).await;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let payload = wire.exactly(usize::try_from(length).expect("short")).await;
        if kinds.contains(&head[3]) {
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            return (head[3], stream, payload);
        }
    }
}

async fn check_after_abuse(node: &Node) {
    let resets =
        || Page::of(node).sum("spillway_client_connections_closed_total", &[("reason", "resets")]);
    eventually("it is counted", || resets() == 1.0).await;
    let in_flight = || Page::of(node).sum("spillway_replica_in_flight", &[]);
    eventually("all places are free", || in_flight() == 0.0).await;
}

#[tokio::test]
async fn an_idle_client_is_told_that_its_connection_ends() {
    let node = Setup::new().set("limits.idle_timeout_ms = 200").start().await;
    let mut wire = Wire::connect(node.addresses()[0]).await;
    wire.send(PREFACE).await;
    let (_, stream, _) = next(&mut wire, &[GOAWAY]).await;
    assert_eq!(stream, 0);
    // It never answers the ping that comes along, and is left all the same.
    wire.end().await;
    let idle =
        || Page::of(&node).sum("spillway_client_connections_closed_total", &[("reason", "idle")]);
    eventually("it is counted", || idle() == 1.0).await;
}

#[tokio::test]
async fn rapid_resets_close_their_connection_and_no_other() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().table(RAW_ROUTE).replica("a", replica.address).start().await;
    let mut honest = Client::http2(node.addresses()[0]).await;
    assert_eq!(honest.fetch(chat("tiny", "")).await.status, 200);
    let mut wire = Wire::connect(node.addresses()[0]).await;
    wire.send(PREFACE).await;
    let mut sent = 0;
    for batch in 0..100_u32 {
        let mut bytes = Vec::new();
        for number in 0..100 {
            let stream = (batch * 100 + number) * 2 + 1;
            bytes.extend(request(stream));
            bytes.extend(cancel(stream));
        }
        if wire.try_send(bytes).await.is_err() {
            break;
        }
        sent += 100;
    }
    wire.end().await;
    assert!(sent > 0);
    check_after_abuse(&node).await;
    assert_eq!(honest.fetch(chat("tiny", "")).await.status, 200);
}

#[tokio::test]
async fn floods_of_control_frames_close_their_connection_and_no_other() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().replica("a", replica.address).start().await;
    let mut honest = Client::http2(node.addresses()[0]).await;
    let floods = [
        frame(2, 0, 1, &[0, 0, 0, 0, 1]),
        frame(4, 0, 0, &[0, 4, 0, 1, 0, 0]),
        frame(6, 0, 0, b"a flood!"),
        frame(8, 0, 0, &[0, 0, 0, 1]),
        frame(99, 0, 0, b"unknown"),
    ];
    for (number, flood) in floods.iter().enumerate() {
        let mut wire = Wire::connect(node.addresses()[0]).await;
        wire.send(PREFACE).await;
        let batch = flood.repeat(100);
        let mut sent = 0;
        while wire.try_send(&batch).await.is_ok() {
            sent += batch.len();
            assert!(sent < 64 << 20, "frames of kind {} go on for ever", flood[3]);
        }
        wire.end().await;
        let closed = || {
            Page::of(&node).sum("spillway_client_connections_closed_total", &[("reason", "frames")])
        };
        eventually("it is counted", || closed() == (number + 1) as f64).await;
        assert_eq!(honest.fetch(chat("tiny", "")).await.status, 200);
    }
}

#[tokio::test]
async fn an_honest_client_s_pings_and_windows_end_nothing() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    let mut wire = Wire::connect(node.addresses()[0]).await;
    wire.send(PREFACE).await;
    // As many as come with a page of streams, and then a reply whose pieces are acknowledged one by one.
    for _ in 0..900 {
        wire.send(frame(8, 0, 0, &[0, 0, 0, 1])).await;
    }
    let mut client = Client::http2(node.addresses()[0]).await;
    let reply = spawn(async move { client.fetch(chat("tiny", "")).await });
    let (mut served, _) = replica.request().await;
    served.send(OK).await;
    assert_eq!(reply.await.expect("a reply").status, 200);
    wire.send(frame(6, 0, 0, b"pingpong")).await;
    let is_answer = |(kind, _, payload): &(u8, u32, Vec<u8>)| *kind == 6 && payload == b"pingpong";
    while !is_answer(&next(&mut wire, &[6]).await) {}
}

#[tokio::test]
async fn resets_one_by_one_close_their_connection_too() {
    let replica = Scripted::start().await;
    let setup = Setup::new()
        .with(|config| config.gateway.limits.resets_per_connection_max = 20)
        .table(RAW_ROUTE);
    let node = setup.replica("a", replica.address).start().await;
    let mut wire = Wire::connect(node.addresses()[0]).await;
    wire.send(PREFACE).await;
    for number in 0..21 {
        wire.send(request(number * 2 + 1)).await;
        // Each is at the replica before it is abandoned, and gone from it after.
        let (mut taken, _) = replica.request().await;
        wire.send(cancel(number * 2 + 1)).await;
        taken.end().await;
    }
    wire.end().await;
    check_after_abuse(&node).await;
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused() {
    let replica = Scripted::start().await;
    let setup = Setup::new()
        .with(|config| config.gateway.limits.streams_per_connection_max = 4)
        .table(RAW_ROUTE);
    let node = setup.replica("a", replica.address).start().await;
    let mut wire = Wire::connect(node.addresses()[0]).await;
    wire.send(PREFACE).await;
    let mut taken = Vec::new();
    for number in 0..4 {
        wire.send(request(number * 2 + 1)).await;
        taken.push(replica.request().await.0);
    }
    for number in 4..6 {
        wire.send(request(number * 2 + 1)).await;
        let (kind, stream, payload) = next(&mut wire, &[RST_STREAM, GOAWAY]).await;
        assert_eq!((kind, stream), (RST_STREAM, number * 2 + 1));
        assert_eq!(payload, [0, 0, 0, 7], "REFUSED_STREAM");
    }
    for replica in &mut taken {
        replica.send(OK).await;
        assert_eq!(next(&mut wire, &[HEADERS, GOAWAY]).await.0, HEADERS);
    }
    assert!(replica.is_alone().await);
}

#[tokio::test]
async fn one_stream_that_is_not_read_hinders_no_other() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    let mut client = Client::http2(node.addresses()[0]).await;
    let (response, mut wire) = tokio::join!(client.send(chat("tiny", "")), async {
        let (mut wire, _) = replica.request().await;
        wire.send("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n").await;
        wire
    });
    let held = response.expect("a head");
    wire.send_until_blocked(&[7; 1 << 16], 1_000_000_000).await;
    let (reply, ()) = tokio::join!(client.fetch(chat("tiny", "")), async {
        let (mut wire, _) = replica.request().await;
        wire.send(OK).await;
    });
    assert_eq!(reply.body, "ok");
    drop(held);
    wire.end().await;
}

/// The head of a reply with this status, on the first stream.
pub(crate) fn reply_head(status: &str, flags: u8) -> Vec<u8> {
    frame(HEADERS, flags, 1, &[b"\x08\x03", status.as_bytes()].concat())
}

#[tokio::test]
async fn a_replica_that_sends_informational_replies_without_end_is_cut_off() {
    let replica = Scripted::start().await;
    let url = format!("http://{}", replica.address);
    let node = Setup::new().replica_with("a", &url, "protocol = \"http2\"").start().await;
    let interim = reply_head("103", 0x4).repeat(100);
    let asked = async || {
        let mut wire = replica.accept().await;
        wire.exactly(24).await;
        wire.send(frame(4, 0, 0, &[])).await;
        next(&mut wire, &[HEADERS]).await;
        wire
    };
    let reply = spawn(Client::once(node.addresses()[0], chat("tiny", "")));
    let mut wire = asked().await;
    let mut sent = 0;
    while wire.try_send(&interim).await.is_ok() {
        sent += interim.len();
        assert!(sent < 64 << 20, "it is read for ever");
    }
    assert_eq!(reply.await.expect("a reply").status, 502);
    // A few are allowed, as the protocol intends.
    let reply = spawn(Client::once(node.addresses()[0], chat("tiny", "")));
    let mut wire = asked().await;
    wire.send(&interim).await;
    wire.send(reply_head("200", 0x5)).await;
    assert_eq!(reply.await.expect("a reply").status, 200);
}

#[tokio::test]
async fn header_blocks_of_very_many_fields_close_their_connection_and_no_other() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().replica("a", replica.address).start().await;
    let mut honest = Client::http2(node.addresses()[0]).await;
    // Each byte encodes one field. The library refuses such a request by itself.
    let block = [&b"\x82\x86\x01\x01x\x04\x04/raw"[..], &[0x90; 4_000]].concat();
    let mut wire = Wire::connect(node.addresses()[0]).await;
    wire.send(PREFACE).await;
    let mut sent = 0;
    for stream in (1..).step_by(2) {
        if wire.try_send(frame(HEADERS, 0x5, stream, &block)).await.is_err() {
            break;
        }
        sent += block.len();
        assert!(sent < 64 << 20, "they go on for ever");
    }
    wire.end().await;
    let closed =
        || Page::of(&node).sum("spillway_client_connections_closed_total", &[("reason", "frames")]);
    eventually("it is counted", || closed() == 1.0).await;
    assert_eq!(honest.fetch(chat("tiny", "")).await.status, 200);
}
