//! Tests that every request is counted exactly once, and that a client that disconnects stops its
//! request.

use std::time::Instant;

use serde_json::Value;
use spillway_emulator::{CallOutcome, ReplicaHandle, ReplicaStats};
use tokio::net::TcpStream;

use crate::client::{
    Connection, Reply, call, chat, fast, get, next_frame, post, request, slow, ten_times_slower,
    until,
};

const CHAT: &str = "/v1/chat/completions";

fn assert_balanced(stats: &ReplicaStats) {
    assert_eq!(stats.received, stats.finished + stats.aborted + stats.rejected, "{stats:?}");
    assert_eq!((stats.running, stats.waiting), (0, 0), "{stats:?}");
}

#[tokio::test]
async fn requests_are_recorded_by_id_with_their_outcome() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let body = chat("hi", 3, false).to_string();
    let send = async |id: &'static str, body: String| {
        call(replica, "POST", CHAT, &[("x-request-id", id)], body).await
    };
    send("good", body.clone()).await;
    send("bad", "{}".to_owned()).await;
    let stats = until(replica, |stats| stats.finished == 1).await;
    let records: Vec<(Option<&str>, CallOutcome)> = stats
        .last_requests
        .iter()
        .map(|record| (record.request_id.as_deref(), record.outcome))
        .collect();
    assert_eq!(
        records,
        [(Some("good"), CallOutcome::Finished), (Some("bad"), CallOutcome::Rejected)]
    );
    assert_balanced(&stats);
    emulator.shutdown().await;
}

#[tokio::test]
async fn headers_and_credentials_of_clients_are_noticed() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let body = chat("hi", 3, false).to_string();
    call(replica, "POST", CHAT, &[("x-mark", "one")], body.clone()).await;
    assert_eq!(replica.stats().authorization_seen, 0);
    assert_eq!(replica.last_headers()["x-mark"], "one");
    call(replica, "POST", CHAT, &[("authorization", "Bearer k")], body).await;
    assert_eq!(replica.stats().authorization_seen, 1);
    assert!(!replica.last_headers().contains_key("x-mark"));
    emulator.shutdown().await;
}

/// Sends `body`, disconnects once it runs, and returns after how many milliseconds it was aborted.
async fn leave(replica: &ReplicaHandle, mut connection: Connection, body: &Value) -> f64 {
    let mut response = None;
    if body["stream"] == true {
        let mut begun = connection.post(CHAT, body).await.unwrap();
        next_frame(&mut begun).await.unwrap().unwrap();
        response = Some(begun);
    } else {
        tokio::select! {
            _ = connection.post(CHAT, body) => panic!("answered too early"),
            _ = until(replica, |stats| stats.running == 1) => {}
        }
    }
    let left = Instant::now();
    drop(response);
    drop(connection);
    until(replica, |stats| stats.aborted == 1 && stats.running == 0).await;
    left.elapsed().as_secs_f64() * 1e3
}

#[tokio::test]
async fn a_client_that_leaves_frees_the_engine_at_once() {
    for (h2, stream) in [(false, true), (false, false), (true, true), (true, false)] {
        let emulator = ten_times_slower(1).await;
        let replica = emulator.replica(0);
        let connection = match h2 {
            true => Connection::open_h2(replica).await,
            false => Connection::open(replica).await,
        };
        let took_ms = leave(replica, connection, &chat("hi", 1000, stream)).await;
        println!("http2 {h2}, stream {stream}: aborted after {took_ms:.2} ms");
        // About 1 ms on a quiet machine. A token takes 540 ms, so the abort did not come from a
        // failed write.
        assert!(took_ms < 500.0, "http2 {h2}, stream {stream}: {took_ms} ms");
        let stats = replica.stats();
        assert_eq!((stats.started, stats.finished, stats.engine.kv_blocks_used), (1, 0, 0));
        assert_balanced(&stats);
        let page = String::from_utf8(get(replica, "/metrics").await.body.to_vec()).unwrap();
        assert!(page.contains(r#"finished_reason="abort"} 1"#), "{page}");
        emulator.shutdown().await;
    }
}

#[tokio::test]
async fn one_reset_stream_does_not_end_the_others_on_its_connection() {
    let emulator = slow(1).await;
    let replica = emulator.replica(0);
    let mut connection = Connection::open_h2(replica).await;
    let mut leaver = connection.post(CHAT, &chat("one", 1000, true)).await.unwrap();
    let stayer = connection.post(CHAT, &chat("two", 12, true)).await.unwrap();
    next_frame(&mut leaver).await.unwrap().unwrap();
    drop(leaver);
    until(replica, |stats| stats.aborted == 1).await;
    assert!(Reply::collect(stayer).await.unwrap().body.ends_with(b"[DONE]\n\n"));
    assert_balanced(&until(replica, |stats| stats.finished == 1).await);
    emulator.shutdown().await;
}

#[tokio::test]
async fn stats_can_be_read_over_http() {
    let emulator = fast(1).await;
    post(emulator.replica(0), CHAT, &chat("hi", 3, false)).await;
    let stats = get(emulator.replica(0), "/emulator/stats").await.json();
    assert_eq!((&stats["received"], &stats["finished"]), (&Value::from(1), &Value::from(1)));
    assert_eq!(stats["last_requests"][0]["outcome"], "finished");
    assert_eq!(stats["engine"]["generation_tokens"], 3);
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other() {
    let emulator = fast(1).await;
    let mut connection = Connection::open(emulator.replica(0)).await;
    for number in 0..5 {
        let body = chat(&format!("{number}"), 3, number % 2 == 0).to_string();
        let response = connection.send(request("POST", CHAT, &[], body)).await.unwrap();
        assert_eq!(Reply::collect(response).await.unwrap().status, 200);
    }
    assert_balanced(&until(emulator.replica(0), |stats| stats.finished == 5).await);
    emulator.shutdown().await;
}

#[tokio::test]
async fn shutdown_ends_open_streams_and_closes_the_ports() {
    let emulator = slow(2).await;
    let replica = emulator.replica(0).clone();
    let mut connection = Connection::open(&replica).await;
    let mut response = connection.post(CHAT, &chat("hi", 1000, true)).await.unwrap();
    next_frame(&mut response).await.unwrap().unwrap();
    let addresses = emulator.addresses();
    tokio::time::timeout(crate::client::PATIENCE, emulator.shutdown()).await.unwrap();
    assert!(Reply::collect(response).await.is_err());
    for address in addresses {
        assert!(TcpStream::connect(address).await.is_err());
    }
    assert_balanced(&replica.stats());
    assert_eq!(replica.stats().aborted, 1);
}
