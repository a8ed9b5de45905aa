//! Tests of all endpoints except completions, responses and tensors.

use bytes::Bytes;
use serde_json::{Value, json};
use spillway_emulator::{Emulator, EmulatorConfig};

use crate::client::{call, chat, fast, get, post};

#[tokio::test]
async fn embeddings_come_as_numbers_or_base64() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let mut body = json!({ "model": "tiny", "input": ["one", "two and more"], "dimensions": 8 });
    let reply = post(replica, "/v1/embeddings", &body).await.json();
    assert_eq!(reply["object"], "list");
    assert_eq!(reply["data"].as_array().unwrap().len(), 2);
    let numbers = reply["data"][1]["embedding"].as_array().unwrap();
    assert_eq!((numbers.len(), &reply["data"][1]["index"]), (8, &json!(1)));
    assert_eq!(reply["usage"]["prompt_tokens"], 4);

    body["encoding_format"] = "base64".into();
    let reply = post(replica, "/v1/embeddings", &body).await.json();
    let text = reply["data"][1]["embedding"].as_str().unwrap();
    assert_eq!(text.len(), (8_usize * 4).div_ceil(3) * 4);
    let steps = replica.stats().engine.steps;
    assert!(steps <= 4, "both inputs of a request are in one batch: {steps} steps");
    body["dimensions"] = 0.into();
    assert_eq!(post(replica, "/v1/embeddings", &body).await.status, 400);
    emulator.shutdown().await;
}

#[tokio::test]
async fn documents_are_ranked() {
    let emulator = fast(1).await;
    let body = json!({ "model": "tiny", "query": "blue water",
                       "documents": ["red", "blue water", "water"], "top_n": 2 });
    for path in ["/v1/rerank", "/rerank"] {
        let reply = post(emulator.replica(0), path, &body).await.json();
        let results = reply["results"].as_array().unwrap();
        let order: Vec<&Value> = results.iter().map(|result| &result["index"]).collect();
        assert_eq!(order, [&json!(1), &json!(2)]);
        assert_eq!(results[0]["document"]["text"], "blue water");
        assert_eq!(results[0]["relevance_score"], 1.0);
    }
    emulator.shutdown().await;
}

#[tokio::test]
async fn models_and_health_are_told() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    assert_eq!(get(replica, "/health").await.status, 200);
    let list = get(replica, "/v1/models").await.json();
    let ids: Vec<&Value> =
        list["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, [&json!("tiny"), &json!("small")]);
    assert_eq!(get(replica, "/v1/models/small").await.json()["object"], "model");
    assert_eq!(get(replica, "/v1/models/huge").await.status, 404);
    let nothing = get(replica, "/v1/nothing").await;
    assert_eq!(nothing.status, 404);
    assert!(nothing.json()["error"]["message"].is_string());
    assert_eq!(replica.stats().received, 0, "none of them is an inference request");
    emulator.shutdown().await;
}

#[tokio::test]
async fn audio_is_transcribed_from_a_form() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let form = |model: &str, format: &str| {
        let part = |name: &str, value: &str| {
            format!("--xyz\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let file = "--xyz\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\
                    content-type: audio/wav\r\n\r\nRIFF....\r\n--xyz--\r\n";
        Bytes::from(part("model", model) + &part("response_format", format) + file)
    };
    let kind = [("content-type", "multipart/form-data; boundary=xyz")];
    let path = "/v1/audio/transcriptions";
    let reply = call(replica, "POST", path, &kind, form("tiny", "json")).await;
    let text = reply.json()["text"].as_str().unwrap().to_owned();
    assert!(text.len() > 50);
    let usage = &reply.json()["usage"];
    let details = &usage["input_token_details"];
    assert_eq!(details["audio_tokens"], usage["input_tokens"]);
    assert_eq!(details["text_tokens"], 0);
    let plain = call(replica, "POST", path, &kind, form("tiny", "text")).await;
    assert_eq!(plain.body, text);
    assert_eq!(call(replica, "POST", path, &kind, form("huge", "json")).await.status, 404);
    assert_eq!(call(replica, "POST", path, &[], form("tiny", "json")).await.status, 400);
    emulator.shutdown().await;
}

#[tokio::test]
async fn speech_is_a_wav_and_images_are_pngs() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let body = json!({ "model": "tiny", "input": "Hello.", "voice": "alloy" });
    let speech = post(replica, "/v1/audio/speech", &body).await;
    assert_eq!(speech.headers["content-type"], "audio/wav");
    assert_eq!(speech.body.len(), 44 + 6 * 3200);
    let body = json!({ "model": "tiny", "prompt": "a dam", "n": 2 });
    let images = post(replica, "/v1/images/generations", &body).await.json();
    assert_eq!(images["data"].as_array().unwrap().len(), 2);
    assert!(images["data"][0]["b64_json"].as_str().unwrap().starts_with("iVBORw0KGgo"));
    assert_ne!(images["data"][0], images["data"][1]);
    emulator.shutdown().await;
}

#[tokio::test]
async fn metrics_tell_the_truth() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let prompt = "the same long prompt, twice, so that the second finds the first. ".repeat(2);
    for _ in 0..2 {
        post(replica, "/v1/chat/completions", &chat(&prompt, 7, false)).await;
    }
    let reply = get(replica, "/metrics").await;
    let kind = reply.headers["content-type"].to_str().unwrap();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    let page = String::from_utf8(reply.body.to_vec()).unwrap();
    let value = |name: &str| -> f64 {
        let line = page.lines().find(|line| line.starts_with(&format!("{name}{{")));
        line.and_then(|line| line.rsplit(' ').next()).unwrap().parse().unwrap()
    };
    let expected = [
        ("vllm:generation_tokens_total", 14.0),
        ("vllm:prompt_tokens_total", 2.0 * 36.0),
        ("vllm:prefix_cache_queries_total", 2.0 * 36.0),
        ("vllm:prefix_cache_hits_total", 32.0),
        ("vllm:num_requests_running", 0.0),
        ("vllm:num_requests_waiting", 0.0),
        ("vllm:kv_cache_usage_perc", 0.0),
        ("vllm:request_success_total", 2.0),
        ("vllm:time_to_first_token_seconds_count", 2.0),
        ("vllm:inter_token_latency_seconds_count", 12.0),
        ("vllm:cache_config_info", 1.0),
    ];
    for (name, wanted) in expected {
        assert!((value(name) - wanted).abs() < 1e-9, "{name} is {}, not {wanted}", value(name));
    }
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let config = EmulatorConfig { body_bytes_max: 1000, ..EmulatorConfig::default() };
    let emulator = Emulator::start(config).await.unwrap();
    let body = chat(&"x".repeat(2000), 1, false);
    let reply = post(emulator.replica(0), "/v1/chat/completions", &body).await;
    assert_eq!(reply.status, 413);
    emulator.shutdown().await;
}
