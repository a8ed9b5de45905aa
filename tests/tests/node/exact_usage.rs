//! Usage of complete replies of all forms, against the emulator's own count.

use http::{HeaderValue, Request};
use serde_json::{Value, json};
use spillway_emulator::{Emulator, EmulatorConfig, ReplyOptions, StreamOptionsSchema};
use spillway_node::Node;
use spillway_tests::{Client, ClientBody, Page, Setup, eventually, full, post};

/// Requests in all; each form comes several times.
const REQUESTS: usize = 2_000;

/// Request number `index`: every form of reply, streamed and whole, with and without usage asked for
/// by the client, plain and compressed.
fn request(index: usize) -> Request<ClientBody> {
    let is_stream = index.is_multiple_of(2);
    let words = "some words ".repeat(1 + index % 7);
    let (path, mut body) = match index / 2 % 6 {
        0 => ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": words}]})),
        1 => ("/v1/completions", json!({"prompt": words})),
        2 => (
            "/v1/responses",
            json!({"input": words, "metadata": {"usage": "{\"input_tokens\":1}"}}),
        ),
        3 => ("/v1/messages", json!({"messages": [{"role": "user", "content": words}]})),
        4 => ("/v1/embeddings", json!({"input": [words, "more"]})),
        _ => ("/v1/completions", json!({"prompt": [words, "another"], "n": 2})),
    };
    let fields = body.as_object_mut().expect("an object");
    fields.insert("model".to_owned(), "tiny".into());
    if path != "/v1/embeddings" {
        let limit = if path == "/v1/responses" { "max_output_tokens" } else { "max_tokens" };
        fields.insert(limit.to_owned(), (1 + index % 9).into());
        fields.insert("stream".to_owned(), is_stream.into());
    }
    let asks = is_stream && index.is_multiple_of(3) && path.ends_with("completions");
    if asks {
        fields.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    let mut request = post(path, "");
    *request.body_mut() = full(body.to_string());
    if index.is_multiple_of(5) {
        request.headers_mut().insert("accept-encoding", HeaderValue::from_static("gzip"));
    }
    request
}

async fn start() -> (Emulator, Node) {
    let config = EmulatorConfig { replicas: 2, time_scale: 0.001, ..EmulatorConfig::default() };
    let emulator = Emulator::start(config).await.expect("an emulator");
    for index in 0..2 {
        emulator.replica(index).set_options(ReplyOptions {
            gzip: true,
            cut_seed: Some(index as u64 + 1),
            usage_first: index == 0,
            late_cached_tokens: index == 1,
            stream_options: StreamOptionsSchema::Any,
        });
    }
    let route = "[[route]]\nname = \"messages\"\npath_prefix = \"/v1/messages\"\nprotocol = \"openai\"\n\
                 [[route]]\nname = \"all\"\ncontinue_streams = true";
    let setup = Setup::new().table(route).set("limits.connections_max = 4096");
    let setup = emulator.addresses().iter().enumerate().fold(setup, |setup, (index, address)| {
        setup.replica_with(&format!("r{index}"), &format!("http://{address}"), "kind = \"vllm\"")
    });
    (emulator, setup.start().await)
}

#[tokio::test]
async fn usage_of_complete_replies_is_exact_whatever_their_form_and_however_they_are_cut() {
    let (emulator, node) = start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for index in 0..REQUESTS {
        let reply = client.fetch(request(index)).await;
        assert_eq!(reply.status, 200, "{index}: {}", reply.text());
        let asked = index.is_multiple_of(2) && index.is_multiple_of(3);
        let shows =
            reply.text().contains("\"include_usage\"") || reply.text().contains("\"usage\":{");
        let is_chat_stream = index.is_multiple_of(2) && matches!(index / 2 % 6, 0 | 1 | 5);
        assert!(!is_chat_stream || shows == asked, "{index}: {}", reply.text());
    }
    let sum = |of: fn(&spillway_emulator::UsageTotals) -> u64| -> u64 {
        (0..2).map(|index| of(&emulator.replica(index).usage().complete)).sum()
    };
    assert_eq!(sum(|totals| totals.requests), REQUESTS as u64, "all were whole");
    let page = || Page::of(&node);
    let counted = |kind| page().sum("spillway_tokens_total", &[("kind", kind)]) as u64;
    eventually("all are counted", || {
        page().sum("spillway_requests_total", &[("end", "complete")]) >= REQUESTS as f64
    })
    .await;
    // Embeddings generate nothing, and their usage has no field for cached tokens.
    let cached = |replica: usize| -> u64 {
        let usages = emulator.replica(replica).usage().requests.into_iter().map(|one| one.usage);
        usages
            .filter(|usage| usage.completion_tokens > 0)
            .map(|usage| u64::from(usage.cached_tokens))
            .sum()
    };
    let expected = [
        sum(|totals| totals.prompt_tokens),
        sum(|totals| totals.completion_tokens),
        cached(0) + cached(1),
    ];
    let told: [u64; 3] = ["prompt", "completion", "cached"].map(counted);
    assert_eq!(told, expected, "prompt, completion and cached tokens");
    assert_eq!(counted("estimated"), 0);
    let admin = node.admin_address().expect("an admin listener");
    let usage: Value = Client::once(admin, spillway_tests::get("/usage")).await.json();
    let lines = usage["usage"].as_array().cloned().unwrap_or_default();
    let billed: u64 = lines.iter().filter_map(|line| line["prompt_tokens"].as_u64()).sum();
    assert_eq!(billed, expected[0], "{usage}");
}
