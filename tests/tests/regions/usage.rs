//! The node of the client decides about a stream's usage, and the node of the replica asks for it.

use serde_json::{Value, json};
use spillway_tests::{Client, Cluster, Page, Setup, StrictServer, chat, eventually, knows};

const ALL: [&str; 2] = ["include_usage", "continuous_usage_stats"];
const STREAM: &str = ",\"stream\":true";

fn route(lines: &str) -> String {
    format!("[[route]]\nname = \"llm\"\n{lines}\n")
}

/// Sends a stream from a region with this route to a replica of another one. Returns the options that
/// the replica got, and the prompt tokens that the client's node counted.
async fn forward(sender: &str, receiver: &str, kind: &str) -> (Value, f64) {
    let server = StrictServer::start(&ALL).await;
    let cluster = Cluster::new(&["edge", "core"]);
    let replica = format!("kind = \"{kind}\"\nmetrics = {{ scrape = false }}");
    let setup = Setup::new().table(route(receiver));
    let setup = setup.replica_with("a", &format!("http://{}", server.address), &replica);
    let core = cluster.start(1, setup).await;
    let edge = cluster.start(0, Setup::new().table(route(sender))).await;
    knows(&edge, "core").await;
    let reply = Client::once(edge.addresses()[0], chat("tiny", STREAM)).await;
    assert_eq!((reply.status, reply.header("x-spillway-region")), (200, Some("core")));
    let text = reply.text();
    assert!(text.contains("hello") && text.ends_with("data: [DONE]\n\n"), "{text}");
    assert!(!text.contains("prompt_tokens"), "its client did not ask: {text}");
    let requests = || Page::of(&edge).sum("spillway_requests_total", &[]);
    eventually("the request is counted", || requests() == 1.0).await;
    let tokens = Page::of(&edge).sum("spillway_tokens_total", &[("kind", "prompt")]);
    edge.stop().await;
    core.stop().await;
    let options = server.options();
    assert_eq!(options.len(), 1);
    (options[0].clone(), tokens)
}

#[tokio::test]
async fn another_region_s_replica_is_asked_by_its_kind_as_the_client_s_node_wants() {
    let at_end = json!({"include_usage": true});
    let throughout = json!({"include_usage": true, "continuous_usage_stats": true});
    let (none, all, continues) =
        ("inject_usage = false", "inject_usage = true", "continue_streams = true");
    for (sender, receiver, kind, expected) in [
        ("", none, "vllm", (at_end.clone(), 7.0)),
        // Without a report the prompt is estimated.
        ("", "", "generic", (Value::Null, 12.0)),
        (none, all, "vllm", (Value::Null, 12.0)),
        (all, none, "generic", (at_end.clone(), 7.0)),
        (continues, "", "vllm", (throughout.clone(), 7.0)),
        (continues, continues, "vllm", (throughout, 7.0)),
        ("", continues, "vllm", (at_end, 7.0)),
    ] {
        let case = format!("{sender:?} to {receiver:?}, {kind}");
        assert_eq!(forward(sender, receiver, kind).await, expected, "{case}");
    }
}

#[tokio::test]
async fn a_refused_option_is_left_out_by_the_node_of_the_replica() {
    let server = StrictServer::start(&[]).await;
    let cluster = Cluster::new(&["edge", "core"]);
    let replica = "kind = \"vllm\"\nmetrics = { scrape = false }";
    let setup = Setup::new().replica_with("a", &format!("http://{}", server.address), replica);
    let core = cluster.start(1, setup).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "core").await;
    let mut client = Client::http1(edge.addresses()[0]).await;
    for _ in 0..2 {
        let reply = client.fetch(chat("tiny", STREAM)).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    assert_eq!(server.options(), [json!({"include_usage": true}), Value::Null, Value::Null]);
    edge.stop().await;
    core.stop().await;
}
