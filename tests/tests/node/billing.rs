//! Billing of requests whose replica reports no usage, or usage that can't be true.

use bytes::Bytes;
use http::{HeaderValue, Method};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use spillway_emulator::{Close, Fault};
use spillway_node::Node;
use spillway_tests::{
    Client, ClientBody, Cluster, Page, RAW_ROUTE, Reply, Scripted, Serving, Setup, chat, emulator,
    eventually, full, get, knows, message, post, streamed, within,
};

use crate::grpc_calls::{connect, emulated, frame, infer, kserve, tokens as stream_of};

/// Bytes of a text that counts as a thousand tokens.
const KILOTOKEN: usize = 4_000;
const EVENT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n";

/// Sums of all that a node's clients used, once it has counted so many requests.
async fn used(node: &Node, requests: u64) -> Sums {
    let address = node.admin_address().expect("an admin listener");
    let asking = async {
        loop {
            let answer = Client::once(address, get("/usage")).await.json();
            let sums = Sums::of(&answer);
            assert!(sums.requests <= requests, "{answer}");
            if sums.requests == requests {
                return sums;
            }
        }
    };
    within("the requests are counted", asking).await
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    requests: u64,
    prompt: u64,
    completion: u64,
    estimated: u64,
}

impl Sums {
    fn of(answer: &Value) -> Self {
        let lines = answer["usage"].as_array().expect("a list");
        let sum = |name: &str| lines.iter().filter_map(|line| line[name].as_u64()).sum();
        Self {
            requests: sum("requests"),
            prompt: sum("prompt_tokens"),
            completion: sum("completion_tokens"),
            estimated: sum("estimated_tokens"),
        }
    }
}

fn estimates(node: &Node, reason: &str) -> f64 {
    Page::of(node).sum("spillway_usage_estimates_total", &[("reason", reason)])
}

/// A chat with a prompt of about a thousand tokens.
fn long_chat(fields: &str) -> http::Request<ClientBody> {
    let text = "x".repeat(KILOTOKEN);
    let messages = json!([{ "role": "user", "content": text }]);
    post("/v1/chat/completions", format!(r#"{{"model":"tiny","messages":{messages}{fields}}}"#))
}

/// A replica that replies with this JSON, whatever it is asked.
async fn replying(body: &str) -> Serving {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
    Scripted::start().await.serve(format!("{head}{}\r\n\r\n{body}", body.len()))
}

#[tokio::test]
async fn a_stream_that_its_client_leaves_bills_its_prompt_and_what_came() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let (reply, wire) = tokio::join!(client.send(long_chat(",\"stream\":true")), async {
        let (mut wire, _) = replica.request().await;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        wire.send(format!("{head}{}", EVENT.repeat(4))).await;
        wire
    });
    let mut body = reply.expect("a reply").into_body();
    let mut seen = String::new();
    while seen.matches("data:").count() < 4 {
        let piece = within("an event", body.frame()).await.expect("a frame").expect("whole");
        seen.push_str(std::str::from_utf8(piece.data_ref().expect("data")).expect("text"));
    }
    drop((client, body));
    let used = used(&node, 1).await;
    assert!((1_000..1_050).contains(&used.prompt), "{used:?}");
    assert_eq!((used.completion, used.estimated), (4, used.prompt + 4), "all is estimated");
    assert_eq!(estimates(&node, "early_end"), 1.0);
    let admin = node.admin_address().expect("an admin listener");
    let entry = &Client::once(admin, get("/v1/requests")).await.json()["requests"][0];
    assert_eq!(entry["tokens_estimated"], true, "{entry}");
    assert_eq!(entry["prompt_tokens"], used.prompt);
    drop(wire);
}

#[tokio::test]
async fn a_stream_that_its_replica_cuts_bills_its_prompt_and_what_came() {
    let emulator = emulator(1).await;
    let node = Setup::new().emulated(&emulator).start().await;
    let cut = Fault::Cut { after_events: 5, close: Close::Fin };
    emulator.replica(0).set_fault(cut).await.expect("a fault");
    let reply = Client::once(node.addresses()[0], long_chat(",\"stream\":true")).await;
    let events = reply.events();
    assert!(events.last().is_some_and(|event| event.contains("\"error\"")), "{}", reply.text());
    let used = used(&node, 1).await;
    assert!((1_000..1_050).contains(&used.prompt), "{used:?}");
    assert_eq!(used.completion, events.len() as u64 - 1, "{}", reply.text());
    assert_eq!(used.estimated, used.prompt + used.completion);
}

#[tokio::test]
async fn a_forwarded_request_is_billed_where_its_client_asked() {
    let replica = replying(r#"{"choices":[]}"#).await;
    let cluster = Cluster::new(&["edge", "one"]);
    let serving = cluster.start(1, Setup::new().replica("a", replica.address)).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "one").await;
    assert_eq!(Client::once(edge.addresses()[0], long_chat("")).await.status, 200);
    let sums = used(&edge, 1).await;
    assert!((1_000..1_050).contains(&sums.prompt), "{sums:?}");
    assert_eq!(sums.estimated, sums.prompt + sums.completion);
    let guests = || Page::of(&serving).sum("spillway_requests_total", &[("model", "tiny")]);
    eventually("the guest is counted", || guests() == 1.0).await;
    assert_eq!(used(&serving, 0).await, Sums::default());
    assert_eq!((estimates(&edge, "unreported"), estimates(&serving, "unreported")), (1.0, 0.0));
}

#[tokio::test]
async fn the_error_of_a_replica_is_free() {
    let emulator = emulator(1).await;
    let setup = Setup::new().set("retry.attempts_max = 1").emulated(&emulator);
    let node = setup.start().await;
    let broken = Fault::Status { code: 500, retry_after_s: None, probability: 1.0 };
    emulator.replica(0).set_fault(broken).await.expect("a fault");
    assert_eq!(Client::once(node.addresses()[0], long_chat("")).await.status, 500);
    assert_eq!(Client::once(node.addresses()[0], chat("nothing", "")).await.status, 404);
    assert_eq!(used(&node, 2).await, Sums { requests: 2, ..Sums::default() });
}

const PRICES: &str = "[[price]]\nprompt_per_million = 10\ncompletion_per_million = 40\n";
const BUDGET: &str = "[[tenant]]\nname = \"acme\"\nbudget_per_day = 0.001\n";
const BY_HEADERS: &str = "auth = \"headers\"\ntrusted_proxies = [\"127.0.0.1\"]";

#[tokio::test]
async fn a_budget_is_spent_by_requests_without_usage_too() {
    let replica = replying(r#"{"outputs":[]}"#).await;
    let setup = Setup::new().table(PRICES).table(BUDGET).listener(BY_HEADERS);
    let node = setup.replica("a", replica.address).start().await;
    let infer = || {
        let mut request = post("/v2/models/tiny/infer", vec![b' '; 40_000]);
        request.headers_mut().insert("x-spillway-tenant", HeaderValue::from_static("acme"));
        request
    };
    let asking = async {
        loop {
            let reply = Client::once(node.addresses()[0], infer()).await;
            if reply.status != 200 {
                return reply;
            }
        }
    };
    let refused: Reply = within("a refusal", asking).await;
    assert_eq!((refused.status, refused.code()), (429, Some("budget_spent")), "{}", refused.text());
}

#[tokio::test]
async fn what_is_not_read_is_billed_by_its_length() {
    let replica = replying(&"y".repeat(400)).await;
    let node = Setup::new().table(RAW_ROUTE).replica("a", replica.address).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let text = Bytes::from("x".repeat(KILOTOKEN));
    let raw = |body| message(Method::POST, "/raw/x", "text/plain", body);
    assert_eq!(client.fetch(raw(full(text.clone()))).await.status, 200);
    let sums = used(&node, 1).await;
    assert_eq!((sums.prompt, sums.completion, sums.estimated), (1_000, 100, 1_100));
    // Without a length, the bytes that pass are counted.
    let (pieces, body) = streamed();
    let sending = async {
        for piece in text.chunks(1_000) {
            pieces.send(Bytes::copy_from_slice(piece)).await.expect("a reader");
        }
        drop(pieces);
    };
    let (reply, ()) = tokio::join!(client.fetch(raw(body)), sending);
    assert_eq!(reply.status, 200);
    let sums = used(&node, 2).await;
    assert_eq!((sums.prompt, sums.completion, sums.estimated), (2_000, 200, 2_200));
    assert_eq!(estimates(&node, "unreported"), 2.0);
}

#[tokio::test]
async fn calls_are_billed_by_their_length_whether_they_stream_or_not() {
    let emulator = emulator(1).await;
    let node = emulated(Setup::new(), &emulator).start().await;
    let mut client = connect(&node).await;
    let unary = infer("tiny", &[b'x'; KILOTOKEN]);
    assert_eq!(client.fetch(kserve("ModelInfer", full(frame(&unary)))).await.status, 200);
    let first = used(&node, 1).await;
    assert!((1_000..1_050).contains(&first.prompt), "{first:?}");
    assert!(first.completion > 0, "{first:?}");
    let mut stream = stream_of("tiny", 3);
    stream.raw_input_contents = vec![Bytes::from(vec![b'x'; KILOTOKEN])];
    let reply = client.fetch(kserve("ModelStreamInfer", full(frame(&stream)))).await;
    assert_eq!(reply.status, 200);
    let both = used(&node, 2).await;
    assert!((2_000..2_100).contains(&both.prompt), "{both:?}");
    assert!(both.completion > first.completion, "{both:?}");
    assert_eq!(both.estimated, both.prompt + both.completion);
}

#[tokio::test]
async fn a_report_that_can_not_be_true_is_not_believed() {
    for prompt in [1_000_000, u64::MAX] {
        let usage = json!({ "prompt_tokens": prompt, "completion_tokens": u64::MAX });
        let replica = replying(&json!({ "choices": [], "usage": usage }).to_string()).await;
        let limit = "[[limit]]\nname = \"global\"\ntokens_per_min = 2000\n";
        let node = Setup::new().table(limit).replica("a", replica.address).start().await;
        for count in 1..=3 {
            let reply = Client::once(node.addresses()[0], chat("tiny", ",\"max_tokens\":5")).await;
            assert_eq!(reply.status, 200, "limits don't believe it either: {}", reply.text());
            let used = used(&node, count).await;
            assert!((1..=50 * count).contains(&used.prompt), "{used:?}");
            assert!(used.completion <= 5 * count, "{used:?}");
            assert_eq!(used.estimated, used.prompt + used.completion);
            assert_eq!(estimates(&node, "implausible"), count as f64);
        }
    }
}

#[tokio::test]
async fn what_can_be_true_is_exact() {
    // A text of some bytes can have as many tokens, and a system prompt adds to them.
    let usage = json!({ "prompt_tokens": 4_100, "completion_tokens": 12,
                        "prompt_tokens_details": { "cached_tokens": 64 } });
    let replica = replying(&json!({ "choices": [], "usage": usage }).to_string()).await;
    let node = Setup::new().replica("a", replica.address).start().await;
    let image = json!([{ "type": "image_url", "image_url": { "url": "https://example.org/a" } }]);
    let remote = json!({ "model": "tiny", "messages": [{ "role": "user", "content": image }] });
    let chats = [
        chat("tiny", r#","max_tokens":4,"n":3"#),
        chat("tiny", ""),
        post("/v1/chat/completions", remote.to_string()),
    ];
    let mut client = Client::http1(node.addresses()[0]).await;
    for request in chats {
        assert_eq!(client.fetch(request).await.status, 200);
    }
    let sums = used(&node, 3).await;
    assert_eq!((sums.prompt, sums.completion, sums.estimated), (12_300, 36, 0));
}

#[tokio::test]
async fn vectors_are_billed_by_their_report_or_by_their_prompt() {
    let emulator = emulator(1).await;
    let unreported = replying(r#"{"data":[{"embedding":[0.25,0.5]}]}"#).await;
    let url = format!("http://{}", unreported.address);
    let setup = Setup::new().emulated(&emulator).replica_with("b", &url, "models = [\"silent\"]");
    let node = setup.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let reply = client.fetch(post("/v1/embeddings", r#"{"model":"tiny","input":"words"}"#)).await;
    let reported = reply.json()["usage"]["prompt_tokens"].as_u64().expect("a number");
    let exact = used(&node, 1).await;
    assert_eq!((exact.prompt, exact.completion, exact.estimated), (reported, 0, 0));
    let input = "x".repeat(KILOTOKEN);
    let body = json!({ "model": "silent", "input": input }).to_string();
    assert_eq!(client.fetch(post("/v1/embeddings", body.clone())).await.status, 200);
    let sums = used(&node, 2).await;
    assert!((1_000..1_010).contains(&sums.estimated), "{sums:?}");
    assert_eq!((sums.prompt, sums.completion), (reported + sums.estimated, 0));
    assert_eq!(client.fetch(post("/tokenize", body)).await.status, 200);
    assert_eq!(used(&node, 3).await, Sums { requests: 3, ..sums }, "tokens are counted for free");
}
