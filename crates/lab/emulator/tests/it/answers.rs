//! Tests of several answers to one request, and of answers of a prescribed form.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::client::{call, chat, chat_text, fast, get, post, slow, until};

const CHAT: &str = "/v1/chat/completions";

fn chunks(events: &[(String, String)]) -> Vec<Value> {
    let data = events.iter().filter(|(_, data)| data != "[DONE]");
    data.map(|(_, data)| serde_json::from_str(data).unwrap()).collect()
}

fn with(mut body: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("{more} is no object") };
    body.as_object_mut().unwrap().extend(more);
    body
}

#[tokio::test]
async fn several_answers_come_side_by_side_and_are_computed_together() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let prompt = "a prompt of some length, so that whole blocks of it are shared. ".repeat(4);
    let body = with(chat(&prompt, 12, false), json!({ "n": 4 }));
    let whole = post(replica, CHAT, &body).await.json();
    let texts: Vec<&str> = (0..4)
        .map(|index| whole["choices"][index]["message"]["content"].as_str().unwrap())
        .collect();
    assert_eq!(whole["usage"]["prompt_tokens"], 67);
    assert_eq!(whole["usage"]["completion_tokens"], 48);
    assert_eq!(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let stats = replica.stats();
    assert_eq!((stats.received, stats.finished), (1, 1), "it is one request");
    // 64 of the 67 tokens are in whole blocks, which three of the answers find cached.
    assert_eq!(stats.engine.prefix_cache_hits_tokens, 3 * 64);
    assert_eq!(stats.engine.steps, 12);

    let stream = with(body, json!({ "stream": true }));
    let chunks = chunks(&post(replica, CHAT, &stream).await.named_events());
    let mut streamed = BTreeMap::<u64, String>::new();
    let mut order = Vec::new();
    for choice in chunks.iter().map(|chunk| &chunk["choices"][0]) {
        let index = choice["index"].as_u64().unwrap();
        order.push(index);
        *streamed.entry(index).or_default() += choice["delta"]["content"].as_str().unwrap_or("");
    }
    assert_eq!(streamed.into_values().collect::<Vec<_>>(), texts);
    assert!(!order.is_sorted(), "{order:?}");
    emulator.shutdown().await;
}

#[tokio::test]
async fn who_leaves_frees_all_of_its_answers() {
    let emulator = slow(1).await;
    let replica = emulator.replica(0);
    let mut connection = crate::client::Connection::open(replica).await;
    let body = with(chat("hello", 500, true), json!({ "n": 3 }));
    let response = connection.post(CHAT, &body).await.unwrap();
    until(replica, |stats| stats.running == 3).await;
    drop((response, connection));
    let stats = until(replica, |stats| stats.aborted == 1).await;
    assert_eq!((stats.running, stats.waiting, stats.engine.kv_blocks_used), (0, 0, 0));
    emulator.shutdown().await;
}

#[tokio::test]
async fn calls_of_tools_stream_as_the_whole_reply_has_them() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let tool = json!({ "type": "function", "function": { "name": "find", "parameters": {
        "type": "object", "required": ["what"], "properties": { "what": { "enum": ["größe", "☂"] } },
    }}});
    let body = json!({ "model": "tiny", "tools": [tool],
                       "messages": [{ "role": "user", "content": "Find it." }] });
    let whole = post(replica, CHAT, &body).await.json();
    let choice = &whole["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["content"]),
        (&json!("tool_calls"), &Value::Null)
    );
    let function = &choice["message"]["tool_calls"][0]["function"];
    let arguments: Value = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
    assert!(["größe", "☂"].contains(&arguments["what"].as_str().unwrap()), "{arguments}");

    let stream = with(body, json!({ "stream": true }));
    let chunks = chunks(&post(replica, CHAT, &stream).await.named_events());
    let calls: Vec<&Value> = chunks
        .iter()
        .map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0])
        .filter(|call| !call.is_null())
        .collect();
    assert_eq!(calls[0]["function"]["name"], "find");
    assert!(calls[0]["id"].as_str().unwrap().starts_with("call_"));
    let pieces = calls.iter().map(|call| call["function"]["arguments"].as_str().unwrap());
    assert_eq!(pieces.collect::<String>(), function["arguments"].as_str().unwrap());
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_form_that_was_begun_is_gone_on_with() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let mut body = json!({ "model": "tiny", "messages": [{ "role": "user", "content": "hi" }],
                           "response_format": { "type": "json_object" } });
    let whole = post(replica, CHAT, &body).await.json()["choices"][0]["message"]["content"].clone();
    let (before, after) = whole.as_str().unwrap().split_at(9);
    let begun = json!({ "role": "assistant", "content": before });
    body["messages"].as_array_mut().unwrap().push(begun);
    let body =
        with(body, json!({ "continue_final_message": true, "add_generation_prompt": false }));
    let rest = post(replica, CHAT, &body).await.json();
    assert_eq!(rest["choices"][0]["message"]["content"], after);
    emulator.shutdown().await;
}

#[tokio::test]
async fn several_prompts_have_several_answers_each() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let body = json!({ "model": "tiny", "prompt": ["one", [7], "two"], "max_tokens": 3 });
    assert_eq!(post(replica, "/v1/completions", &body).await.status, 400, "texts or tokens");
    let body = json!({ "model": "tiny", "prompt": ["one", "two"], "n": 2, "max_tokens": 3,
                       "ignore_eos": true, "stream": true, "echo": true,
                       "stream_options": { "include_usage": true, "continuous_usage_stats": true } });
    let chunks = chunks(&post(replica, "/v1/completions", &body).await.named_events());
    let usage = &chunks.last().unwrap()["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(2), &json!(12)));
    for (index, prompt) in ["one", "one", "two", "two"].iter().enumerate() {
        let own: Vec<&Value> =
            chunks.iter().filter(|chunk| chunk["choices"][0]["index"] == index).collect();
        let text: String =
            own.iter().map(|chunk| chunk["choices"][0]["text"].as_str().unwrap()).collect();
        assert!(text.starts_with(prompt) && text.len() == 15, "{text}");
        // Each event carries the usage of its own answer.
        let counts = own.iter().map(|chunk| chunk["usage"]["completion_tokens"].as_u64().unwrap());
        assert_eq!(counts.collect::<Vec<_>>(), [0, 1, 2, 3, 3]);
    }
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_chat_knows_no_best_of() {
    let emulator = fast(1).await;
    let body = with(chat("hello", 5, true), json!({ "best_of": 3 }));
    let events = post(emulator.replica(0), CHAT, &body).await.named_events();
    assert_eq!(chat_text(&events).len(), 20);
    emulator.shutdown().await;
}

#[tokio::test]
async fn what_would_take_too_much_is_refused() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let many: Vec<&str> = vec!["a"; 1025];
    for body in [
        json!({ "model": "tiny", "prompt": many }),
        json!({ "model": "tiny", "prompt": many[..9], "n": 128 }),
        json!({ "model": "tiny", "prompt": many[..8], "n": 128, "max_tokens": 32_000,
                "ignore_eos": true }),
        json!({ "model": "tiny", "prompt": [] }),
    ] {
        assert_eq!(post(replica, "/v1/completions", &body).await.status, 400);
    }
    let stats = replica.stats();
    assert_eq!((stats.started, stats.running, stats.waiting), (0, 0, 0));
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_large_image_fits_into_the_context() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let url = format!("data:image/png;base64,{}", "A".repeat(200_000));
    let mut body = chat("", 2, false);
    body["messages"][0]["content"] = json!([
        { "type": "text", "text": "What is it?" },
        { "type": "image_url", "image_url": { "url": url } },
    ]);
    let usage = async || post(replica, CHAT, &body).await.json()["usage"].clone();
    let first = usage().await;
    assert_eq!(first["prompt_tokens"], 3 + 3 + 576);
    let cached = &usage().await["prompt_tokens_details"]["cached_tokens"];
    assert_eq!(cached, 576, "the same image again");
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_server_of_vllms_kind_answers_vllms_own_paths() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let model = get(replica, "/v1/models").await.json()["data"][0].clone();
    assert_eq!((&model["root"], &model["parent"]), (&json!("tiny"), &Value::Null));
    assert_eq!((&model["owned_by"], &model["max_model_len"]), (&json!("vllm"), &json!(32_768)));
    assert!(model["permission"][0]["allow_sampling"].as_bool().unwrap());
    assert!(get(replica, "/version").await.json()["version"].is_string());
    assert_eq!(call(replica, "POST", "/ping", &[], "").await.status, 200);
    let body = json!({ "prompt": "größer", "return_token_strs": true });
    let tokens = post(replica, "/tokenize", &body).await.json();
    assert_eq!((&tokens["count"], &tokens["max_model_len"]), (&json!(2), &json!(32_768)));
    let back = post(replica, "/detokenize", &json!({ "tokens": tokens["tokens"] })).await;
    assert_eq!(back.json()["prompt"], "größer");
    for (path, body) in [
        ("/tokenize", json!({ "model": "huge", "prompt": "a" })),
        ("/tokenize", json!({ "prompt": 5 })),
        ("/detokenize", json!({ "tokens": ["a"] })),
    ] {
        assert!(post(replica, path, &body).await.status / 100 == 4);
    }
    assert_eq!(replica.stats().received, 0, "none of them is an inference request");
    emulator.shutdown().await;
}
