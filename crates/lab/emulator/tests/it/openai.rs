//! Tests of chat and text completions.

use serde_json::{Value, json};

use crate::client::{Connection, Reply, call, chat, chat_text, fast, next_frame, post, slow};

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn a_chat_completion_has_every_field_that_clients_need() {
    let emulator = fast(1).await;
    let reply = post(emulator.replica(0), CHAT, &chat("What is a dam?", 20, false)).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers["content-type"], "application/json");
    assert_eq!(reply.headers["x-emulator-replica"], "0");
    let body = reply.json();
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["model"], "tiny");
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert!(body["created"].as_u64().unwrap() > 1_600_000_000);
    let choice = &body["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    assert_eq!(choice["message"]["content"].as_str().unwrap().len(), 80);
    assert_eq!(choice["finish_reason"], "length");
    // 14 bytes are 4 tokens; the marks of two messages are 3 more.
    assert_eq!(body["usage"]["prompt_tokens"], 7);
    assert_eq!(body["usage"]["completion_tokens"], 20);
    assert_eq!(body["usage"]["total_tokens"], 27);
    assert_eq!(body["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_body_that_is_not_called_json_is_refused_as_vllm_refuses_it() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let body = chat("hello", 2, false).to_string();
    // The first is what curl sends for `-d` by default.
    for kind in ["application/x-www-form-urlencoded", "text/plain", ""] {
        let reply = call(replica, "POST", CHAT, &[("content-type", kind)], body.clone()).await;
        assert_eq!(reply.status, 400, "{kind}");
        let error = &reply.json()["error"];
        assert_eq!((&error["type"], &error["code"]), (&json!("Bad Request"), &json!(400)));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("Unsupported Media Type: Only 'application/json'"), "{message}");
    }
    for kind in ["application/json; charset=utf-8", "Application/JSON"] {
        let reply = call(replica, "POST", CHAT, &[("content-type", kind)], body.clone()).await;
        assert_eq!(reply.status, 200, "{kind}");
    }
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_stream_says_the_same_as_the_whole_reply_one_token_an_event() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let whole = post(replica, CHAT, &chat("hello", 9, false)).await.json();
    let stream = post(replica, CHAT, &chat("hello", 9, true)).await;
    assert_eq!(stream.headers["content-type"], "text/event-stream; charset=utf-8");
    let events = stream.named_events();
    assert_eq!(events.len(), 1 + 9 + 1 + 1, "role, tokens, finish, [DONE]");
    assert_eq!(chat_text(&events), whole["choices"][0]["message"]["content"]);
    assert_eq!(events.last().unwrap().1, "[DONE]");
    let chunks: Vec<Value> =
        events[..11].iter().map(|(_, data)| serde_json::from_str(data).unwrap()).collect();
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(chunks[10]["choices"][0]["finish_reason"], "length");
    for chunk in &chunks {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(chunk["id"], chunks[0]["id"]);
        assert!(chunk.get("usage").is_none(), "not asked for");
    }
    emulator.shutdown().await;
}

#[tokio::test]
async fn usage_ends_a_stream_if_asked_for_and_tells_what_was_cached() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let prompt = "a prompt of some length, so that whole blocks of it are cached. ".repeat(4);
    let mut body = chat(&prompt, 3, true);
    body["stream_options"] = json!({ "include_usage": true });
    for cached in [0, 64] {
        let events = post(replica, CHAT, &body).await.named_events();
        let last: Value = serde_json::from_str(&events[events.len() - 2].1).unwrap();
        assert_eq!(last["choices"], json!([]));
        assert_eq!(last["usage"]["prompt_tokens"], 67);
        assert_eq!(last["usage"]["completion_tokens"], 3);
        assert_eq!(last["usage"]["prompt_tokens_details"]["cached_tokens"], cached);
        let first: Value = serde_json::from_str(&events[0].1).unwrap();
        assert_eq!(first["usage"], Value::Null, "null until the end");
    }
    emulator.shutdown().await;
}

#[tokio::test]
async fn the_same_prompt_and_seed_give_the_same_text_on_every_replica() {
    let emulator = fast(2).await;
    let text = async |replica: usize, seed: Option<u32>| {
        let mut body = chat("hello", 30, false);
        if let Some(seed) = seed {
            body["seed"] = seed.into();
        }
        let reply = post(emulator.replica(replica), CHAT, &body).await.json();
        (reply["choices"][0]["message"]["content"].clone(), reply["id"].clone())
    };
    let (first, first_id) = text(0, None).await;
    let (second, second_id) = text(1, None).await;
    assert_eq!(first, second);
    assert_ne!(first_id, second_id);
    assert_ne!(first, text(0, Some(1)).await.0);
    assert_eq!(text(0, Some(1)).await.0, text(1, Some(1)).await.0);
    emulator.shutdown().await;
}

#[tokio::test]
async fn the_next_turn_finds_the_conversation_in_the_cache() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let question = json!({ "role": "user", "content": "Tell me about rivers and about dams." });
    let mut body = json!({ "model": "tiny", "messages": [question], "max_tokens": 100,
                           "ignore_eos": true });
    let first = post(replica, CHAT, &body).await.json();
    let answer = first["choices"][0]["message"].clone();
    body["messages"] =
        json!([question, answer, { "role": "user", "content": "And about valleys?" }]);
    let second = post(replica, CHAT, &body).await.json();
    let total = first["usage"]["total_tokens"].as_u64().unwrap();
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert_eq!(cached, (total - 1) / 16 * 16, "of {total} tokens");
    emulator.shutdown().await;
}

#[tokio::test]
async fn content_may_come_in_parts() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let whole = post(replica, CHAT, &chat("hello there", 9, false)).await.json();
    let mut body = chat("", 9, false);
    body["messages"][0]["content"] = json!([
        { "type": "text", "text": "hello " },
        { "type": "text", "text": "there" },
    ]);
    let parts = post(replica, CHAT, &body).await.json();
    assert_eq!(parts["choices"], whole["choices"]);
    emulator.shutdown().await;
}

#[tokio::test]
async fn without_a_limit_the_model_stops_by_itself() {
    let emulator = fast(1).await;
    let body = json!({ "model": "tiny", "messages": [{ "role": "user", "content": "hi" }] });
    let reply = post(emulator.replica(0), CHAT, &body).await.json();
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    assert!(reply["choices"][0]["message"]["content"].as_str().unwrap().ends_with('.'));
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_token_is_sent_as_soon_as_it_is_made() {
    let emulator = slow(1).await;
    let mut connection = Connection::open(emulator.replica(0)).await;
    let mut response = connection.post(CHAT, &chat("hello", 10, true)).await.unwrap();
    next_frame(&mut response).await.unwrap().unwrap();
    let stats = emulator.replica(0).stats();
    assert_eq!((stats.running, stats.finished), (1, 0), "the rest is still being made");
    assert!(stats.engine.generation_tokens < 5, "{stats:?}");
    let rest = Reply::collect(response).await.unwrap();
    assert!(rest.body.ends_with(b"data: [DONE]\n\n"));
    emulator.shutdown().await;
}

#[tokio::test]
async fn http2_without_tls_serves_many_streams_on_one_connection() {
    let emulator = fast(1).await;
    let mut connection = Connection::open_h2(emulator.replica(0)).await;
    let mut responses = Vec::new();
    for number in 0..20 {
        let body = chat(&format!("stream {number}"), 8, true);
        responses.push(connection.post(CHAT, &body).await.unwrap());
    }
    for response in responses {
        assert_eq!(response.version(), http::Version::HTTP_2);
        assert_eq!(chat_text(&Reply::collect(response).await.unwrap().named_events()).len(), 32);
    }
    assert_eq!(emulator.replica(0).stats().finished, 20);
    emulator.shutdown().await;
}

#[tokio::test]
async fn text_completions_work_whole_and_as_a_stream() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let mut body = json!({ "model": "small", "prompt": "Once upon a time", "max_tokens": 6,
                           "ignore_eos": true });
    let whole = post(replica, "/v1/completions", &body).await.json();
    assert_eq!(whole["object"], "text_completion");
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    assert_eq!(whole["usage"]["prompt_tokens"], 4);
    let text = whole["choices"][0]["text"].as_str().unwrap();
    assert_eq!(text.len(), 24);

    body["stream"] = true.into();
    let events = post(replica, "/v1/completions", &body).await.named_events();
    assert_eq!(events.len(), 6 + 1 + 1);
    let pieces = events[..6].iter().map(|(_, data)| {
        let chunk: Value = serde_json::from_str(data).unwrap();
        chunk["choices"][0]["text"].as_str().unwrap().to_owned()
    });
    assert_eq!(pieces.collect::<String>(), text);

    body["stream"] = false.into();
    body["prompt"] = json!([1, 2, 3]);
    assert_eq!(post(replica, "/v1/completions", &body).await.json()["usage"]["prompt_tokens"], 3);
    emulator.shutdown().await;
}

#[tokio::test]
async fn wrong_requests_get_openai_errors() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let with = |field: &str, value: Value| {
        let mut body = chat("hi", 5, false);
        body[field] = value;
        body.to_string()
    };
    let long = "word ".repeat(50_000);
    let cases = [
        ("not json".to_owned(), 400, Value::Null),
        (with("messages", json!([])), 400, json!("messages")),
        (with("n", json!(0)), 400, json!("n")),
        (with("temperature", json!(-1)), 400, json!("temperature")),
        (with("stream_options", json!({})), 400, json!("stream_options")),
        (with("max_tokens", json!(0)), 400, json!("max_tokens")),
        (with("max_tokens", json!(1_000_000)), 400, json!("messages")),
        (chat(&long, 5, true).to_string(), 400, json!("messages")),
        (with("model", json!("huge")), 404, json!("model")),
    ];
    let count = cases.len() as u64;
    for (body, status, param) in cases {
        let reply = call(replica, "POST", CHAT, &[], body.clone()).await;
        let error = &reply.json()["error"];
        assert_eq!(reply.status, status, "{error}");
        assert_eq!(error["param"], param, "{error}");
        assert_eq!(error["type"], "invalid_request_error");
        assert!(error["message"].as_str().unwrap().len() > 10);
    }
    let unknown = call(replica, "POST", CHAT, &[], with("model", json!("huge"))).await;
    assert_eq!(unknown.json()["error"]["code"], "model_not_found");
    let stats = replica.stats();
    assert_eq!((stats.rejected, stats.started, stats.received), (count + 1, 0, count + 1));
    emulator.shutdown().await;
}
