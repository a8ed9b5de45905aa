//! The index follows the engine's reports of stored and evicted blocks.

use std::num::NonZeroU32;

use serde_json::{Value, json};
use spillway_emulator::{Emulator, EmulatorConfig, Fault};
use spillway_node::Node;
use spillway_tests::{Client, OK, Page, Reply, Scripted, Setup, eventually, post};

/// Chats that take turns, of which the engine has room for less than half.
const CHATS: usize = 8;
const TURNS: usize = 40;

/// Starts an engine with room for some 4,000 tokens.
async fn small_engine() -> Emulator {
    let mut config =
        EmulatorConfig { time_scale: 0.001, kv_events_port: Some(0), ..EmulatorConfig::default() };
    config.engine.kv_blocks = NonZeroU32::new(256).expect("some");
    config.engine.context_tokens_max = 2_048;
    Emulator::start(config).await.expect("an emulator")
}

async fn node(emulator: &Emulator, has_events: bool) -> Node {
    let port = emulator.replica(0).kv_events_address().expect("it publishes").port();
    let lines = if has_events { format!("kv_events_port = {port}") } else { String::new() };
    let url = emulator.replica(0).url();
    let node = Setup::new().set("node.expose_routing = true").replica_with("r0", &url, &lines);
    node.start().await
}

fn body(messages: &[Value]) -> Value {
    json!({"model": "tiny", "messages": messages, "max_tokens": 40, "min_tokens": 40,
        "ignore_eos": true})
}

/// Returns a system prompt of about 900 tokens that no other chat shares.
fn system(chat: usize) -> Value {
    let text = format!("You are assistant number {chat} of this test. ").repeat(85);
    json!({"role": "system", "content": text})
}

fn user(turn: usize) -> Value {
    json!({"role": "user", "content": format!("Say something of {turn}.")})
}

async fn ask(client: &mut Client, messages: &[Value]) -> Reply {
    let reply = client.fetch(post("/v1/chat/completions", body(messages).to_string())).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply
}

fn cached_tokens(reply: &Reply) -> u64 {
    reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0)
}

fn expected_tokens(reply: &Reply) -> u64 {
    reply.header("x-spillway-cached-tokens").expect("a number").parse().expect("a number")
}

fn known_blocks(node: &Node) -> f64 {
    Page::of(node).sum("spillway_kv_events_blocks", &[])
}

fn live(node: &Node) -> f64 {
    Page::of(node).sum("spillway_kv_events_replicas", &[("state", "live")])
}

/// Waits until the node has read all events of an engine that it has followed from the start.
async fn in_step(node: &Node, emulator: &Emulator) {
    eventually("the node has read the engine's events", || {
        let read = Page::of(node).sum("spillway_kv_events_total", &[]);
        read == emulator.replica(0).kv_events_counts().1 as f64
    })
    .await;
}

/// Has chats take turns in a random order. Returns the tokens by which the predictions of cached
/// tokens were wrong, and the tokens that were cached.
async fn wrong_and_cached(has_events: bool) -> (u64, u64) {
    let emulator = small_engine().await;
    let node = node(&emulator, has_events).await;
    if has_events {
        prove(&node, &emulator).await;
    }
    let mut client = Client::http1(node.addresses()[0]).await;
    let (mut wrong, mut cached) = (0, 0);
    for turn in 0..TURNS {
        if turn % 2 == 1 {
            // Another client, unknown to the node.
            ask(&mut Client::http1(emulator.addresses()[0]).await, &[system(1_000 + turn)]).await;
            if has_events {
                in_step(&node, &emulator).await;
            }
        }
        // Each chat comes back after one, two or three others.
        let chat = (turn * turn / 3 + turn / 5) % CHATS;
        let reply = ask(&mut client, &[system(chat), user(turn)]).await;
        if has_events {
            in_step(&node, &emulator).await;
        }
        wrong += expected_tokens(&reply).abs_diff(cached_tokens(&reply));
        cached += cached_tokens(&reply);
    }
    (wrong, cached)
}

/// Waits for the subscription, and sends requests until events are known to report them.
async fn prove(node: &Node, emulator: &Emulator) {
    eventually("a subscription", || emulator.replica(0).kv_events_counts().0 > 0).await;
    ask(&mut Client::http1(node.addresses()[0]).await, &[system(100)]).await;
    eventually("the events tell of requests", || live(node) == 1.0).await;
}

#[tokio::test]
async fn what_is_cached_is_predicted_where_the_engine_says_what_it_evicts() {
    let (wrong, cached) = wrong_and_cached(true).await;
    assert!(cached > 10_000, "half of the turns find their chat: {cached}");
    let allowed = TURNS as u64 * 64;
    assert!(wrong <= allowed, "more than a block for each turn: {wrong} of {cached}");
    let (assumed, _) = wrong_and_cached(false).await;
    assert!(assumed > 2 * wrong, "events make no difference: {wrong}, {assumed}");
}

#[tokio::test]
async fn an_engine_that_starts_anew_is_assumed_until_its_events_are_back() {
    let emulator = small_engine().await;
    let node = node(&emulator, true).await;
    prove(&node, &emulator).await;
    emulator.replica(0).set_fault(Fault::Crash).await.expect("crashes");
    eventually("its events are lost", || live(&node) == 0.0 && known_blocks(&node) == 0.0).await;
    assert!(Page::of(&node).sum("spillway_kv_events_missed_total", &[]) >= 1.0);
    emulator.replica(0).set_fault(Fault::None).await.expect("heals");
    prove(&node, &emulator).await;
}

#[tokio::test]
async fn only_a_replica_with_events_gets_an_id_in_place_of_the_clients() {
    let (with, without) = (Scripted::start().await, Scripted::start().await);
    let port = Scripted::refusing().port();
    let addresses = [with.address, without.address];
    let (with, without) = (with.serve(OK), without.serve(OK));
    for (lines, address, serving) in [
        (format!("kv_events_port = {port}"), addresses[0], &with),
        (String::new(), addresses[1], &without),
    ] {
        let url = format!("http://{address}");
        let route = "[[route]]\nname = \"llm\"\nallow_engine_fields = [\"session_id\"]\n";
        let node = Setup::new().replica_with("a", &url, &lines).table(route).start().await;
        let mut request = post("/v1/chat/completions", body(&[system(1)]).to_string());
        request.headers_mut().insert("x-session-id", "mine".parse().expect("a value"));
        assert_eq!(Client::once(node.addresses()[0], request).await.status, 200);
        let got = serving.requests.last();
        let id = got.header("x-session-id").expect("an id");
        assert_eq!(id == "mine", lines.is_empty(), "{id}");
        assert!(lines.is_empty() || id.starts_with("sw-") && id.len() == 19, "{id}");
    }
}
