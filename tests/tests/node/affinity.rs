//! Policies that hash: requests with the same key stay together.

use std::collections::{BTreeMap, BTreeSet};

use http::{HeaderValue, Request};
use spillway_emulator::Emulator;
use spillway_node::Node;
use spillway_tests::{Client, ClientBody, Setup, chat, emulator, eventually, post};

use crate::reload::{File, reloads};

const REPLICAS: usize = 4;
const KEYS: u32 = 40;

/// Four replicas, each in an emulator of its own so that one of them can be stopped.
async fn emulators() -> Vec<Emulator> {
    let mut emulators = Vec::new();
    for _ in 0..REPLICAS {
        emulators.push(emulator(1).await);
    }
    emulators
}

/// A node over these replicas, of which the first is called `r0`.
fn setup(emulators: &[Emulator], policy: &str, hash_by: &str) -> Setup {
    let setup = base(policy, hash_by);
    emulators.iter().enumerate().fold(setup, add)
}

/// The node without its replicas.
fn base(policy: &str, hash_by: &str) -> Setup {
    let route =
        format!("[[route]]\nname = \"llm\"\npolicy = \"{policy}\"\nhash_by = \"{hash_by}\"\n");
    // Each key of a dead replica costs a retry, all within a moment.
    Setup::new()
        .set("node.expose_routing = true")
        .with(|config| config.gateway.retry.budget_min_per_second = 1000)
        .table(route)
}

fn add(setup: Setup, (number, emulator): (usize, &Emulator)) -> Setup {
    setup.replica(&format!("r{number}"), emulator.addresses()[0])
}

/// Asks once for each key; returns the replica that served it.
async fn places(node: &Node, ask: fn(u32) -> Request<ClientBody>) -> BTreeMap<u32, String> {
    let mut client = Client::http1(node.addresses()[0]).await;
    let mut places = BTreeMap::new();
    for key in 0..KEYS {
        // A request that is just ending would count against its replica's bound.
        eventually("the last request has ended", || is_idle(node)).await;
        let reply = client.fetch(ask(key)).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let place = reply.header("x-spillway-replica").expect("routing");
        places.insert(key, place.to_owned());
    }
    places
}

fn is_idle(node: &Node) -> bool {
    node.gateway().routing.view().replicas().iter().all(|replica| replica.in_flight() == 0)
}

fn by_header(key: u32) -> Request<ClientBody> {
    let mut request = chat("tiny", ",\"max_tokens\":2");
    let value = HeaderValue::try_from(format!("session-{key}")).expect("a value");
    request.headers_mut().insert("x-session", value);
    request
}

fn by_cookie(key: u32) -> Request<ClientBody> {
    let mut request = chat("tiny", ",\"max_tokens\":2");
    let value = HeaderValue::try_from(format!("a=b; session=s{key}")).expect("a value");
    request.headers_mut().insert("cookie", value);
    request
}

fn by_user(key: u32) -> Request<ClientBody> {
    chat("tiny", &format!(",\"max_tokens\":2,\"user\":\"user-{key}\""))
}

/// Makes a request whose prompt has an equal first KiB for every fourth key, and different text
/// after it.
fn by_prompt(key: u32) -> Request<ClientBody> {
    let system = format!("You are assistant {}. ", key % 4).repeat(60);
    let fields = format!(r#"{{"model":"tiny","prompt":"{system}{key}","max_tokens":2}}"#);
    post("/v1/completions", fields)
}

#[tokio::test]
async fn requests_with_the_same_key_stay_together() {
    let emulators = emulators().await;
    for (hash_by, ask) in [
        ("header:X-Session", by_header as fn(u32) -> Request<ClientBody>),
        ("cookie:session", by_cookie),
        ("user", by_user),
        ("conversation", by_user),
    ] {
        for policy in ["consistent_hash", "bounded_consistent_hash"] {
            let node = setup(&emulators, policy, hash_by).start().await;
            let first = places(&node, ask).await;
            assert_eq!(places(&node, ask).await, first, "{policy} by {hash_by}");
            // All of 40 keys miss one of four replicas in 1 of 25,000 runs, two in hardly any.
            let used: BTreeSet<_> = first.values().collect();
            assert!(used.len() >= REPLICAS - 1, "{policy} by {hash_by}: {used:?}");
        }
    }
}

#[tokio::test]
async fn prompts_that_begin_alike_stay_together() {
    let emulators = emulators().await;
    let node = setup(&emulators, "consistent_hash", "prompt_prefix").start().await;
    let places = places(&node, by_prompt).await;
    for (key, place) in &places {
        assert_eq!(place, &places[&(key % 4)], "prompt {key}");
    }
}

#[tokio::test]
async fn requests_without_the_key_are_served_all_the_same() {
    let emulators = emulators().await;
    let node = setup(&emulators, "bounded_consistent_hash", "header:x-session").start().await;
    let used: BTreeSet<_> = places(&node, by_user).await.into_values().collect();
    assert!(used.len() > 1, "nothing keeps them together: {used:?}");
}

#[tokio::test]
async fn one_address_is_one_client() {
    let emulators = emulators().await;
    let node = setup(&emulators, "consistent_hash", "client_ip").start().await;
    let used: BTreeSet<_> = places(&node, by_user).await.into_values().collect();
    assert_eq!(used.len(), 1, "{used:?}");
}

#[tokio::test]
async fn only_the_keys_of_a_dead_replica_move() {
    let mut emulators = emulators().await;
    let node = setup(&emulators, "consistent_hash", "user").start().await;
    let before = places(&node, by_user).await;
    let dead = before[&0].clone();
    let index: usize = dead[1..].parse().expect("a number");
    emulators.remove(index).shutdown().await;
    let after = places(&node, by_user).await;
    for (key, place) in &before {
        assert_ne!(after[key], dead);
        assert!(*place == dead || after[key] == *place, "key {key} moved from a live replica");
    }
    assert_eq!(places(&node, by_user).await, after, "the moved keys have one new place each");
}

#[tokio::test]
async fn a_reload_in_another_order_moves_nothing_and_a_newcomer_takes_keys_only_for_itself() {
    let emulators = emulators().await;
    let base = || base("consistent_hash", "user");
    let file = File::new(&emulators[..3].iter().enumerate().fold(base(), add));
    let node = file.start().await;
    let before = places(&node, by_user).await;

    let reversed = emulators[..3].iter().enumerate().rev().fold(base(), add);
    file.replace(&reversed.text());
    eventually("it is applied", || reloads(&node, "applied") >= 1.0).await;
    assert_eq!(places(&node, by_user).await, before);

    file.replace(&add(reversed, (3, &emulators[3])).text());
    eventually("it is applied", || reloads(&node, "applied") >= 2.0).await;
    let after = places(&node, by_user).await;
    for (key, place) in &after {
        assert!(place == "r3" || *place == before[key], "key {key} moved to an old replica");
    }
    // All of 40 keys stay where they are in 1 of 100,000 runs.
    assert!(after.values().any(|place| place == "r3"), "the newcomer serves nothing");
}
