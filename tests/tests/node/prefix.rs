//! Requests go where their prompts are cached, and their replies show the reason.

use std::time::Duration;

use http::Request;
use serde_json::{Value, json};
use spillway_emulator::Emulator;
use spillway_node::Node;
use spillway_tests::{
    Client, ClientBody, OK, Page, Reply, Scripted, Setup, emulator, eventually, post,
    slow_emulator, spawn,
};

use crate::reload::{File, reloads};
use crate::splits::with_header;

const REPLICAS: u16 = 4;

fn setup(emulator: &Emulator) -> Setup {
    Setup::new().set("node.expose_routing = true").emulated(emulator)
}

/// A system prompt of some blocks that no other number shares.
fn system(number: u32) -> Value {
    let text = format!("You are assistant {number}. ").repeat(100);
    json!({"role": "system", "content": text})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn body(messages: &[Value]) -> Value {
    json!({"model": "tiny", "messages": messages, "max_tokens": 2})
}

fn ask(messages: &[Value]) -> Request<ClientBody> {
    post("/v1/chat/completions", body(messages).to_string())
}

async fn fetch(client: &mut Client, request: Request<ClientBody>) -> Reply {
    let reply = client.fetch(request).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply
}

fn replica(reply: &Reply) -> String {
    reply.header("x-spillway-replica").expect("routing").to_owned()
}

/// Returns the number of cached tokens that the engine reports.
fn cached_tokens(reply: &Reply) -> u64 {
    let usage = &reply.json()["usage"];
    usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0)
}

fn expected_tokens(reply: &Reply) -> u64 {
    reply.header("x-spillway-cached-tokens").expect("a number").parse().expect("a number")
}

/// Waits until the node has learned of all requests so far.
async fn learned(node: &Node, prompts: f64) {
    eventually("the index knows the prompts", || {
        let page = Page::of(node);
        page.sum("spillway_prefix_index_blocks", &[]) >= prompts
    })
    .await;
}

#[tokio::test]
async fn the_next_turn_of_a_chat_goes_to_the_replica_that_has_the_one_before() {
    // Where reading takes no time, a cache is worth nothing.
    let emulator = slow_emulator(REPLICAS, 0.2).await;
    let node = setup(&emulator).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let mut places = Vec::new();
    let chats = 12;
    for number in 0..chats {
        let mut messages = vec![system(number), user("Hello")];
        let first = fetch(&mut client, ask(&messages)).await;
        assert_eq!(expected_tokens(&first), 0, "nobody has seen it before");
        learned(&node, f64::from(8 * (number + 1))).await;
        messages.push(json!({"role": "assistant", "content": "Hello to you."}));
        messages.push(user("Go on."));
        let second = fetch(&mut client, ask(&messages)).await;
        assert_eq!(replica(&second), replica(&first), "chat {number}");
        assert!(expected_tokens(&second) > 300, "{}", expected_tokens(&second));
        assert!(cached_tokens(&second) > 300, "{}", second.text());
        places.push(replica(&first));
    }
    places.sort();
    places.dedup();
    assert!(places.len() > 1, "new chats are spread: {places:?}");
    let page = Page::of(&node);
    assert!(page.sum("spillway_prefix_lookups_total", &[("result", "matched")]) >= 12.0);
    let kind = |kind| page.sum("spillway_cache_estimate_tokens_total", &[("kind", kind)]);
    assert!(kind("expected") > 0.0 && kind("reported") > 0.0);
}

#[tokio::test]
async fn replies_tell_how_their_requests_were_routed() {
    let emulator = slow_emulator(REPLICAS, 0.2).await;
    let node = setup(&emulator).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let reply = fetch(&mut client, ask(&[system(1), user("Hello")])).await;
    assert_eq!(reply.header("x-spillway-policy"), Some("predicted_latency"));
    assert_eq!(reply.header("x-spillway-hops"), Some("0"));
    assert!(reply.header("x-spillway-region").is_some());
    let reason = reply.header("x-spillway-reason").expect("a reason");
    assert!(!reason.is_empty());
    let predicted_ms: u64 =
        reply.header("x-spillway-predicted-ms").expect("one").parse().expect("a number");
    assert!(predicted_ms < 60_000, "{predicted_ms}");
    let quiet = Setup::new().emulated(&emulator).start().await;
    let reply = Client::once(quiet.addresses()[0], ask(&[user("Hello")])).await;
    let told: Vec<_> =
        reply.headers.keys().filter(|name| name.as_str().starts_with("x-spillway")).collect();
    assert!(told.is_empty(), "{told:?}");
}

#[tokio::test]
async fn a_prompt_is_known_while_it_is_read_and_not_if_it_was_not_read() {
    for ending in ["", "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}"] {
        let replica = Scripted::start().await;
        let node = Setup::new().replica("a", replica.address).start().await;
        let reply = spawn(Client::once(node.addresses()[0], ask(&[system(1), user("Hello")])));
        let (mut wire, _) = replica.request().await;
        // Others with the same prompt would follow it by now.
        learned(&node, 8.0).await;
        wire.send(ending).await;
        drop(wire);
        let status = reply.await.expect("a reply").status;
        assert!([502, 503].contains(&status), "{status}");
        eventually("it is not there", || {
            Page::of(&node).sum("spillway_prefix_index_blocks", &[]) == 0.0
        })
        .await;
        assert_eq!(forgotten(&node), 8.0, "it was there until then");
    }
}

fn forgotten(node: &Node) -> f64 {
    Page::of(node).sum("spillway_prefix_forgotten_total", &[("why", "reply")])
}

#[tokio::test]
async fn a_replica_that_cannot_be_reached_is_taken_to_have_nothing() {
    let good = Scripted::start().await.serve(OK);
    let node = Setup::new()
        .replica("dead", Scripted::refusing())
        .replica_with("good", &format!("http://{}", good.address), "models = [\"huge\"]")
        .start()
        .await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let mut messages = vec![system(1), user("Hello")];
    assert_eq!(client.fetch(ask(&messages)).await.status, 502);
    messages.push(user("Hello?"));
    let mut other = body(&messages);
    other["model"] = json!("huge");
    fetch(&mut client, post("/v1/chat/completions", other.to_string())).await;
    // The index learns in order, so no part of the first prompt is known, not even briefly.
    learned(&node, 8.0).await;
    let blocks = Page::of(&node).sum("spillway_prefix_index_blocks", &[]);
    assert!(blocks < 16.0, "both are known: {blocks}");
    assert_eq!(forgotten(&node), 0.0);
}

#[tokio::test]
async fn the_same_conversation_in_other_json_is_the_same_prompt() {
    let emulator = slow_emulator(REPLICAS, 0.2).await;
    let node = setup(&emulator).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let messages = [system(1), user("Hello")];
    let first = fetch(&mut client, ask(&messages)).await;
    learned(&node, 8.0).await;
    let pretty = serde_json::to_string_pretty(&body(&messages)).expect("JSON");
    let turned = format!(
        r#"{{"max_tokens":2,"messages":[{{"content":{},"role":"system"}}, {{"content":"Hello" ,"role":"user"}}],"model":"tiny"}}"#,
        messages[0]["content"]
    );
    for text in [pretty, turned] {
        let reply = fetch(&mut client, post("/v1/chat/completions", text)).await;
        assert_eq!(replica(&reply), replica(&first));
        assert!(expected_tokens(&reply) > 300, "{}", expected_tokens(&reply));
    }
    let mut salted = body(&messages);
    salted["cache_salt"] = json!("mine");
    let salted = fetch(&mut client, post("/v1/chat/completions", salted.to_string())).await;
    assert_eq!(expected_tokens(&salted), 0, "a salt of its own shares nothing");
}

#[tokio::test]
async fn prompts_of_isolated_tenants_look_alike_to_nobody() {
    let emulator = slow_emulator(REPLICAS, 0.2).await;
    let tenants = "[[tenant]]\nname = \"a\"\nisolate_prompts = true\n\
        [[tenant]]\nname = \"b\"\nisolate_prompts = true\n";
    let node = setup(&emulator)
        .listener("auth = \"headers\"\ntrusted_proxies = [\"127.0.0.1/32\"]")
        .table(tenants)
        .start()
        .await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let as_tenant = |tenant: &'static str| {
        let mut request = ask(&[system(1), user("Hello")]);
        request.headers_mut().insert("x-spillway-tenant", http::HeaderValue::from_static(tenant));
        request
    };
    fetch(&mut client, as_tenant("a")).await;
    learned(&node, 8.0).await;
    assert!(expected_tokens(&fetch(&mut client, as_tenant("a")).await) > 300);
    assert_eq!(expected_tokens(&fetch(&mut client, as_tenant("b")).await), 0);
}

/// Returns the largest number of cached tokens in an explanation.
fn most_cached(told: &Value) -> u64 {
    match told {
        Value::Object(fields) => {
            let own = fields.get("cached_tokens").and_then(Value::as_u64).unwrap_or(0);
            fields.values().map(most_cached).max().unwrap_or(0).max(own)
        }
        Value::Array(items) => items.iter().map(most_cached).max().unwrap_or(0),
        _ => 0,
    }
}

#[tokio::test]
async fn a_reader_can_not_test_what_an_isolated_tenant_has_asked() {
    const READER: &str = "reader-0123456789abcdef0123456789";
    const OPERATOR: &str = "operator-0123456789abcdef0123456789";
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, format!("eve read {READER}\nbob operate {OPERATOR}\n"))
        .expect("writes");
    let emulator = slow_emulator(REPLICAS, 0.2).await;
    let tenants = "[[tenant]]\nname = \"a\"\nisolate_prompts = true\n\
        [[tenant]]\nname = \"open\"\n";
    let node = setup(&emulator)
        .set(format!("admin.token_file = {tokens:?}"))
        .listener("auth = \"headers\"\ntrusted_proxies = [\"127.0.0.1/32\"]")
        .table(tenants)
        .start()
        .await;
    let messages = [system(1), user("Hello")];
    for tenant in ["a", "open"] {
        let request = with_header(ask(&messages), "x-spillway-tenant", tenant);
        assert_eq!(Client::once(node.addresses()[0], request).await.status, 200);
    }
    learned(&node, 16.0).await;
    for (tenant, token, sees) in
        [("a", READER, false), ("a", OPERATOR, true), ("open", READER, true)]
    {
        let order = json!({ "body": body(&messages), "tenant": tenant }).to_string();
        let order =
            with_header(post("/v1/explain", order), "authorization", &format!("Bearer {token}"));
        let told = Client::once(node.admin_address().expect("one"), order).await;
        assert_eq!(told.status, 200, "{}", told.text());
        let cached = most_cached(&told.json());
        assert_eq!(cached > 300, sees, "{tenant}: {cached} of {}", told.text());
    }
}

#[tokio::test]
async fn a_policy_is_changed_without_a_restart() {
    let emulator = emulator(REPLICAS).await;
    let route = |policy: &str| {
        setup(&emulator).table(format!("[[route]]\nname = \"llm\"\npolicy = \"{policy}\"\n"))
    };
    let file = File::new(&route("round_robin"));
    let node = file.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let mut done = 0.0;
    for policy in ["prefix_aware", "prequal", "predicted_latency", "round_robin"] {
        file.replace(&route(policy).text());
        done += 1.0;
        eventually("the config is applied", || reloads(&node, "applied") == done).await;
        let reply = fetch(&mut client, ask(&[user("Hello")])).await;
        assert_eq!(reply.header("x-spillway-policy"), Some(policy));
        let predicts = reply.header("x-spillway-predicted-ms").is_some();
        assert_eq!(predicts, policy == "predicted_latency", "{policy}");
    }
}

/// Returns the admin API's forecast for a request with this body.
async fn explained(node: &Node, body: &Value) -> Reply {
    let order = json!({ "body": body }).to_string();
    Client::once(node.admin_address().expect("one"), post("/v1/explain", order)).await
}

/// The explanation once the node has learned from all replies before: two in a row agree.
async fn settled(node: &Node, body: &Value) -> Value {
    let mut last = Value::Null;
    loop {
        let told = explained(node, body).await;
        assert_eq!(told.status, 200, "{}", told.text());
        let told = told.json();
        if told["predicted"] == last {
            return told;
        }
        last = told["predicted"].clone();
        // wait: the node learns at this interval
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
}

#[tokio::test]
async fn what_is_explained_is_what_is_done() {
    let emulator = slow_emulator(REPLICAS, 0.2).await;
    for policy in ["predicted_latency", "prefix_aware", "round_robin"] {
        let route = format!("[[route]]\nname = \"llm\"\npolicy = \"{policy}\"\n");
        let node = setup(&emulator).table(route).start().await;
        let mut client = Client::http1(node.addresses()[0]).await;
        let is_idle = || {
            node.gateway().routing.view().replicas().iter().all(|replica| replica.in_flight() == 0)
        };
        for number in 0..6_u32 {
            // Every other one is the next turn of the one before.
            let mut messages = vec![system(number / 2), user("Hello")];
            if number % 2 == 1 {
                messages.push(user("Go on."));
                learned(&node, f64::from(8 * (number / 2 + 1))).await;
            }
            eventually("nothing is under way", is_idle).await;
            let told = settled(&node, &body(&messages)).await;
            let reply = fetch(&mut client, ask(&messages)).await;
            assert_eq!(told["chosen"], replica(&reply), "{policy} {told}");
            assert_eq!(told["decision"], "replica");
            assert_eq!(told["policy"], policy);
            assert_eq!(
                Some(told["reason"].as_str().expect("a reason")),
                reply.header("x-spillway-reason")
            );
            let candidates = told["candidates"].as_array().expect("candidates");
            assert_eq!(candidates.len(), usize::from(REPLICAS));
            assert_eq!(candidates[0]["chosen"], true);
            assert_eq!(candidates[0]["name"], replica(&reply));
            assert!(candidates[1..].iter().all(|other| other["why"].is_string()), "{told}");
            assert!(candidates[0]["terms"]["prefill_ms"].is_number());
            if policy == "predicted_latency" {
                let cached = &told["predicted"]["cached_tokens"];
                assert_eq!(cached.as_u64(), Some(expected_tokens(&reply)));
                assert_eq!(cached.as_u64().expect("a number") > 300, number % 2 == 1);
            }
        }
        let unknown = explained(&node, &json!({"model": "nobody", "messages": []})).await;
        assert!((400..500).contains(&unknown.status), "{}", unknown.text());
    }
}
