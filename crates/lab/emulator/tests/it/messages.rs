//! Tests of `/v1/messages` and `/v1/messages/count_tokens`: Anthropic's form, whole and streamed.

use serde_json::{Value, json};
use spillway_emulator::{Fault, ReplyOptions};
use spillway_testkit::Reply;

use crate::client::{call, chat, fast, post};

const MESSAGES: &str = "/v1/messages";
const COUNT_TOKENS: &str = "/v1/messages/count_tokens";

fn ask(text: &str, tokens: u32, stream: bool) -> Value {
    json!({
        "model": "tiny",
        "messages": [{ "role": "user", "content": [{ "type": "text", "text": text }] }],
        "max_tokens": tokens,
        "ignore_eos": true,
        "stream": stream,
    })
}

fn long_prompt() -> String {
    "a prompt that fills some blocks of the cache for sure. ".repeat(4)
}

/// Returns the events of a stream, each with its name, which its data repeats.
fn events(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{:?}", reply.body);
    let events = reply.named_events().into_iter();
    let events = events.map(|(name, data)| {
        let event: Value = serde_json::from_str(&data).unwrap();
        assert_eq!(event["type"], name.as_str());
        event
    });
    events.collect()
}

fn names(events: &[Value]) -> Vec<&str> {
    let mut names: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    names.dedup();
    names
}

fn of_kind<'e>(events: &'e [Value], kind: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

fn text(events: &[Value]) -> String {
    let deltas = of_kind(events, "content_block_delta").into_iter();
    deltas.map(|event| event["delta"]["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_three_inputs_together_are_the_whole_prompt() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let body = ask(&long_prompt(), 8, false);
    let count = post(replica, COUNT_TOKENS, &body).await.json()["input_tokens"].clone();
    let mut cached = Vec::new();
    for _ in 0..2 {
        let message = post(replica, MESSAGES, &body).await.json();
        assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
        assert!(message["id"].as_str().unwrap().starts_with("msg_"));
        let usage = &message["usage"];
        let number = |field: &str| usage[field].as_u64().unwrap();
        cached.push(number("cache_read_input_tokens"));
        assert_eq!(number("cache_creation_input_tokens"), 0);
        assert_eq!(number("input_tokens") + cached[cached.len() - 1], count);
        assert_eq!(number("output_tokens"), 8);
        assert_eq!(message["content"][0]["text"].as_str().unwrap().len(), 8 * 4);
        assert_eq!(message["stop_reason"], "max_tokens");
    }
    assert_eq!(cached[0], 0);
    assert!(cached[1] > 0);
    assert_eq!(replica.stats().received, 2, "counting gives the engine no work");
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_message_has_the_text_of_the_same_chat_and_finds_its_cache() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let prompt = long_prompt();
    let chat = post(replica, "/v1/chat/completions", &chat(&prompt, 8, false)).await.json();
    let message = post(replica, MESSAGES, &ask(&prompt, 8, false)).await.json();
    assert_eq!(message["content"][0]["text"], chat["choices"][0]["message"]["content"]);
    assert!(message["usage"]["cache_read_input_tokens"].as_u64().unwrap() > 0);
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_stream_has_the_events_in_order_and_the_same_text_and_usage() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let whole = post(replica, MESSAGES, &ask(&long_prompt(), 8, false)).await.json();
    let events = events(&post(replica, MESSAGES, &ask(&long_prompt(), 8, true)).await);
    let expected = [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names(&events), expected);
    assert_eq!(text(&events), whole["content"][0]["text"].as_str().unwrap());
    let start = &events[0]["message"];
    assert_eq!((&start["content"], &start["stop_reason"]), (&json!([]), &Value::Null));
    let usage = &start["usage"];
    let cached = usage["cache_read_input_tokens"].as_u64().unwrap();
    assert!(cached > 0, "{usage}");
    assert_eq!(usage["input_tokens"].as_u64().unwrap() + cached, whole["usage"]["input_tokens"]);
    assert_eq!(usage["output_tokens"], 0);
    let delta = of_kind(&events, "message_delta")[0];
    assert_eq!(delta["usage"], json!({ "output_tokens": 8 }));
    assert_eq!(delta["delta"]["stop_reason"], "max_tokens");
    emulator.shutdown().await;
}

#[tokio::test]
async fn cached_tokens_can_come_at_the_end_of_a_stream() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let options = ReplyOptions { late_cached_tokens: true, ..ReplyOptions::default() };
    replica.set_options(options);
    let whole = post(replica, MESSAGES, &ask(&long_prompt(), 8, false)).await.json();
    let prompt = &whole["usage"]["input_tokens"];
    let events = events(&post(replica, MESSAGES, &ask(&long_prompt(), 8, true)).await);
    let start = &events[0]["message"]["usage"];
    assert_eq!(start, &json!({ "input_tokens": prompt, "output_tokens": 0 }));
    let end = &of_kind(&events, "message_delta")[0]["usage"];
    let cached = end["cache_read_input_tokens"].as_u64().unwrap();
    assert!(cached > 0);
    assert_eq!(end["input_tokens"].as_u64().unwrap() + cached, prompt.as_u64().unwrap());
    assert_eq!(end["output_tokens"], 8);
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_called_tool_is_a_block_of_its_own() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let schema = json!({
        "type": "object",
        "properties": { "city": { "type": "string", "enum": ["Oslo"] } },
        "required": ["city"],
        "additionalProperties": false,
    });
    let mut body = ask("the weather?", 200, false);
    body["ignore_eos"] = false.into();
    body["tools"] = json!([{ "name": "weather", "input_schema": schema }]);
    body["tool_choice"] = json!({ "type": "any" });
    let message = post(replica, MESSAGES, &body).await.json();
    let call = &message["content"][0];
    assert_eq!((&call["type"], &call["name"]), (&json!("tool_use"), &json!("weather")));
    assert_eq!(call["input"], json!({ "city": "Oslo" }));
    assert_eq!(message["stop_reason"], "tool_use");

    body["stream"] = true.into();
    let events = events(&post(replica, MESSAGES, &body).await);
    let block = &of_kind(&events, "content_block_start")[0]["content_block"];
    assert_eq!((&block["name"], &block["input"]), (&json!("weather"), &json!({})));
    let deltas = of_kind(&events, "content_block_delta").into_iter();
    let input: String =
        deltas.map(|event| event["delta"]["partial_json"].as_str().unwrap()).collect();
    assert_eq!(serde_json::from_str::<Value>(&input).unwrap(), call["input"]);
    assert_eq!(of_kind(&events, "message_delta")[0]["delta"]["stop_reason"], "tool_use");

    // The result of the tool ends the loop: the model answers in words.
    body["stream"] = false.into();
    body["tool_choice"] = json!({ "type": "auto" });
    let result = json!({ "type": "tool_result", "tool_use_id": call["id"], "content": "rain" });
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({ "role": "assistant", "content": [call] }));
    messages.push(json!({ "role": "user", "content": [result] }));
    let message = post(replica, MESSAGES, &body).await.json();
    assert_eq!(message["content"][0]["type"], "text");
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_stop_sequence_is_named() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let whole = post(replica, MESSAGES, &ask("hello", 60, false)).await.json();
    let text = whole["content"][0]["text"].as_str().unwrap();
    let word = text.split(' ').nth(3).unwrap();
    let mut body = ask("hello", 60, false);
    body["stop_sequences"] = json!([word]);
    let stopped = post(replica, MESSAGES, &body).await.json();
    assert_eq!(stopped["stop_reason"], "stop_sequence");
    assert_eq!(stopped["stop_sequence"], word);
    assert_eq!(stopped["content"][0]["text"], text[..text.find(word).unwrap()]);
    emulator.shutdown().await;
}

#[tokio::test]
async fn the_system_prompt_counts_without_its_billing_header() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let count = async |system: Value| {
        let mut body = ask("hi", 8, false);
        body["system"] = system;
        post(replica, COUNT_TOKENS, &body).await.json()["input_tokens"].as_u64().unwrap()
    };
    let without = count(Value::Null).await;
    let plain = count("Be brief, please.".into()).await;
    assert!(plain > without);
    let header = "x-anthropic-billing-header: cch=0123456789;";
    let blocks = json!([
        { "type": "text", "text": header },
        { "type": "text", "text": "Be brief, please." },
    ]);
    assert_eq!(count(blocks).await, plain);
    emulator.shutdown().await;
}

#[tokio::test]
async fn errors_have_anthropics_form() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let mut unlimited = ask("hi", 8, false);
    unlimited.as_object_mut().unwrap().remove("max_tokens");
    let mut unknown = ask("hi", 8, false);
    unknown["model"] = "none".into();
    let send = async |body: &Value| {
        let headers = [("x-request-id", "req_1")];
        call(replica, "POST", MESSAGES, &headers, body.to_string()).await
    };
    let check = |reply: Reply, status: u16, kind: &str| {
        assert_eq!(
            (reply.status, &reply.headers["request-id"]),
            (status, &"req_1".parse().unwrap())
        );
        let body = reply.json();
        assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!(kind)));
        assert_eq!(body["request_id"], "req_1");
    };
    check(send(&unlimited).await, 400, "invalid_request_error");
    check(send(&unknown).await, 404, "not_found_error");
    replica.set_fault(Fault::Draining).await.unwrap();
    check(send(&ask("hi", 8, true)).await, 500, "api_error");
    let overloaded = Fault::Status { code: 529, retry_after_s: Some(1), probability: 1.0 };
    replica.set_fault(overloaded).await.unwrap();
    check(send(&ask("hi", 8, true)).await, 529, "overloaded_error");
    emulator.shutdown().await;
}
