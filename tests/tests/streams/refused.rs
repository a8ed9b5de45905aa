//! Streams that no replica could continue exactly.

use serde_json::{Value, json};
use spillway_emulator::{Close, Fault};
use spillway_tests::{Setup, emulator, eventually};

use crate::cuts::of_kind;
use crate::stream::{Api, Stream, continuing, counted, fetch};

const CUT: Fault = Fault::Cut { after_events: 4, close: Close::Reset };

/// A node that keeps so many bytes of the text of each stream.
fn keeping(text_bytes_max: usize) -> Setup {
    continuing("").with(move |config| {
        let kept = config.world.routes.iter_mut().filter_map(|it| it.continuation.as_mut());
        kept.for_each(|it| it.text_bytes_max = text_bytes_max);
    })
}

/// Fetches two streams of which one is cut, and checks how the cut is counted.
async fn both(api: Api, more: Value, kind: &str, (result, reason): (&str, &str)) -> Vec<Stream> {
    let emulator = emulator(2).await;
    let node = of_kind(keeping(64), &emulator, kind).start().await;
    emulator.replica(0).set_fault(CUT).await.expect("a fault");
    let streams = [
        fetch(node.addresses()[0], api, &more).await,
        fetch(node.addresses()[0], api, &more).await,
    ];
    eventually("it is counted", || counted(&node, result, reason) >= 1.0).await;
    streams.to_vec()
}

#[track_caller]
fn check(streams: &[Stream], reason: &str) {
    let cut: Vec<_> = streams.iter().filter(|stream| !stream.errors.is_empty()).collect();
    assert_eq!(cut.len(), 1, "{reason}");
    assert_eq!(cut[0].errors, ["stream_cut"], "{reason}");
    assert_eq!((cut[0].dones, cut[0].finishes.len()), (0, 0), "{reason}");
}

#[tokio::test]
async fn the_client_is_told_where_another_replica_could_not_be_exact() {
    // Long enough to be cut.
    let text = json!({"type": "string", "minLength": 60});
    let parameters = json!({"type": "object", "required": ["a"], "properties": {"a": text}});
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": parameters}});
    let choices = ["this or that or yet another", "that or this or yet another"];
    let chat = [
        (json!({"tools": [tool]}), "tools"),
        (json!({"response_format": {"type": "json_object"}}), "structured"),
        (json!({"guided_choice": choices}), "structured"),
        (json!({"logprobs": true}), "logprobs"),
        (json!({"seed": 1}), "seed"),
        (json!({"presence_penalty": 1.5}), "penalties"),
        (json!({"stop": "zz", "n": 1, "best_of": 2}), "several_answers"),
    ];
    for (more, reason) in chat {
        check(&both(Api::Chat, more, "vllm", ("refused", reason)).await, reason);
    }
    let text = [
        (json!({"prompt": [1, 2, 3]}), "token_prompt"),
        (json!({"prompt": ["a"]}), "token_prompt"),
        (json!({"max_tokens": null}), "no_limit"),
        (json!({"echo": true}), "echo"),
        (json!({"suffix": "x"}), "suffix"),
    ];
    for (more, reason) in text {
        check(&both(Api::Text, more, "vllm", ("refused", reason)).await, reason);
    }
}

#[tokio::test]
async fn what_is_fine_is_not_refused() {
    for more in [
        json!({"seed": 1, "temperature": 0}),
        json!({"logit_bias": {"5": 1.0}, "top_p": 0.9, "user": "x"}),
        json!({"tools": [], "n": 1, "stop": ["zz"]}),
    ] {
        let streams = both(Api::Chat, more, "vllm", ("continued", "cut")).await;
        assert_eq!(streams[0].text, streams[1].text);
        assert!(streams.iter().all(|stream| stream.errors.is_empty() && stream.dones == 1));
    }
}

#[tokio::test]
async fn a_text_that_is_too_long_to_be_kept_is_not_continued() {
    let emulator = emulator(2).await;
    let node = of_kind(keeping(7), &emulator, "vllm").start().await;
    emulator.replica(0).set_fault(CUT).await.expect("a fault");
    let address = node.addresses()[0];
    let streams =
        [fetch(address, Api::Text, &json!({})).await, fetch(address, Api::Text, &json!({})).await];
    check(&streams, "too_long");
    assert_eq!(counted(&node, "refused", "too_long"), 1.0);
}

#[tokio::test]
async fn a_chat_is_not_given_to_an_engine_that_would_answer_it_anew() {
    let streams = both(Api::Chat, json!({}), "tgi", ("failed", "no_replica")).await;
    check(&streams, "tgi");
    // A longer prompt is a prompt to any engine.
    let streams = both(Api::Text, json!({}), "tgi", ("continued", "cut")).await;
    assert_eq!(streams[0].text, streams[1].text);
}

#[tokio::test]
async fn without_the_setting_streams_end_as_they_always_did() {
    let emulator = emulator(2).await;
    let setup = Setup::new().set("health.eject_after = 1000000");
    let route = "[[route]]\nname = \"all\"\npolicy = \"round_robin\"\n";
    let node = of_kind(setup.table(route), &emulator, "vllm").start().await;
    emulator.replica(0).set_fault(CUT).await.expect("a fault");
    let address = node.addresses()[0];
    let streams =
        [fetch(address, Api::Chat, &json!({})).await, fetch(address, Api::Chat, &json!({})).await];
    check(&streams, "off");
}

#[tokio::test]
async fn continuations_are_retries_and_as_limited() {
    let emulator = emulator(2).await;
    let setup = Setup::new()
        .set("retry.budget_percent = 0")
        .table("[[route]]\nname = \"all\"\npolicy = \"round_robin\"\ncontinue_streams = true\n");
    let node = of_kind(setup, &emulator, "vllm").start().await;
    emulator.replica(0).set_fault(CUT).await.expect("a fault");
    let address = node.addresses()[0];
    let streams =
        [fetch(address, Api::Chat, &json!({})).await, fetch(address, Api::Chat, &json!({})).await];
    check(&streams, "budget");
    assert_eq!(counted(&node, "refused", "budget"), 1.0);
}
