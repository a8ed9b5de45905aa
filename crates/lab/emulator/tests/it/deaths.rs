//! Tests of replicas that die of a request or drain, and of strict schemas.

use serde_json::{Value, json};
use spillway_emulator::{DeathSign, Fault, ReplicaHandle, ReplyOptions, StreamOptionsSchema};
use spillway_testkit::eventually;
use tokio::net::TcpStream;

use crate::client::{Connection, Reply, chat, fast, get, next_frame, post, slow, until};

const CHAT: &str = "/v1/chat/completions";
const DEAD: &str = "EngineCore encountered an issue";

fn die(with: DeathSign, only_poisoned: bool) -> Fault {
    Fault::Die { after_events: 3, with, only_poisoned }
}

async fn until_dead(replica: &ReplicaHandle) {
    until(replica, |_| replica.fault() == Fault::Crash).await;
    while TcpStream::connect(replica.address()).await.is_ok() {}
}

#[tokio::test]
async fn a_deadly_stream_gets_an_error_and_takes_the_others_along() {
    let emulator = slow(1).await;
    let replica = emulator.replica(0);
    replica.set_fault(die(DeathSign::Error, true)).await.unwrap();
    let mut other = Connection::open(replica).await;
    let mut other = other.post(CHAT, &chat("hi", 1000, true)).await.unwrap();
    next_frame(&mut other).await.unwrap().unwrap();
    let reply = post(replica, CHAT, &chat("this is POISON", 20, true)).await;
    let events = reply.named_events();
    // The role, two tokens, the error and the end.
    assert_eq!(events.len(), 5, "{events:?}");
    let error: Value = serde_json::from_str(&events[3].1).unwrap();
    let expected = json!({
        "message": DEAD, "type": "InternalServerError", "param": null, "code": 500,
    });
    assert_eq!((&error["error"], events[4].1.as_str()), (&expected, "[DONE]"));
    until_dead(replica).await;
    assert!(Reply::collect(other).await.is_err(), "a crash ends every stream");
    replica.set_fault(Fault::None).await.unwrap();
    assert_eq!(post(replica, CHAT, &chat("this is POISON", 2, true)).await.status, 200);
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_deadly_request_without_a_stream_gets_500() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    replica.set_fault(die(DeathSign::Error, true)).await.unwrap();
    assert_eq!(post(replica, CHAT, &chat("harmless", 20, false)).await.status, 200);
    let reply = post(replica, CHAT, &chat("this is POISON", 20, false)).await;
    assert_eq!((reply.status, &reply.json()["error"]["message"]), (500, &json!(DEAD)));
    until_dead(replica).await;
    let stats = replica.stats();
    assert_eq!((stats.finished, stats.rejected), (1, 1));
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_silent_death_breaks_the_connection() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    for (stream, h2) in [(true, false), (false, false), (true, true), (false, true)] {
        replica.set_fault(die(DeathSign::Silence, false)).await.unwrap();
        let mut connection = match h2 {
            true => Connection::open_h2(replica).await,
            false => Connection::open(replica).await,
        };
        let reply = match connection.post(CHAT, &chat("hi", 20, stream)).await {
            Ok(response) => Reply::collect(response).await,
            Err(error) => Err(error),
        };
        assert!(reply.is_err(), "{reply:?}");
        until_dead(replica).await;
    }
    assert_eq!(replica.stats().aborted, 4);
    emulator.shutdown().await;
}

#[tokio::test]
async fn messages_and_responses_get_the_error_of_a_death_in_their_form() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let response = json!({ "model": "tiny", "input": "hi", "stream": true });
    for (path, body) in [("/v1/messages", chat("hi", 20, true)), ("/v1/responses", response)] {
        replica.set_fault(die(DeathSign::Error, false)).await.unwrap();
        let events = post(replica, path, &body).await.named_events();
        let (name, data) = events.last().unwrap();
        assert_eq!(name, "error");
        let error: Value = serde_json::from_str(data).unwrap();
        assert_eq!(error["type"], "error");
        let message = error.get("error").unwrap_or(&error)["message"].clone();
        assert_eq!(message, DEAD);
        until_dead(replica).await;
    }
    emulator.shutdown().await;
}

#[tokio::test]
async fn the_time_limit_of_a_death_also_ends_its_crash() {
    let emulator = fast(2).await;
    let replica = emulator.replica(1);
    let fault = json!({
        "fault": { "kind": "die", "after_events": 0 }, "replica": 1, "for_ms": 200,
    });
    assert_eq!(post(emulator.replica(0), "/emulator/fault", &fault).await.status, 200);
    assert_eq!(post(replica, CHAT, &chat("hi", 20, false)).await.status, 500);
    until(replica, |_| replica.fault() == Fault::Crash).await;
    until(replica, |_| replica.fault() == Fault::None).await;
    eventually("it listens again", || std::net::TcpStream::connect(replica.address()).is_ok())
        .await;
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_draining_replica_finishes_and_refuses_but_is_healthy() {
    let emulator = slow(1).await;
    let replica = emulator.replica(0);
    let mut connection = Connection::open(replica).await;
    let mut running = connection.post(CHAT, &chat("hi", 12, true)).await.unwrap();
    next_frame(&mut running).await.unwrap().unwrap();
    replica.set_fault(Fault::Draining).await.unwrap();
    let refused = post(replica, CHAT, &chat("hi", 12, true)).await;
    let expected = json!({
        "message": "cannot schedule new futures after shutdown",
        "type": "InternalServerError",
        "param": null,
        "code": 500,
    });
    assert_eq!((refused.status, &refused.json()["error"]), (500, &expected));
    assert_eq!(get(replica, "/health").await.status, 200);
    let reply = Reply::collect(running).await.unwrap();
    assert!(reply.text().contains(r#""finish_reason":"length""#), "{}", reply.text());
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_strict_schema_refuses_members_of_stream_options() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let ask = async |path: &str, options: Value| {
        let mut body = chat("hi", 2, true);
        body["prompt"] = "hi".into();
        body["stream_options"] = options;
        post(replica, path, &body).await
    };
    let usage = json!({ "include_usage": true });
    let both = json!({ "include_usage": true, "continuous_usage_stats": true });
    for path in [CHAT, "/v1/completions"] {
        for (schema, options, refused) in [
            (StreamOptionsSchema::Any, &both, None),
            (StreamOptionsSchema::IncludeUsage, &usage, None),
            (
                StreamOptionsSchema::IncludeUsage,
                &both,
                Some("stream_options.continuous_usage_stats"),
            ),
            (StreamOptionsSchema::None, &usage, Some("stream_options")),
        ] {
            let stream_options = schema;
            replica.set_options(ReplyOptions { stream_options, ..ReplyOptions::default() });
            let reply = ask(path, options.clone()).await;
            let Some(member) = refused else {
                assert_eq!(reply.status, 200, "{schema:?}");
                continue;
            };
            assert_eq!(reply.status, 400);
            let message = format!("Extra inputs are not permitted: {member}");
            assert_eq!(reply.json()["error"]["message"], message);
        }
    }
    emulator.shutdown().await;
}
