//! Tests of background responses: followed again, cancelled, lost.

use serde_json::{Value, json};
use spillway_emulator::{Fault, ReplicaHandle};

use crate::client::{Connection, call, fast, get, next_frame, post, slow, until};

const RESPONSES: &str = "/v1/responses";

async fn begin(replica: &ReplicaHandle, tokens: u32) -> String {
    let body = json!({ "model": "tiny", "input": "hello", "background": true,
                       "max_output_tokens": tokens, "ignore_eos": true });
    let response = post(replica, RESPONSES, &body).await.json();
    assert_eq!(response["status"], "queued");
    format!("{RESPONSES}/{}", response["id"].as_str().unwrap())
}

#[tokio::test]
async fn work_goes_on_without_a_client_and_its_stream_is_taken_up_anywhere() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let path = begin(replica, 20).await;
    let all = get(replica, &format!("{path}?stream=true")).await.named_events();
    assert_eq!(all.last().unwrap().0, "response.incomplete");
    assert_eq!(get(replica, &path).await.json()["status"], "incomplete");
    let numbers: Vec<Value> = all
        .iter()
        .map(|(_, data)| serde_json::from_str::<Value>(data).unwrap()["sequence_number"].clone())
        .collect();
    assert_eq!(numbers, (0..all.len()).map(Value::from).collect::<Vec<_>>());
    for after in [0, 7, all.len() - 1] {
        let path = format!("{path}?stream=true&starting_after={after}");
        assert_eq!(get(replica, &path).await.named_events(), all[after + 1..]);
    }
    assert_eq!(get(replica, &format!("{path}?stream=true&starting_after=x")).await.status, 400);
    emulator.shutdown().await;
}

#[tokio::test]
async fn the_end_of_a_client_is_not_the_end_of_the_work() {
    let emulator = slow(1).await;
    let replica = emulator.replica(0);
    let mut connection = Connection::open(replica).await;
    let body = json!({ "model": "tiny", "input": "hello", "background": true, "stream": true,
                       "max_output_tokens": 1000, "ignore_eos": true });
    let mut response = connection.post(RESPONSES, &body).await.unwrap();
    let first = next_frame(&mut response).await.unwrap().unwrap();
    let first = String::from_utf8(first.to_vec()).unwrap();
    let data: Value = serde_json::from_str(first.split_once("data: ").unwrap().1.trim()).unwrap();
    drop((response, connection));
    until(replica, |stats| stats.aborted == 1).await;
    let said = replica.stats().engine.generation_tokens;
    until(replica, |stats| stats.engine.generation_tokens > said + 1).await;

    let path = format!("{RESPONSES}/{}", data["response"]["id"].as_str().unwrap());
    assert_eq!(get(replica, &path).await.json()["status"], "in_progress");
    let next = json!({ "model": "tiny", "input": "go on", "previous_response_id": data["response"]["id"] });
    assert_eq!(post(replica, RESPONSES, &next).await.status, 400, "it is not complete");
    let received = replica.stats().received;
    let cancelled = call(replica, "POST", &format!("{path}/cancel"), &[], "").await;
    assert_eq!(cancelled.json()["status"], "cancelled");
    until(replica, |stats| stats.running == 0).await;
    assert_eq!(replica.stats().received, received, "to cancel is no work");
    // The stream of a response ends in its present state.
    let events = get(replica, &format!("{path}?stream=true")).await.named_events();
    assert_eq!(events.last().unwrap().0, "response.in_progress");
    emulator.shutdown().await;
}

#[tokio::test]
async fn what_is_deleted_is_not_worked_on() {
    let emulator = slow(1).await;
    let replica = emulator.replica(0);
    let path = begin(replica, 1000).await;
    until(replica, |stats| stats.running == 1).await;
    assert_eq!(call(replica, "DELETE", &path, &[], "").await.status, 200);
    until(replica, |stats| stats.running == 0).await;
    assert_eq!(call(replica, "POST", &format!("{path}/cancel"), &[], "").await.status, 404);
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_crash_ends_the_work_and_a_shutdown_does_not_wait_for_it() {
    let emulator = slow(1).await;
    let replica = emulator.replica(0);
    let path = begin(replica, 1000).await;
    replica.set_fault(Fault::Crash).await.unwrap();
    replica.set_fault(Fault::None).await.unwrap();
    assert_eq!(get(replica, &path).await.status, 404);
    assert_eq!(replica.stats().running, 0);
    begin(replica, 1000).await;
    emulator.shutdown().await;
}

#[tokio::test]
async fn only_what_is_stored_can_be_worked_on_unattended() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let body = json!({ "model": "tiny", "input": "hello", "background": true, "store": false });
    assert_eq!(post(replica, RESPONSES, &body).await.status, 400);
    let plain =
        post(replica, RESPONSES, &json!({ "model": "tiny", "input": "hello" })).await.json();
    let path = format!("{RESPONSES}/{}/cancel", plain["id"].as_str().unwrap());
    assert_eq!(call(replica, "POST", &path, &[], "").await.status, 400);
    emulator.shutdown().await;
}

#[tokio::test]
async fn the_tokens_of_an_input_are_counted_without_work() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let body = json!({ "model": "tiny", "input": "hello there", "instructions": "Be brief." });
    let count = post(replica, &format!("{RESPONSES}/input_tokens"), &body).await.json();
    assert_eq!(replica.stats().received, 0);
    let response = post(replica, RESPONSES, &body).await.json();
    assert_eq!(count["input_tokens"], response["usage"]["input_tokens"]);
    emulator.shutdown().await;
}
