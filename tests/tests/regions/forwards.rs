//! Nodes remember which prompts they forwarded to which region, replies included.

use serde_json::json;
use spillway_emulator::Emulator;
use spillway_node::Node;
use spillway_prefix::Scope;
use spillway_tests::{Client, Cluster, Setup, emulator, eventually, knows, post};
use spillway_types::{Deadline, Inquiry, Residency};

const HI: &str = "This is the beginning of a long conversation. ";

/// Returns how many leading blocks of a prompt `node` has forwarded to `region`, and how many the
/// prompt has.
fn forwarded(node: &Node, region: &str, prompt: &str) -> (u32, usize) {
    let scope = Scope { model: "tiny", ..Scope::default() };
    let prefix = node.gateway().routing.prompt_hasher().hash(&scope, prompt.as_bytes());
    let blocks = prefix.as_slice().len();
    let now = std::time::Instant::now();
    let inquiry = Inquiry {
        model: Some("tiny".into()),
        prefix,
        prompt_bytes: u32::try_from(prompt.len()).expect("a short prompt"),
        output_tokens_max: None,
        output_tokens: None,
        whole_tokens: None,
        answers: 1,
        affinity: None,
        session: None,
        client: std::net::Ipv4Addr::LOCALHOST.into(),
        deadline: Deadline::after(now, std::time::Duration::from_secs(60)),
        hop: 0,
        tenant: None,
        priority: 0,
        residency: Residency::default(),
        is_isolated: false,
    };
    let found = node.gateway().routing.knowledge.look_up_forwards(&inquiry);
    (found.blocks(&region.into()), blocks)
}

#[tokio::test]
async fn a_forwarded_chat_is_known_to_be_cached_where_it_went() {
    let emulator: Emulator = emulator(1).await;
    let cluster = Cluster::new(&["edge", "west"]);
    let west = cluster.start(1, Setup::new().emulated(&emulator)).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "west").await;
    for is_stream in [false, true] {
        let asked = format!("{HI}{is_stream} ").repeat(20);
        let body = json!({"model": "tiny", "messages": [{"role": "user", "content": asked}],
            "max_tokens": 400, "min_tokens": 400, "ignore_eos": true, "stream": is_stream});
        let prompt = format!("{{\"role\":\"user\",\"content\":\"{asked}\"}},");
        assert_eq!(forwarded(&edge, "west", &prompt).0, 0);
        let request = post("/v1/chat/completions", body.to_string());
        let reply = Client::once(edge.addresses()[0], request).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let said = if is_stream {
            let text = reply.text();
            let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
            let events = data.filter_map(|data| serde_json::from_str(data).ok());
            let said = events.filter_map(|event: serde_json::Value| {
                event["choices"][0]["delta"]["content"].as_str().map(str::to_owned)
            });
            said.collect()
        } else {
            reply.json()["choices"][0]["message"]["content"].as_str().expect("text").to_owned()
        };
        let said = serde_json::Value::from(said).to_string();
        let whole = format!("{prompt}{{\"role\":\"assistant\",\"content\":{said}}},");
        let (_, blocks) = forwarded(&edge, "west", &whole);
        assert!(blocks > prompt.len() / 256 + 4, "the reply has blocks: {blocks}");
        eventually("prompt and reply are known", || {
            forwarded(&edge, "west", &whole).0 as usize == blocks
        })
        .await;
        assert_eq!(forwarded(&edge, "edge", &whole).0, 0);
        assert_eq!(forwarded(&west, "edge", &whole).0, 0, "it served it itself");
    }
    edge.stop().await;
    west.stop().await;
}
