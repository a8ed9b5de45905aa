//! Replies that are not streamed: what the node learns from them, and what it decides by that.

use std::time::Instant;

use http::Method;
use spillway_emulator::{Emulator, Fault};
use spillway_node::Node;
use spillway_tests::{
    Client, Page, Reply, Setup, chat, eventually, full, message, slow_emulator, spawn, within,
};
use spillway_types::{ReplicaSlot, Speed};

use crate::health::stands_at_last;
use crate::shedding::with;

type Request = http::Request<spillway_tests::ClientBody>;

async fn send(node: &Node, request: Request) -> Reply {
    Client::once(node.addresses()[0], request).await
}

fn speed(node: &Node, replica: u32) -> Speed {
    node.gateway().routing.view().replica_loads().speed(ReplicaSlot(replica))
}

fn received(emulator: &Emulator) -> Vec<u64> {
    emulator.replicas().iter().map(|replica| replica.stats().received).collect()
}

/// Makes a chat request of its own text, about this many bytes long, whose reply has so many tokens.
fn turn(number: usize, bytes: usize, tokens: u32, more: &str) -> Request {
    let text = format!("is the river {number} wide? ").repeat(bytes / 20 + 1);
    ask(&text, tokens, more)
}

/// Makes a chat request with this text, in JSON's form.
fn ask(text: &str, tokens: u32, more: &str) -> Request {
    let body = format!(
        "{{\"model\":\"tiny\",\"max_tokens\":{tokens},\"min_tokens\":{tokens},\"ignore_eos\":true,\
         \"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}]{more}}}"
    );
    message(Method::POST, "/v1/chat/completions", "application/json", full(body))
}

/// A node that has served requests of many lengths, none of them streamed.
async fn taught(setup: Setup, requests: usize) -> Node {
    let node = setup.set("node.expose_routing = true").start().await;
    for number in 0..requests {
        let request = turn(number, 200 + number * 997 % 6_000, 2 + number as u32 * 7 % 40, "");
        assert_eq!(send(&node, request).await.status, 200);
    }
    eventually("it has learned a speed", || speed(&node, 0).trust > 0.5).await;
    node
}

#[tokio::test]
async fn the_tokens_of_a_prompt_and_of_the_cache_are_learned_from_replies_in_one_piece() {
    let emulator = slow_emulator(1, 0.02).await;
    let node = Setup::new().set("node.expose_routing = true").emulated(&emulator).start().await;
    // A token of the emulator is four bytes of text, which are twelve of JSON here.
    let foreign = |number: usize| ask(&(format!("{number}: ") + &"\\u00e9".repeat(3_000)), 2, "");
    for number in 0..8 {
        assert_eq!(send(&node, foreign(number)).await.status, 200);
    }
    eventually("it is known", || speed(&node, 0).bytes_per_token > 11.0).await;
    let first = send(&node, foreign(900)).await;
    let again = send(&node, foreign(900)).await;
    let cached = |reply: &Reply| -> (f64, f64) {
        let expected = reply.header("x-spillway-cached-tokens").expect("routing");
        let usage = &reply.json()["usage"];
        let told = usage["prompt_tokens_details"]["cached_tokens"].as_f64().unwrap_or_default();
        (expected.parse().expect("a number"), told)
    };
    assert_eq!(cached(&first).0, 0.0, "it is new");
    let (expected, told) = cached(&again);
    assert!(told > 1_000.0, "{told}");
    // A block of 256 bytes has 21 tokens, and the engine's own blocks are rounded, too.
    assert!((expected - told).abs() <= 100.0, "{expected} expected, {told} cached");
    node.stop().await;
}

#[tokio::test]
async fn a_replica_ten_times_slower_is_left_alone_by_clients_that_do_not_stream() {
    let emulator = slow_emulator(4, 0.05).await;
    emulator.replica(0).set_fault(Fault::Slow { factor: 10.0 }).await.expect("a fault");
    // Only the policy is to find it out.
    let setup = Setup::new().set("health.slow_ratio = 0").emulated(&emulator);
    let node = setup.start().await;
    let mut number = 0;
    let mut round = async |requests: usize| {
        for _ in 0..requests / 4 {
            let four: Vec<_> = (0..4)
                .map(|_| {
                    number += 1;
                    let request = turn(number, 200 + number * 331 % 2_000, 20, "");
                    spawn(Client::once(node.addresses()[0], request))
                })
                .collect();
            for reply in four {
                assert_eq!(reply.await.expect("a reply").status, 200);
            }
        }
    };
    round(40).await;
    let before = received(&emulator);
    round(200).await;
    let slow = received(&emulator)[0] - before[0];
    assert!(slow <= 4, "it got {slow} of 200");
    node.stop().await;
}

#[tokio::test]
async fn an_objective_holds_for_clients_that_do_not_stream() {
    let emulator = slow_emulator(1, 0.2).await;
    let route = "[[route]]\nname = \"llm\"\nslo_ms = 400";
    let node = taught(Setup::new().table(route).emulated(&emulator), 8).await;
    let before = received(&emulator)[0];
    let reply = send(&node, turn(500, 95_000, 1, "")).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!(reply.header("x-spillway-shed-reason"), Some("slo"));
    assert_eq!(received(&emulator)[0], before);
    // The objective is for the first token, so a long reply is no reason to refuse.
    assert_eq!(send(&node, turn(501, 100, 60, "")).await.status, 200);
    node.stop().await;
}

#[tokio::test]
async fn a_deadline_covers_all_of_a_reply_that_is_not_streamed() {
    let emulator = slow_emulator(1, 0.2).await;
    let node = taught(Setup::new().emulated(&emulator), 12).await;
    let within = |request, ms: &str| with(request, "x-request-timeout-ms", ms);
    let before = received(&emulator)[0];
    let needed_ms = 250.0 * speed(&node, 0).decode_ms;
    assert!(needed_ms > 800.0, "{needed_ms}");
    // Its first token would be there in time.
    let reply = send(&node, within(turn(600, 100, 300, ""), "400")).await;
    assert_eq!((reply.status, reply.code()), (504, Some("deadline_exceeded")), "{}", reply.text());
    assert_eq!(reply.header("x-spillway-shed-reason"), Some("late"));
    assert!(reply.text().contains("the reply would end after"), "{}", reply.text());
    assert_eq!(received(&emulator)[0], before, "nothing is generated in vain");
    // With time enough it is served, and so is a shorter one.
    assert_eq!(send(&node, within(turn(601, 100, 300, ""), "60000")).await.status, 200);
    assert_eq!(send(&node, within(turn(602, 100, 2, ""), "5000")).await.status, 200);
    // A stream is of use from its first token on.
    let before = received(&emulator)[0];
    let stream = turn(603, 100, 300, ",\"stream\":true");
    send(&node, within(stream, "2000")).await;
    assert_eq!(received(&emulator)[0], before + 1);
    node.stop().await;
}

#[tokio::test]
async fn a_replica_that_is_eight_times_slower_is_ejected_by_replies_in_one_piece() {
    let emulator = slow_emulator(3, 0.1).await;
    emulator.replica(1).set_fault(Fault::Slow { factor: 8.0 }).await.expect("a fault");
    let route = "[[route]]\nname = \"llm\"\npolicy = \"round_robin\"";
    let setup = Setup::new().set("health.eject_ms = 60000").table(route).emulated(&emulator);
    let node = setup.start().await;
    for number in 0..24 {
        let request = turn(number, 200 + number * 331 % 2_000, 10 + number as u32 % 20, "");
        assert_eq!(send(&node, request).await.status, 200);
    }
    stands_at_last(&node, "r1", "ejected").await;
    node.stop().await;
}

#[tokio::test]
async fn a_stream_teaches_at_its_first_token() {
    let emulator = slow_emulator(1, 0.2).await;
    let node = Setup::new().emulated(&emulator).start().await;
    let asked = Instant::now();
    let stream = turn(1, 3_000, 2_000, ",\"stream\":true");
    let stream = spawn(Client::once(node.addresses()[0], stream));
    eventually("its speed is known", || speed(&node, 0).trust > 0.0).await;
    let learned_after = asked.elapsed();
    assert!(!stream.is_finished(), "it is learned before the end, after {learned_after:?}");
    let trust = speed(&node, 0).trust;
    assert_eq!(emulator.replica(0).stats().finished, 0);
    assert!(trust < 0.2, "one reply: {trust}");
    stream.abort();
    node.stop().await;
}

#[tokio::test]
async fn first_tokens_are_those_of_streams_that_went_well_everywhere() {
    let emulator = slow_emulator(1, 0.02).await;
    let node = Setup::new().emulated(&emulator).start().await;
    for number in 0..3 {
        assert_eq!(send(&node, turn(number, 100, 5, ",\"stream\":true")).await.status, 200);
    }
    for number in 3..7 {
        assert_eq!(send(&node, turn(number, 100, 50, "")).await.status, 200);
    }
    let status = Fault::Status { code: 422, retry_after_s: None, probability: 1.0 };
    emulator.replica(0).set_fault(status).await.expect("a fault");
    for fields in ["", ",\"stream\":true"] {
        assert_eq!(send(&node, chat("tiny", fields)).await.status, 422);
    }
    assert_eq!(send(&node, chat("no such model", "")).await.status, 404);
    eventually("all are counted", || Page::of(&node).sum("spillway_requests_total", &[]) == 10.0)
        .await;
    let page = Page::of(&node);
    let counts = ["spillway_time_to_first_token_seconds", "spillway_reply_seconds"]
        .map(|name| page.sum(&format!("{name}_count"), &[]));
    assert_eq!(counts, [3.0, 4.0]);
    assert_eq!(page.sum("spillway_request_duration_seconds_count", &[]), 10.0);
    let admin = node.admin_address().expect("an address");
    let shown = Client::once(admin, spillway_tests::get("/v1/requests")).await.json();
    let requests = shown["requests"].as_array().expect("a list");
    let first_tokens = requests.iter().filter(|it| it["first_token_ms"].is_number());
    assert!(first_tokens.clone().all(|it| it["is_stream"] == true && it["status"] == 200));
    assert_eq!(first_tokens.count(), 3);
    // A reply of 50 tokens takes far longer than the first token of a stream.
    let whole_ms = requests
        .iter()
        .filter(|it| it["is_stream"] == false && it["status"] == 200)
        .filter_map(|it| it["duration_ms"].as_f64())
        .fold(f64::INFINITY, f64::min);
    let replicas = Client::once(admin, spillway_tests::get("/replicas")).await.json();
    let shown_ms = replicas[0]["latency_ms"].as_f64().expect("a time to first token");
    assert!(shown_ms < whole_ms, "{shown_ms} of streams, {whole_ms} of others");
    node.stop().await;
}

#[tokio::test]
async fn a_replica_that_streams_nothing_shows_no_time_to_first_token() {
    let emulator = slow_emulator(1, 0.02).await;
    let node = taught(Setup::new().emulated(&emulator), 12).await;
    let admin = node.admin_address().expect("an address");
    let shown = async {
        loop {
            let replicas = Client::once(admin, spillway_tests::get("/replicas")).await.json();
            // By then the keeper has taken in whole replies.
            if replicas[0]["votes"]["passive"] == "good" {
                break replicas;
            }
        }
    };
    let replicas = within("replies are taken in", shown).await;
    assert!(replicas[0]["latency_ms"].is_null(), "{replicas}");
    node.stop().await;
}
