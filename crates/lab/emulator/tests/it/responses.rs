//! Tests of `/v1/responses`: stored on one replica, unknown to all others.

use serde_json::{Value, json};
use spillway_emulator::Fault;

use crate::client::{call, fast, get, post};

const RESPONSES: &str = "/v1/responses";

fn ask(text: &str) -> Value {
    json!({ "model": "tiny", "input": text, "max_output_tokens": 400 })
}

#[tokio::test]
async fn a_response_has_every_field_that_clients_need() {
    let emulator = fast(1).await;
    let body = post(emulator.replica(0), RESPONSES, &ask("hello")).await.json();
    assert_eq!(body["object"], "response");
    assert_eq!(body["status"], "completed");
    let message = &body["output"][0];
    assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(message["content"][0]["type"], "output_text");
    assert!(message["content"][0]["text"].as_str().unwrap().ends_with('.'));
    let usage = &body["usage"];
    assert_eq!(usage["input_tokens"], 5);
    assert_eq!(usage["input_tokens_details"]["cached_tokens"], 0);
    let total = usage["input_tokens"].as_u64().unwrap() + usage["output_tokens"].as_u64().unwrap();
    assert_eq!(usage["total_tokens"], total);
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_limit_makes_the_response_incomplete() {
    let emulator = fast(1).await;
    let mut body = ask("hello");
    body["max_output_tokens"] = 4.into();
    let reply = post(emulator.replica(0), RESPONSES, &body).await.json();
    assert_eq!(reply["status"], "incomplete");
    assert_eq!(reply["incomplete_details"]["reason"], "max_output_tokens");
    body["stream"] = true.into();
    let events = post(emulator.replica(0), RESPONSES, &body).await.named_events();
    assert_eq!(events.last().unwrap().0, "response.incomplete");
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_stream_has_the_named_events_in_order_and_is_stored() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let mut body = ask("hello");
    body["stream"] = true.into();
    let events = post(replica, RESPONSES, &body).await.named_events();
    let mut names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    names.dedup();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(names, expected);
    let data: Vec<Value> =
        events.iter().map(|(_, data)| serde_json::from_str(data).unwrap()).collect();
    for (number, (event, (name, _))) in data.iter().zip(&events).enumerate() {
        assert_eq!(event["sequence_number"], number);
        assert_eq!(event["type"], name.as_str());
    }
    let deltas = data.iter().filter(|event| event["type"] == "response.output_text.delta");
    let text: String = deltas.map(|event| event["delta"].as_str().unwrap()).collect();
    let response = &data.last().unwrap()["response"];
    assert_eq!(response["output"][0]["content"][0]["text"], text);
    assert_eq!(response["usage"]["output_tokens"], text.len() / 4);
    let id = response["id"].as_str().unwrap();
    assert_eq!(&get(replica, &format!("{RESPONSES}/{id}")).await.json(), response);
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_conversation_goes_on_where_it_is_stored_and_nowhere_else() {
    let emulator = fast(2).await;
    let first = post(emulator.replica(0), RESPONSES, &ask("What is a dam?")).await.json();
    let mut next = ask("Why?");
    next["previous_response_id"] = first["id"].clone();
    let second = post(emulator.replica(0), RESPONSES, &next).await;
    assert_eq!(second.status, 200);
    let cached = &second.json()["usage"]["input_tokens_details"]["cached_tokens"];
    assert!(cached.as_u64().unwrap() >= 32, "the first turn is cached: {cached}");

    let elsewhere = post(emulator.replica(1), RESPONSES, &next).await;
    assert_eq!(elsewhere.status, 404);
    let message = elsewhere.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains(first["id"].as_str().unwrap()), "{message}");
    assert_eq!(emulator.replica(1).stats().rejected, 1);
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_response_can_be_fetched_until_it_is_deleted() {
    let emulator = fast(2).await;
    let first = post(emulator.replica(0), RESPONSES, &ask("hello")).await.json();
    let path = format!("{RESPONSES}/{}", first["id"].as_str().unwrap());
    assert_eq!(get(emulator.replica(0), &path).await.json(), first);
    assert_eq!(get(emulator.replica(1), &path).await.status, 404);
    let deleted = call(emulator.replica(0), "DELETE", &path, &[], "").await;
    assert_eq!(deleted.json()["deleted"], true);
    assert_eq!(get(emulator.replica(0), &path).await.status, 404);
    assert_eq!(call(emulator.replica(0), "DELETE", &path, &[], "").await.status, 404);
    emulator.shutdown().await;
}

#[tokio::test]
async fn what_is_not_to_be_stored_is_not() {
    let emulator = fast(1).await;
    let mut body = ask("hello");
    body["store"] = false.into();
    let reply = post(emulator.replica(0), RESPONSES, &body).await.json();
    let path = format!("{RESPONSES}/{}", reply["id"].as_str().unwrap());
    assert_eq!(get(emulator.replica(0), &path).await.status, 404);
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_crash_forgets_all_responses() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let reply = post(replica, RESPONSES, &ask("hello")).await.json();
    replica.set_fault(Fault::Crash).await.unwrap();
    replica.set_fault(Fault::None).await.unwrap();
    let path = format!("{RESPONSES}/{}", reply["id"].as_str().unwrap());
    assert_eq!(get(replica, &path).await.status, 404);
    emulator.shutdown().await;
}

#[tokio::test]
async fn input_may_be_a_list_of_items() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let text = async |body: &Value| {
        post(replica, RESPONSES, body).await.json()["output"][0]["content"][0]["text"].clone()
    };
    let plain = text(&ask("hello")).await;
    let mut body = ask("");
    body["input"] = json!([{ "role": "user",
                             "content": [{ "type": "input_text", "text": "hello" }] }]);
    assert_eq!(text(&body).await, plain);
    body["instructions"] = "Be brief.".into();
    assert_ne!(text(&body).await, plain);
    body["input"] = json!(5);
    assert_eq!(post(replica, RESPONSES, &body).await.status, 400);
    emulator.shutdown().await;
}
