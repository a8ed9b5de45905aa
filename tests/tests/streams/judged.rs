//! Ends of replies that are no ends: aborts, silent deaths, engines that drain.

use serde_json::{Value, json};
use spillway_emulator::{DeathSign, Emulator, Fault};
use spillway_node::Node;
use spillway_tests::{Client, Page, Setup, emulator, eventually, within};

use crate::cuts::of_kind;
use crate::stream::{Api, continuing, fetch};

/// A node that takes turns between so many replicas, and ejects none for its faults.
async fn turns(replicas: u16, kind: &str, more: &str) -> (Emulator, Node) {
    let emulator = emulator(replicas).await;
    let setup = Setup::new()
        .with(|config| config.gateway.retry.budget_min_per_second = 1000)
        .set("health.eject_after = 1000000")
        .with_health(|health| health.breaker.requests_min = 1000000)
        .table(format!("[[route]]\nname = \"all\"\npolicy = \"round_robin\"\n{more}\n"));
    let node = of_kind(setup, &emulator, kind).start().await;
    (emulator, node)
}

/// Sends one request that is no stream. Returns its status and body.
async fn whole(node: &Node, api: Api, fields: &Value) -> (u16, Value) {
    let mut fields = fields.clone();
    fields["stream"] = false.into();
    let reply = Client::once(node.addresses()[0], api.request(&fields)).await;
    (reply.status, reply.json())
}

/// Faults that cut an answer short in good order.
const SHORT: [Fault; 3] =
    [Fault::Abort { after_events: 3 }, Fault::DoneEarly { after_events: 3 }, Fault::Empty];

#[tokio::test]
async fn an_answer_that_is_cut_short_in_good_order_is_continued() {
    for api in [Api::Chat, Api::Text] {
        for fault in SHORT {
            let emulator = emulator(2).await;
            let node = of_kind(continuing(""), &emulator, "vllm").start().await;
            let address = node.addresses()[0];
            let expected = fetch(address, api, &json!({})).await;
            emulator.replica(0).set_fault(fault).await.expect("a fault");
            for _ in 0..2 {
                let stream = fetch(address, api, &json!({})).await;
                assert_eq!(stream.text, expected.text, "{api:?} {fault:?}");
                assert_eq!(stream.finishes, expected.finishes, "{api:?} {fault:?}");
                assert_eq!((stream.errors.len(), stream.dones), (0, 1), "{api:?} {fault:?}");
            }
        }
    }
}

#[tokio::test]
async fn without_a_continuation_such_a_stream_ends_with_an_error_and_counts_as_cut() {
    for fault in SHORT {
        let (emulator, node) = turns(1, "vllm", "").await;
        emulator.replica(0).set_fault(fault).await.expect("a fault");
        let stream = fetch(node.addresses()[0], Api::Chat, &json!({})).await;
        let error = ["stream_cut".to_owned()];
        assert_eq!((&*stream.errors, stream.dones), (&error[..], 0), "{fault:?}: {stream:?}");
        assert!(stream.finishes.is_empty(), "{fault:?}: {stream:?}");
        let page = || Page::of(&node);
        let cut = || page().sum("spillway_requests_total", &[("end", "cut")]);
        eventually("it is counted as cut", || cut() == 1.0).await;
        let faults = || page().sum("spillway_replica_faults_total", &[("fault", "cut")]);
        eventually("it counts against its replica", || faults() == 1.0).await;
    }
}

#[tokio::test]
async fn a_whole_answer_that_is_cut_short_is_asked_for_elsewhere() {
    for api in [Api::Chat, Api::Text] {
        for fault in SHORT {
            let (emulator, node) = turns(2, "vllm", "").await;
            emulator.replica(0).set_fault(fault).await.expect("a fault");
            for _ in 0..4 {
                let (status, reply) = whole(&node, api, &json!({})).await;
                let finish = &reply["choices"][0]["finish_reason"];
                assert_eq!((status, finish), (200, &json!("length")), "{api:?} {fault:?}: {reply}");
            }
            emulator.replica(1).set_fault(fault).await.expect("a fault");
            let (status, reply) = whole(&node, api, &json!({})).await;
            let code = &reply["error"]["code"];
            assert_eq!((status, code), (502, &json!("replica_reset")), "{fault:?}: {reply}");
        }
    }
}

/// Engines that are gone.
async fn dead(emulator: &Emulator) -> usize {
    let mut dead = 0;
    for address in emulator.addresses() {
        dead += usize::from(tokio::net::TcpStream::connect(address).await.is_err());
    }
    dead
}

#[tokio::test]
async fn one_request_kills_two_engines_at_most() {
    for with in [DeathSign::Error, DeathSign::Silence] {
        for more in ["", "continue_streams = true"] {
            for is_stream in [true, false] {
                let (emulator, node) = turns(4, "vllm", more).await;
                let fault = Fault::Die { after_events: 2, with, only_poisoned: true };
                for index in 0..4 {
                    emulator.replica(index).set_fault(fault).await.expect("a fault");
                }
                let poison = json!([{"role": "user", "content": "POISON"}]);
                let fields = json!({"messages": poison, "stream": is_stream});
                let reply = Client::once(node.addresses()[0], Api::Chat.request(&fields)).await;
                let what = format!("{with:?} {more} {is_stream}: {}", reply.text());
                let died = async {
                    while dead(&emulator).await == 0 {
                        tokio::task::yield_now().await;
                    }
                };
                within("an engine dies", died).await;
                let gone = dead(&emulator).await;
                assert!(gone <= 2, "{gone} engines died: {what}");
                let has_retry = !more.is_empty() || !is_stream;
                assert_eq!(reply.text().contains("engines_died"), has_retry, "{what}");
                let counted = Page::of(&node).sum("spillway_engines_died_total", &[]);
                assert_eq!(counted, f64::from(u8::from(has_retry)), "{what}");
                if !is_stream {
                    assert_eq!(reply.header("x-should-retry"), Some("false"), "{what}");
                }
            }
        }
    }
}

#[tokio::test]
async fn an_engine_that_drains_gets_no_new_requests_and_costs_none() {
    let (emulator, node) = turns(2, "vllm", "").await;
    emulator.replica(0).set_fault(Fault::Draining).await.expect("a fault");
    let both = async || {
        let (status, reply) = whole(&node, Api::Chat, &json!({})).await;
        assert_eq!(status, 200, "{reply}");
        let stream = fetch(node.addresses()[0], Api::Chat, &json!({})).await;
        assert_eq!((stream.errors.len(), stream.dones), (0, 1), "{stream:?}");
    };
    let sum = |metric, labels: &[(&str, &str)]| Page::of(&node).sum(metric, labels);
    let gone = || sum("spillway_replica_faults_total", &[("fault", "engine_gone")]);
    let left_out = async {
        while sum("spillway_replica_admission", &[("admission", "open")]) > 1.0 {
            both().await;
        }
    };
    within("it is left out", left_out).await;
    assert!(gone() >= 1.0);
    let retries = sum("spillway_retries_total", &[]);
    for _ in 0..5 {
        both().await;
    }
    assert_eq!(sum("spillway_retries_total", &[]), retries, "it is asked no more");
    // It serves again once it has recovered.
    emulator.replica(0).set_fault(Fault::None).await.expect("healed");
    let before = emulator.replica(0).stats().finished;
    let asked_again = async {
        while emulator.replica(0).stats().finished == before {
            let (status, reply) = whole(&node, Api::Chat, &json!({})).await;
            assert_eq!(status, 200, "{reply}");
        }
    };
    within("it is asked again", asked_again).await;
}

#[tokio::test]
async fn an_ordinary_error_of_one_request_passes_on() {
    let (emulator, node) = turns(2, "vllm", "").await;
    for index in 0..2 {
        let fault = Fault::Status { code: 500, retry_after_s: None, probability: 1.0 };
        emulator.replica(index).set_fault(fault).await.expect("a fault");
    }
    let (status, _) = whole(&node, Api::Chat, &json!({})).await;
    assert_eq!(status, 500);
    assert_eq!(Page::of(&node).sum("spillway_retries_total", &[]), 0.0);
}
