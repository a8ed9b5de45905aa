//! Tests that each fault has its effect, for its time, and that all requests are still counted
//! right.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use spillway_emulator::{Close, Fault, FaultError, ReplicaHandle};
use spillway_testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Connection, PATIENCE, Reply, chat, fast, get, next_frame, post, slow, until};

const CHAT: &str = "/v1/chat/completions";

/// Sends a chat request as bytes. Returns all received bytes and the way the connection ended.
async fn raw(replica: &ReplicaHandle, body: &Value) -> (String, std::io::Result<()>) {
    let mut stream = TcpStream::connect(replica.address()).await.unwrap();
    let body = body.to_string();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: e\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    let end = tokio::time::timeout(PATIENCE, async {
        loop {
            match stream.read(&mut chunk).await {
                Ok(0) => return Ok(()),
                Ok(count) => bytes.extend_from_slice(&chunk[..count]),
                Err(error) => return Err(error),
            }
        }
    });
    let end = end.await.expect("the connection stays open");
    (String::from_utf8_lossy(&bytes).into_owned(), end)
}

async fn is_refused(replica: &ReplicaHandle) -> bool {
    let error = TcpStream::connect(replica.address()).await.err();
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

#[tokio::test]
async fn a_crash_resets_connections_refuses_new_ones_and_forgets_the_cache() {
    let emulator = slow(1).await;
    let replica = emulator.replica(0);
    let prompt = "a prompt that fills some blocks of the cache for sure. ".repeat(4);
    let mut connection = Connection::open(replica).await;
    let mut response = connection.post(CHAT, &chat(&prompt, 1000, true)).await.unwrap();
    next_frame(&mut response).await.unwrap().unwrap();
    let mut idle = TcpStream::connect(replica.address()).await.unwrap();
    idle.write_all(b"GET /health HTTP/1.1\r\nhost: e\r\n\r\n").await.unwrap();
    assert!(idle.read(&mut [0; 1024]).await.unwrap() > 0, "served, so not only in the backlog");
    until(replica, |stats| stats.running == 1).await;

    replica.set_fault(Fault::Crash).await.unwrap();
    assert!(is_refused(replica).await);
    assert!(Reply::collect(response).await.is_err());
    let mut byte = [0];
    let read_idle = tokio::time::timeout(PATIENCE, idle.read(&mut byte)).await;
    let reset = read_idle.expect("the idle connection stays open").unwrap_err();
    assert_eq!(reset.kind(), std::io::ErrorKind::ConnectionReset);
    let stats = replica.stats();
    assert_eq!((stats.running, stats.aborted, stats.finished), (0, 1, 0));
    assert_eq!(stats.engine.kv_blocks_cached, 0);

    replica.set_fault(Fault::None).await.unwrap();
    let mut body = chat(&prompt, 1, false);
    body["stream"] = json!(false);
    let usage = post(replica, CHAT, &body).await.json()["usage"].clone();
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
    emulator.shutdown().await;
}

#[tokio::test]
async fn an_http2_crash_ends_all_streams_of_the_connection() {
    let emulator = slow(1).await;
    let replica = emulator.replica(0);
    let mut connection = Connection::open_h2(replica).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut response = connection.post(CHAT, &chat("hi", 1000, true)).await.unwrap();
        next_frame(&mut response).await.unwrap().unwrap();
        streams.push(response);
    }
    replica.set_fault(Fault::Crash).await.unwrap();
    for response in streams {
        assert!(Reply::collect(response).await.is_err());
    }
    assert_eq!(replica.stats().aborted, 3);
    emulator.shutdown().await;
}

#[tokio::test]
async fn refuse_closes_the_port_but_open_connections_go_on() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let mut connection = Connection::open(replica).await;
    let response = connection.post(CHAT, &chat("hi", 3, false)).await.unwrap();
    Reply::collect(response).await.unwrap();
    replica.set_fault(Fault::Refuse).await.unwrap();
    assert!(is_refused(replica).await);
    let response = connection.post(CHAT, &chat("hi", 3, false)).await.unwrap();
    assert_eq!(Reply::collect(response).await.unwrap().status, 200);
    replica.set_fault(Fault::None).await.unwrap();
    assert_eq!(get(replica, "/health").await.status, 200);
    emulator.shutdown().await;
}

#[tokio::test]
async fn hang_accepts_and_never_answers_but_can_still_be_controlled() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    replica.set_fault(Fault::Hang).await.unwrap();
    let mut connection = Connection::open(replica).await;
    let mut health = Connection::open(replica).await;
    let body = chat("hi", 3, false);
    tokio::select! {
        _ = connection.post(CHAT, &body) => panic!("answered"),
        _ = health.send(crate::client::request("GET", "/health", &[], "")) => panic!("healthy"),
        _ = async {
            until(replica, |stats| stats.received == 1).await;
            let fault = get(replica, "/emulator/fault").await.json();
            assert_eq!(fault["fault"]["kind"], "hang");
        } => {}
    }
    drop(connection);
    let stats = until(replica, |stats| stats.aborted == 1).await;
    assert_eq!(stats.started, 0);
    emulator.shutdown().await;
}

#[tokio::test]
async fn slow_stretches_every_step() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let time = async || {
        let start = Instant::now();
        post(replica, CHAT, &chat("hi", 20, false)).await;
        start.elapsed()
    };
    let healthy = time().await;
    replica.set_fault(Fault::Slow { factor: 20.0 }).await.unwrap();
    let slow = time().await;
    // 20 tokens of 54 ms at a hundredth of the time, twenty times slower.
    assert!(slow >= Duration::from_millis(200), "{slow:?}");
    assert!(slow > healthy * 3, "{slow:?}, healthy {healthy:?}");
    emulator.shutdown().await;
}

#[tokio::test]
async fn garbage_is_no_http_and_ends_the_connection() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    replica.set_fault(Fault::Garbage).await.unwrap();
    let (bytes, end) = raw(replica, &chat("hi", 3, false)).await;
    assert!(bytes.contains("garbage") && !bytes.contains("HTTP"), "{bytes:?}");
    assert!(end.is_ok(), "{end:?}");
    let mut connection = Connection::open_h2(replica).await;
    assert!(connection.post(CHAT, &chat("hi", 3, false)).await.is_err());
    replica.set_fault(Fault::None).await.unwrap();
    assert_eq!(get(replica, "/health").await.status, 200);
    emulator.shutdown().await;
}

#[tokio::test]
async fn status_answers_errors_with_retry_after_as_often_as_it_says() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let status = |code, probability| Fault::Status { code, retry_after_s: Some(7), probability };
    replica.set_fault(status(429, 1.0)).await.unwrap();
    let reply = post(replica, CHAT, &chat("hi", 3, false)).await;
    assert_eq!((reply.status, &reply.headers["retry-after"]), (429, &"7".parse().unwrap()));
    assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
    assert_eq!(get(replica, "/health").await.status, 200, "only inference fails");
    let infer = post(replica, "/v2/models/tiny/infer", &json!({})).await;
    assert!(infer.json()["error"].is_string(), "in the form of the protocol");

    replica.set_fault(status(503, 0.5)).await.unwrap();
    let mut failed = 0;
    for _ in 0..40 {
        failed += u32::from(post(replica, CHAT, &chat("hi", 1, false)).await.status == 503);
    }
    assert!((8..=32).contains(&failed), "{failed} of 40");
    let stats = until(replica, |stats| stats.finished + stats.rejected == 42).await;
    assert_eq!(stats.rejected, u64::from(failed) + 2);
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_cut_stream_ends_after_its_events_with_a_reset_or_a_close() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    for (close, after_events) in [(Close::Reset, 3), (Close::Fin, 3), (Close::Fin, 0)] {
        replica.set_fault(Fault::Cut { after_events, close }).await.unwrap();
        let (text, end) = raw(replica, &chat("hi", 50, true)).await;
        assert_eq!(text.matches("data: ").count() as u64, after_events, "{text}");
        assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
        assert!(!text.ends_with("\r\n0\r\n\r\n"), "an orderly end: {text}");
        assert_eq!(end.is_err(), close == Close::Reset, "{close:?}: {end:?}");
    }
    let stats = until(replica, |stats| stats.aborted == 3).await;
    assert_eq!((stats.finished, stats.running), (0, 0));
    emulator.shutdown().await;
}

#[tokio::test]
async fn an_http2_cut_ends_the_connection() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    for close in [Close::Reset, Close::Fin] {
        replica.set_fault(Fault::Cut { after_events: 3, close }).await.unwrap();
        let mut connection = Connection::open_h2(replica).await;
        let mut response = connection.post(CHAT, &chat("hi", 50, true)).await.unwrap();
        let mut text = Vec::new();
        while let Some(Ok(bytes)) = next_frame(&mut response).await {
            text.extend_from_slice(&bytes);
        }
        assert_eq!(String::from_utf8(text).unwrap().matches("data: ").count(), 3);
        eventually("the connection ends", || !connection.0.is_open()).await;
    }
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_whole_reply_is_cut_in_its_middle() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    replica.set_fault(Fault::Cut { after_events: 5, close: Close::Fin }).await.unwrap();
    let (text, end) = raw(replica, &chat("hi", 50, false)).await;
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    assert_eq!(body.len(), length.parse::<usize>().unwrap() / 2);
    assert!(end.is_ok());
    until(replica, |stats| stats.aborted == 1).await;
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_stalled_stream_stays_open_and_sends_nothing_more() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    replica.set_fault(Fault::Stall { after_events: 2 }).await.unwrap();
    let mut connection = Connection::open(replica).await;
    let mut response = connection.post(CHAT, &chat("hi", 5, true)).await.unwrap();
    let mut text = String::new();
    while text.matches("data: ").count() < 2 {
        let frame = next_frame(&mut response).await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(&frame).unwrap());
    }
    // The engine generates all tokens, but none of them is sent.
    until(replica, |stats| stats.engine.generation_tokens == 5 && stats.running == 0).await;
    let quiet = tokio::time::timeout(Duration::from_millis(50), next_frame(&mut response)).await;
    assert!(quiet.is_err(), "{quiet:?}");
    assert_eq!(text.matches("data: ").count(), 2);
    assert_eq!(replica.stats().finished, 0);
    drop((response, connection));
    until(replica, |stats| stats.aborted == 1).await;
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_fault_strikes_streams_that_run_already() {
    let emulator = slow(1).await;
    let replica = emulator.replica(0);
    let mut connection = Connection::open(replica).await;
    let mut response = connection.post(CHAT, &chat("hi", 1000, true)).await.unwrap();
    next_frame(&mut response).await.unwrap().unwrap();
    replica.set_fault(Fault::Cut { after_events: 0, close: Close::Reset }).await.unwrap();
    assert!(Reply::collect(response).await.is_err());
    until(replica, |stats| stats.aborted == 1).await;
    emulator.shutdown().await;
}

#[tokio::test]
async fn faults_are_set_over_http_on_any_replica_and_for_a_time() {
    let emulator = fast(2).await;
    let fault = async |body: Value| post(emulator.replica(0), "/emulator/fault", &body).await;
    let refuse = json!({ "fault": { "kind": "refuse" }, "replica": 1 });
    assert_eq!(fault(refuse).await.status, 200);
    assert!(is_refused(emulator.replica(1)).await);
    let heal = json!({ "fault": { "kind": "none" }, "replica": 1 });
    assert_eq!(fault(heal).await.status, 200);
    assert_eq!(get(emulator.replica(1), "/health").await.status, 200);

    let brief = json!({ "fault": { "kind": "crash" }, "for_ms": 30 });
    assert_eq!(fault(brief).await.status, 202, "it answers before it dies");
    until_fault(emulator.replica(0), Fault::Crash).await;
    until_fault(emulator.replica(0), Fault::None).await;
    tokio::time::timeout(PATIENCE, async { while is_refused(emulator.replica(0)).await {} })
        .await
        .unwrap();
    for (body, status) in [
        (json!({ "fault": { "kind": "none" }, "replica": 9 }), 404),
        (json!({ "fault": { "kind": "slow", "factor": 0 } }), 400),
        (json!({ "fault": { "kind": "explode" } }), 400),
        (json!({ "fault": { "kind": "none" }, "forms": 3 }), 400),
    ] {
        assert_eq!(fault(body.clone()).await.status, status, "{body}");
    }
    emulator.shutdown().await;
}

async fn until_fault(replica: &ReplicaHandle, fault: Fault) {
    until(replica, |_| replica.fault() == fault).await;
}

#[tokio::test]
async fn a_timed_fault_does_not_end_the_one_that_replaced_it() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let brief = json!({ "fault": { "kind": "slow", "factor": 2 }, "for_ms": 20 });
    post(replica, "/emulator/fault", &brief).await;
    replica.set_fault(Fault::Slow { factor: 3.0 }).await.unwrap();
    let slow = async { until_fault(replica, Fault::None).await };
    assert!(tokio::time::timeout(Duration::from_millis(100), slow).await.is_err());
    assert_eq!(replica.fault(), Fault::Slow { factor: 3.0 });
    emulator.shutdown().await;
}

#[tokio::test]
async fn impossible_faults_are_refused_and_change_nothing() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let error = replica.set_fault(Fault::Slow { factor: -1.0 }).await.unwrap_err();
    assert!(matches!(error, FaultError::OutOfRange { field: "factor", .. }));
    assert_eq!(replica.fault(), Fault::None);
    let replica = replica.clone();
    emulator.shutdown().await;
    let error = replica.set_fault(Fault::Refuse).await.unwrap_err();
    assert!(matches!(error, FaultError::ShuttingDown));
}
