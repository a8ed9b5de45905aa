//! Tests of the emulator's own count of tokens.

use serde_json::{Value, json};
use spillway_emulator::{CallOutcome, Close, Fault, ReplicaHandle, ReplyOptions, TokenUsage};

use crate::client::{Connection, call, chat, fast, get, next_frame, post, slow, until};

const CHAT: &str = "/v1/chat/completions";

/// Returns the usage that a reply of any endpoint reports.
fn reported(body: &Value) -> TokenUsage {
    let usage = &body["usage"];
    let number = |name: &str| usage[name].as_u64().map(|number| u32::try_from(number).unwrap());
    let details = ["prompt_tokens_details", "input_tokens_details"].map(|name| &usage[name]);
    let cached = details.iter().find_map(|details| details["cached_tokens"].as_u64());
    let read = number("cache_read_input_tokens");
    let prompt = number("prompt_tokens").or_else(|| number("input_tokens")).unwrap();
    TokenUsage {
        prompt_tokens: prompt + read.unwrap_or(0),
        completion_tokens: number("completion_tokens")
            .or_else(|| number("output_tokens"))
            .unwrap_or(0),
        cached_tokens: cached.map_or(0, |cached| u32::try_from(cached).unwrap())
            + read.unwrap_or(0),
    }
}

/// Returns the usage at the end of a stream of chunks.
fn streamed(events: &[(String, String)]) -> TokenUsage {
    let [.., (_, usage), (_, done)] = events else { panic!("{events:?}") };
    assert_eq!(done, "[DONE]");
    reported(&serde_json::from_str(usage).unwrap())
}

async fn last_usage(replica: &ReplicaHandle) -> TokenUsage {
    until(replica, |stats| stats.received == stats.finished + stats.aborted + stats.rejected).await;
    replica.usage().requests.last().unwrap().usage
}

#[tokio::test]
async fn the_count_of_every_endpoint_is_the_one_it_reports() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let prompt = "a prompt that fills some blocks of the cache for sure. ".repeat(4);
    let mut several = chat(&prompt, 20, false);
    several["n"] = 2.into();
    for (path, body) in [
        (CHAT, chat(&prompt, 20, false)),
        (CHAT, several),
        ("/v1/completions", json!({ "model": "tiny", "prompt": [prompt, "hi"], "max_tokens": 9 })),
        ("/v1/messages", chat(&prompt, 20, false)),
        ("/v1/responses", json!({ "model": "tiny", "input": prompt, "max_output_tokens": 9 })),
        ("/v1/embeddings", json!({ "model": "tiny", "input": prompt })),
        ("/v1/rerank", json!({ "model": "tiny", "query": "a", "documents": [prompt] })),
    ] {
        for turn in ["cold", "warm"] {
            let reply = post(replica, path, &body).await;
            assert_eq!(reply.status, 200, "{path}: {}", reply.text());
            let (counted, reported) = (last_usage(replica).await, reported(&reply.json()));
            let cached = counted.cached_tokens;
            let has_cached = path != "/v1/embeddings" && path != "/v1/rerank";
            let expected = if has_cached {
                reported
            } else {
                TokenUsage { cached_tokens: cached, ..reported }
            };
            assert_eq!(counted, expected, "{path}, {turn}");
            assert!(turn == "cold" || cached > 0, "{path}, {turn}: {counted:?}");
        }
    }
    let totals = replica.usage();
    assert_eq!((totals.complete.requests, totals.incomplete.requests), (14, 0));
    emulator.shutdown().await;
}

#[tokio::test]
async fn streams_count_the_same_however_they_are_cut() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let mut sums = (0, 0);
    for number in 0..60_u64 {
        let cut_seed = (number % 2 == 0).then_some(number);
        replica.set_options(ReplyOptions { cut_seed, ..ReplyOptions::default() });
        let mut body =
            chat(&format!("{} hi", number % 7), 1 + u32::try_from(number % 9).unwrap(), true);
        body["stream_options"] = json!({ "include_usage": true });
        let id = format!("client-{number}");
        let headers = [("x-request-id", id.as_str())];
        let reply = call(replica, "POST", CHAT, &headers, body.to_string()).await;
        let reported = streamed(&reply.named_events());
        let finished = |stats: &spillway_emulator::ReplicaStats| stats.finished == number + 1;
        until(replica, finished).await;
        let record = replica.usage().requests.pop().unwrap();
        assert_eq!((record.request_id, record.usage), (Some(id), reported));
        assert!(record.is_complete);
        sums.0 += u64::from(reported.prompt_tokens);
        sums.1 += u64::from(reported.completion_tokens);
    }
    let totals = replica.usage().complete;
    assert_eq!((totals.prompt_tokens, totals.completion_tokens), sums);
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_cut_stream_counts_the_tokens_that_were_sent() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    // The first event names the role.
    for (after_events, tokens) in [(0, 0), (1, 0), (2, 1), (7, 6)] {
        replica.set_fault(Fault::Cut { after_events, close: Close::Fin }).await.unwrap();
        let mut connection = Connection::open(replica).await;
        let mut response = connection.post(CHAT, &chat("hi", 50, true)).await.unwrap();
        while let Some(Ok(_)) = next_frame(&mut response).await {}
        drop((response, connection));
        let usage = last_usage(replica).await;
        assert_eq!(usage.completion_tokens, tokens, "after {after_events} events");
        assert!(usage.prompt_tokens > 0);
        let record = replica.usage().requests.pop().unwrap();
        assert_eq!((record.outcome, record.is_complete), (CallOutcome::Aborted, false));
    }
    let report = get(replica, "/emulator/usage").await.json();
    assert_eq!(report["incomplete"]["completion_tokens"], 7);
    assert_eq!(report["incomplete"]["requests"], 4);
    assert_eq!(report["requests"][3]["usage"]["completion_tokens"], 6);
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_client_that_leaves_is_counted_up_to_there() {
    let emulator = slow(1).await;
    let replica = emulator.replica(0);
    let mut connection = Connection::open(replica).await;
    let mut response = connection.post(CHAT, &chat("hi", 1000, true)).await.unwrap();
    let mut text = String::new();
    while text.matches("data: ").count() < 4 {
        let frame = next_frame(&mut response).await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(&frame).unwrap());
    }
    drop((response, connection));
    let usage = last_usage(replica).await;
    // The role and at least three tokens were read, and a few more may have been sent in that time.
    assert!((3..1000).contains(&usage.completion_tokens), "{usage:?}");
    let refused = post(replica, CHAT, &json!({})).await;
    assert_eq!(refused.status, 400);
    assert_eq!(last_usage(replica).await, TokenUsage::default());
    assert_eq!(replica.usage().incomplete.requests, 1);
    emulator.shutdown().await;
}
