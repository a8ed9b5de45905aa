//! Replicas are asked for the usage of streams by their kind, and no more than they accept.

use std::time::Duration;

use serde_json::{Value, json};
use spillway_node::Node;
use spillway_tests::{
    Client, Page, Reply, Scripted, Setup, StrictServer, both, chat, eventually, post,
};

const STREAM: &str = ",\"stream\":true";
const ALL: [&str; 2] = ["include_usage", "continuous_usage_stats"];

fn route(lines: &str) -> String {
    format!("[[route]]\nname = \"llm\"\npolicy = \"round_robin\"\n{lines}\n")
}

async fn start(server: &StrictServer, kind: &str, lines: &str) -> Node {
    let kind = format!("kind = \"{kind}\"\nmetrics = {{ scrape = false }}");
    let url = format!("http://{}", server.address);
    Setup::new().table(route(lines)).replica_with("a", &url, &kind).start().await
}

/// Asks for a stream by each API, and checks that it comes whole and without usage.
async fn ask_twice(node: &Node) {
    let mut client = Client::http1(node.addresses()[0]).await;
    let text = r#"{"model":"tiny","prompt":"hi","max_tokens":5,"stream":true}"#;
    for request in [chat("tiny", STREAM), post("/v1/completions", text)] {
        check(&client.fetch(request).await);
    }
}

#[track_caller]
fn check(reply: &Reply) {
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(reply.text().contains("hello"), "{}", reply.text());
    assert!(reply.text().ends_with("data: [DONE]\n\n"), "{}", reply.text());
    assert!(!reply.text().contains("prompt_tokens"), "{}", reply.text());
    // Clients read the first choice of each event.
    assert!(!reply.text().contains("\"choices\":[]"), "{}", reply.text());
}

fn retries_and_faults(node: &Node) -> f64 {
    let page = Page::of(node);
    page.sum("spillway_retries_total", &[]) + page.sum("spillway_replica_faults_total", &[])
}

#[tokio::test]
async fn each_kind_is_asked_for_what_it_reports() {
    let (nothing, at_end) = (Value::Null, json!({"include_usage": true}));
    let throughout = json!({"include_usage": true, "continuous_usage_stats": true});
    let (auto, all, none) = ("", "inject_usage = true", "inject_usage = false");
    let continues = "continue_streams = true";
    let (all_continue, none_continue) = ([all, continues].join("\n"), [none, continues].join("\n"));
    for (kinds, lines, expected) in [
        (&["vllm", "sglang", "llamacpp"][..], auto, &at_end),
        (&["generic", "tgi"], auto, &nothing),
        (&["vllm", "sglang", "llamacpp", "generic"], all, &at_end),
        (&["vllm", "generic"], none, &nothing),
        (&["vllm", "sglang"], continues, &throughout),
        (&["llamacpp"], continues, &at_end),
        (&["generic", "tgi"], continues, &nothing),
        (&["llamacpp", "generic"], &all_continue, &at_end),
        (&["vllm"], &none_continue, &throughout),
        (&["generic"], &none_continue, &nothing),
    ] {
        for kind in kinds {
            let server = StrictServer::start(&ALL).await;
            let node = start(&server, kind, lines).await;
            ask_twice(&node).await;
            let expected = [expected.clone(), expected.clone()];
            assert_eq!(server.options(), expected, "{kind}: {lines}");
            node.stop().await;
        }
    }
}

#[tokio::test]
async fn usage_that_was_asked_for_is_counted() {
    let server = StrictServer::start(&ALL).await;
    let node = start(&server, "vllm", "").await;
    ask_twice(&node).await;
    let tokens = |kind| Page::of(&node).sum("spillway_tokens_total", &[("kind", kind)]);
    eventually("the tokens are counted", || tokens("prompt") == 14.0).await;
    assert_eq!(tokens("completion"), 2.0);
}

#[tokio::test]
async fn refused_options_are_left_out_at_once_and_from_then_on() {
    let server = StrictServer::start(&["include_usage"]).await;
    let node = start(&server, "vllm", "continue_streams = true").await;
    let (nothing, at_end) = (Value::Null, json!({"include_usage": true}));
    let throughout = json!({"include_usage": true, "continuous_usage_stats": true});
    ask_twice(&node).await;
    assert_eq!(server.options(), [throughout, at_end.clone(), at_end.clone()]);
    // The server is replaced by one that knows fewer options.
    server.know(&[]);
    for client in &mut both(&node).await {
        check(&client.fetch(chat("tiny", STREAM)).await);
    }
    assert_eq!(server.options()[3..], [at_end, nothing.clone(), nothing]);
    eventually("all are counted", || {
        Page::of(&node).sum("spillway_requests_total", &[("status", "200")]) == 4.0
    })
    .await;
    assert_eq!(retries_and_faults(&node), 0.0);
    assert_eq!(Page::of(&node).sum("spillway_requests_total", &[]), 4.0);
}

#[tokio::test]
async fn a_server_that_knows_no_stream_options_gets_the_client_s_body() {
    let server = StrictServer::start(&[]).await;
    for lines in ["inject_usage = true", "inject_usage = true\ncontinue_streams = true"] {
        for kind in ["vllm", "generic"] {
            let node = start(&server, kind, lines).await;
            let seen = server.bodies().len();
            ask_twice(&node).await;
            let bodies = &server.bodies()[seen..];
            // Where the refusal names the whole object, no part of it is tried.
            assert_eq!(bodies.len(), 3, "{kind}: {lines}: {bodies:?}");
            assert!(bodies[1..].iter().all(|body| body.get("stream_options").is_none()));
            assert!(bodies[1]["messages"].is_array());
            node.stop().await;
        }
    }
}

#[tokio::test]
async fn a_refusal_for_another_reason_passes_whole_and_is_not_remembered() {
    let server = StrictServer::start(&ALL).await;
    let node = start(&server, "vllm", "").await;
    let at_end = json!({"include_usage": true});
    let long = "x".repeat(200 << 10);
    // The second repeats the request, as some servers do, and is more than is read.
    for (text, expected) in [
        ("temperature is negative", vec![at_end.clone()]),
        (&format!("bad request {{stream_options}} {long}"), vec![at_end.clone(), Value::Null]),
        (&format!("bad request {long}"), vec![at_end]),
    ] {
        server.refuse_all(text);
        for client in &mut both(&node).await {
            let seen = server.bodies().len();
            let reply = client.fetch(chat("tiny", STREAM)).await;
            assert_eq!(reply.status, 400);
            let message = format!("Extra inputs are not permitted: {text}");
            let body: Value = serde_json::from_str(reply.text()).expect("whole JSON");
            assert_eq!(body["error"]["message"], message.as_str());
            assert_eq!(server.options()[seen..], expected);
        }
    }
}

#[tokio::test]
async fn options_of_the_client_s_own_are_its_own_matter() {
    let server = StrictServer::start(&[]).await;
    let node = start(&server, "vllm", "").await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let own = ",\"stream\":true,\"stream_options\":{\"include_usage\":true}";
    let reply = client.fetch(chat("tiny", own)).await;
    assert_eq!(reply.status, 400);
    assert_eq!(server.bodies().len(), 1);
    // The server is not thought to know less because of that.
    server.know(&ALL);
    check(&client.fetch(chat("tiny", STREAM)).await);
    assert_eq!(server.options()[1], json!({"include_usage": true}));
}

#[tokio::test]
async fn a_hedged_attempt_that_is_refused_is_repeated_too() {
    let servers = [StrictServer::start(&ALL).await, StrictServer::start(&ALL).await];
    let setup = Setup::new().table(route("hedge = { after_ms = 5, budget_percent = 100 }"));
    let kind = "kind = \"vllm\"\nmetrics = { scrape = false }";
    let named = servers.iter().zip(["a", "b"]);
    let setup = named.fold(setup, |setup, (server, name)| {
        setup.replica_with(name, &format!("http://{}", server.address), kind)
    });
    let node = setup.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    // These earn the budget.
    for _ in 0..10 {
        check(&client.fetch(chat("tiny", STREAM)).await);
    }
    servers[0].wait(Duration::from_millis(300));
    servers.iter().for_each(|server| server.know(&[]));
    for _ in 0..2 {
        check(&client.fetch(chat("tiny", STREAM)).await);
    }
    let hedges = || Page::of(&node).sum("spillway_hedges_total", &[("result", "won")]);
    eventually("the second of two won", || hedges() >= 1.0).await;
    assert_eq!(servers[1].options().last(), Some(&Value::Null));
    assert_eq!(retries_and_faults(&node), 0.0);
}

#[tokio::test]
async fn a_reply_that_must_be_stripped_is_not_asked_for_compressed() {
    let ok = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let replica = Scripted::start().await.serve(ok);
    let url = format!("http://{}", replica.address);
    let kind = "kind = \"vllm\"\nmetrics = { scrape = false }";
    let node = Setup::new().replica_with("a", &url, kind).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for fields in [STREAM, ""] {
        let mut request = chat("tiny", fields);
        let gzip = http::HeaderValue::from_static("gzip");
        request.headers_mut().insert("accept-encoding", gzip);
        client.fetch(request).await;
        assert_eq!(replica.requests.last().header("accept-encoding"), None, "{fields}");
    }
}
