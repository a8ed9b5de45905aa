//! Tests of faults that end answers early in replies that are in order otherwise.

use serde_json::{Value, json};
use spillway_emulator::{CallOutcome, Fault, ReplicaHandle, RequestRecord};
use spillway_testkit::Reply;

use crate::client::{chat, chat_text, fast, post, until};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

/// Returns the record of the last request, once it has ended.
async fn last_record(replica: &ReplicaHandle) -> RequestRecord {
    until(replica, |stats| stats.received == stats.finished + stats.aborted + stats.rejected).await;
    replica.usage().requests.pop().unwrap()
}

/// Asserts that a request of 20 tokens was answered in order with this many of them.
async fn assert_short(replica: &ReplicaHandle, tokens: u32) {
    let record = last_record(replica).await;
    assert_eq!((record.outcome, record.is_complete), (CallOutcome::Finished, false));
    assert_eq!(record.usage.completion_tokens, tokens);
    assert!(record.usage.prompt_tokens > 0);
    until(replica, |stats| stats.running == 0).await;
}

fn with_usage(mut body: Value) -> Value {
    body["stream_options"] = json!({ "include_usage": true });
    body
}

fn data(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{:?}", reply.body);
    assert!(reply.body.ends_with(b"data: [DONE]\n\n"), "{}", reply.text());
    let events = reply.named_events().into_iter().filter(|(_, data)| data != "[DONE]");
    events.map(|(_, data)| serde_json::from_str(&data).unwrap()).collect()
}

#[tokio::test]
async fn an_aborted_stream_says_so_with_its_usage_and_its_end() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let whole = post(replica, CHAT, &chat("hi", 20, false)).await.json();
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    replica.set_fault(Fault::Abort { after_events: 6 }).await.unwrap();
    let reply = post(replica, CHAT, &with_usage(chat("hi", 20, true))).await;
    let events = data(&reply);
    // The role, five tokens, the reason and the usage.
    assert_eq!(events.len(), 8);
    assert_eq!(events[6]["choices"][0]["finish_reason"], "abort");
    assert_eq!(events[7]["usage"]["completion_tokens"], 5);
    assert_eq!(events[7]["usage"]["prompt_tokens"], whole["usage"]["prompt_tokens"]);
    assert_eq!(chat_text(&reply.named_events()), text[..20]);
    assert_short(replica, 5).await;
    emulator.shutdown().await;
}

#[tokio::test]
async fn an_aborted_reply_has_the_text_so_far() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    replica.set_fault(Fault::Abort { after_events: 5 }).await.unwrap();
    let reply = post(replica, CHAT, &chat("hi", 20, false)).await.json();
    let choice = &reply["choices"][0];
    assert_eq!(choice["finish_reason"], "abort");
    assert_eq!(choice["message"]["content"].as_str().unwrap().len(), 20);
    assert_eq!(reply["usage"]["completion_tokens"], 5);
    assert_short(replica, 5).await;
    let text = json!({ "model": "tiny", "prompt": "hi", "max_tokens": 20, "ignore_eos": true });
    let reply = post(replica, COMPLETIONS, &text).await.json();
    assert_eq!(reply["choices"][0]["finish_reason"], "abort");
    assert_eq!(reply["choices"][0]["text"].as_str().unwrap().len(), 20);
    emulator.shutdown().await;
}

#[tokio::test]
async fn all_choices_of_a_stream_are_aborted() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    replica.set_fault(Fault::Abort { after_events: 9 }).await.unwrap();
    let mut body = with_usage(chat("hi", 20, true));
    body["n"] = 3.into();
    let events = data(&post(replica, CHAT, &body).await);
    let mut aborted: Vec<u64> = Vec::new();
    let mut tokens = 0;
    for choice in events.iter().flat_map(|event| event["choices"].as_array().unwrap()) {
        match choice["finish_reason"].as_str() {
            Some(reason) => {
                assert_eq!(reason, "abort");
                aborted.push(choice["index"].as_u64().unwrap());
            }
            None => tokens += u64::from(choice["delta"]["content"] != ""),
        }
    }
    assert_eq!(aborted, [0, 1, 2]);
    assert_eq!(events.last().unwrap()["usage"]["completion_tokens"], tokens);
    emulator.shutdown().await;
}

#[tokio::test]
async fn aborted_messages_and_responses_have_their_closest_forms() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    replica.set_fault(Fault::Abort { after_events: 8 }).await.unwrap();
    let mut message = chat("hi", 20, false);
    let whole = post(replica, MESSAGES, &message).await.json();
    assert_eq!(
        (&whole["stop_reason"], &whole["usage"]["output_tokens"]),
        (&Value::Null, &json!(8))
    );
    message["stream"] = true.into();
    let events = post(replica, MESSAGES, &message).await.named_events();
    let [.., (stop, _), (delta, data), (end, _)] = &events[..] else { panic!("{events:?}") };
    assert_eq!([stop, delta, end], ["content_block_stop", "message_delta", "message_stop"]);
    let delta: Value = serde_json::from_str(data).unwrap();
    assert_eq!(delta["delta"]["stop_reason"], Value::Null);
    // A start, the start of a block and a ping come before the first of the tokens.
    assert_eq!(delta["usage"]["output_tokens"], 5);
    assert_short(replica, 5).await;

    let mut response = json!({
        "model": "tiny", "input": "hi", "max_output_tokens": 20, "ignore_eos": true,
    });
    let whole = post(replica, RESPONSES, &response).await.json();
    assert_eq!(
        (&whole["status"], &whole["usage"]["output_tokens"]),
        (&json!("cancelled"), &json!(8))
    );
    response["stream"] = true.into();
    let events = post(replica, RESPONSES, &response).await.named_events();
    let (name, last) = events.last().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(
        (name.as_str(), &last["response"]["status"]),
        ("response.completed", &json!("cancelled"))
    );
    // Created, in progress, and two events that begin the text.
    assert_eq!(last["response"]["usage"]["output_tokens"], 4);
    assert_short(replica, 4).await;
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_stream_that_is_done_early_has_no_reason() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    replica.set_fault(Fault::DoneEarly { after_events: 6 }).await.unwrap();
    let events = data(&post(replica, CHAT, &with_usage(chat("hi", 20, true))).await);
    assert_eq!(events.len(), 6, "the role and five tokens: {events:?}");
    assert!(events.iter().all(|event| event["choices"][0]["finish_reason"].is_null()));
    assert_short(replica, 5).await;
    let reply = post(replica, CHAT, &chat("hi", 20, false)).await.json();
    assert_eq!(reply["choices"][0]["finish_reason"], Value::Null);
    assert_short(replica, 6).await;
    let events = post(replica, MESSAGES, &chat("hi", 20, true)).await.named_events();
    let [.., (stop, _), (end, _)] = &events[..] else { panic!("{events:?}") };
    assert_eq!([stop, end], ["content_block_stop", "message_stop"]);
    emulator.shutdown().await;
}

#[tokio::test]
async fn an_empty_reply_has_no_token_and_no_reason() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    replica.set_fault(Fault::Empty).await.unwrap();
    let text = |stream: bool| json!({ "model": "tiny", "prompt": "hi", "stream": stream });
    for (path, stream, whole) in [
        (CHAT, chat("hi", 20, true), chat("hi", 20, false)),
        (COMPLETIONS, text(true), text(false)),
    ] {
        let reply = post(replica, path, &with_usage(stream)).await;
        assert_eq!((reply.status, reply.text()), (200, "data: [DONE]\n\n"));
        assert_short(replica, 0).await;
        let reply = post(replica, path, &whole).await;
        assert_eq!((reply.status, &reply.json()["choices"]), (200, &json!([])));
        assert_short(replica, 0).await;
    }
    let message = post(replica, MESSAGES, &chat("hi", 20, false)).await.json();
    assert_eq!((&message["content"], &message["stop_reason"]), (&json!([]), &Value::Null));
    let response = json!({ "model": "tiny", "input": "hi" });
    let response = post(replica, RESPONSES, &response).await.json();
    assert_eq!((&response["output"], &response["status"]), (&json!([]), &json!("incomplete")));
    emulator.shutdown().await;
}
