//! Replicas that break off anywhere in a stream.

use serde_json::{Value, json};
use spillway_emulator::{Close, Emulator, Fault};
use spillway_node::Node;
use spillway_tests::{Client, Page, Reply, Setup, emulator, eventually};

use crate::stream::{Api, Stream, continuing, counted, fetch};

async fn start(more: &str) -> (Emulator, Node) {
    let emulator = emulator(2).await;
    let node = of_kind(continuing(more), &emulator, "vllm").start().await;
    (emulator, node)
}

pub(crate) fn of_kind(setup: Setup, emulator: &Emulator, kind: &str) -> Setup {
    emulator.addresses().iter().enumerate().fold(setup, |setup, (index, address)| {
        let lines = format!("kind = \"{kind}\"");
        setup.replica_with(&format!("r{index}"), &format!("http://{address}"), &lines)
    })
}

/// Returns the stream that the same request gets from an engine without faults.
async fn undisturbed(emulator: &Emulator, api: Api, more: &Value) -> Stream {
    let reply = Client::once(emulator.addresses()[0], api.request(more)).await;
    Stream::read(reply.text())
}

#[track_caller]
fn check(continued: &Stream, undisturbed: &Stream, at: u64) {
    assert_eq!(continued.errors, Vec::<String>::new(), "cut after {at}");
    assert_eq!(continued.text, undisturbed.text, "cut after {at}");
    assert_eq!(continued.finishes, undisturbed.finishes, "cut after {at}");
    assert_eq!((continued.roles, continued.dones), (undisturbed.roles, 1), "cut after {at}");
    assert_eq!(continued.heads.len(), 1, "cut after {at}: {:?}", continued.heads);
    assert_eq!(continued.usages.len(), undisturbed.usages.len(), "cut after {at}");
    for (usage, other) in continued.usages.iter().zip(&undisturbed.usages) {
        for field in ["prompt_tokens", "completion_tokens", "total_tokens"] {
            assert_eq!(usage[field], other[field], "{field}, cut after {at}");
        }
    }
}

/// Has one of two replicas break off after each number of events in turn.
async fn every_event(api: Api, more: Value, fault: impl Fn(u64) -> Fault, cause: &str) {
    let (emulator, node) = start("timeouts = { idle_ms = 400, first_byte_ms = 2000 }").await;
    let address = node.addresses()[0];
    let expected = undisturbed(&emulator, api, &more).await;
    assert_eq!(expected.text.len(), 48, "{}", expected.text);
    let events = expected.events as u64;
    for after in 0..=events {
        emulator.replica(0).set_fault(fault(after)).await.expect("a fault");
        // Of two streams one goes to the replica that breaks; its continuation takes a turn as
        // well.
        for _ in 0..2 {
            check(&fetch(address, api, &more).await, &expected, after);
        }
    }
    let all = |cause| counted(&node, "continued", cause) + counted(&node, "ended", cause);
    assert!(all(cause) > events as f64);
    assert!(counted(&node, "ended", cause) >= 1.0);
    assert_eq!(counted(&node, "refused", "budget") + counted(&node, "failed", "attempt"), 0.0);
    let ends = |end| Page::of(&node).sum("spillway_requests_total", &[("end", end)]);
    eventually("all are counted", || ends("complete") == 2.0 * (events as f64 + 1.0)).await;
    let faults = Page::of(&node).sum("spillway_replica_faults_total", &[("replica", "r0")]);
    assert!(faults >= events as f64, "{faults}: what broke off counts against its replica");
}

fn cut(after_events: u64) -> Fault {
    Fault::Cut { after_events, close: Close::Reset }
}

#[tokio::test]
async fn a_chat_cut_after_any_event_goes_on() {
    every_event(Api::Chat, json!({}), cut, "cut").await;
}

#[tokio::test]
async fn a_chat_that_tells_its_usage_tells_it_right() {
    let more = json!({"stream_options": {"include_usage": true}});
    every_event(Api::Chat, more, cut, "cut").await;
}

#[tokio::test]
async fn usage_told_in_every_event_goes_on_counting() {
    let more = json!({"stream_options": {"include_usage": true, "continuous_usage_stats": true}});
    let (emulator, node) = start("").await;
    let expected = undisturbed(&emulator, Api::Chat, &more).await;
    emulator.replica(0).set_fault(cut(6)).await.expect("a fault");
    for _ in 0..2 {
        check(&fetch(node.addresses()[0], Api::Chat, &more).await, &expected, 6);
    }
}

#[tokio::test]
async fn a_text_completion_cut_after_any_event_goes_on() {
    let more = json!({"stream_options": {"include_usage": true}});
    every_event(Api::Text, more, cut, "cut").await;
}

#[tokio::test]
async fn an_orderly_close_in_the_middle_is_a_cut_too() {
    let fin = |after_events| Fault::Cut { after_events, close: Close::Fin };
    every_event(Api::Text, json!({}), fin, "cut").await;
}

#[tokio::test]
async fn a_replica_that_falls_silent_is_gone_on_from() {
    let stall = |after_events| Fault::Stall { after_events };
    every_event(Api::Chat, json!({}), stall, "stalled").await;
}

#[tokio::test]
async fn the_answer_s_own_end_is_found_by_whoever_goes_on() {
    let (emulator, node) = start("").await;
    let more = json!({"max_tokens": 1000, "stream_options": {"include_usage": true}});
    let expected = undisturbed(&emulator, Api::Chat, &more).await;
    assert_eq!(expected.finishes, ["stop"]);
    let events = expected.events as u64;
    for after in [1, events / 3, events / 2, events - 3, events - 2, events - 1] {
        emulator.replica(0).set_fault(cut(after)).await.expect("a fault");
        for _ in 0..2 {
            check(&fetch(node.addresses()[0], Api::Chat, &more).await, &expected, after);
        }
    }
}

#[tokio::test]
async fn a_stream_survives_more_than_one_replica() {
    let emulator = emulator(4).await;
    let node = of_kind(continuing(""), &emulator, "vllm").start().await;
    let more = json!({"max_tokens": 24});
    let expected = undisturbed(&emulator, Api::Chat, &more).await;
    for (index, after) in [(0, 4), (1, 7), (2, 3)] {
        let fault = Fault::Abort { after_events: after };
        emulator.replica(index).set_fault(fault).await.expect("a fault");
    }
    for _ in 0..4 {
        check(&fetch(node.addresses()[0], Api::Chat, &more).await, &expected, 0);
    }
    assert!(counted(&node, "continued", "aborted") >= 6.0);
    // With a fourth that aborts there is one continuation too many.
    let fault = Fault::Abort { after_events: 3 };
    emulator.replica(3).set_fault(fault).await.expect("a fault");
    let stream = fetch(node.addresses()[0], Api::Chat, &more).await;
    assert_eq!((stream.errors.as_slice(), stream.dones), (["stream_cut".to_owned()].as_slice(), 0));
    assert!(expected.text.starts_with(&stream.text) && !stream.text.is_empty());
    assert_eq!(counted(&node, "refused", "count"), 1.0);
}

#[tokio::test]
async fn a_stream_whose_engines_die_twice_is_not_continued_again() {
    let emulator = emulator(4).await;
    let node = of_kind(continuing(""), &emulator, "vllm").start().await;
    for index in 0..4 {
        emulator.replica(index).set_fault(cut(3)).await.expect("a fault");
    }
    let stream = fetch(node.addresses()[0], Api::Chat, &json!({})).await;
    let error = ["engines_died".to_owned()];
    assert_eq!((stream.errors.as_slice(), stream.dones), (error.as_slice(), 0));
    assert_eq!(counted(&node, "continued", "cut"), 1.0);
    assert_eq!(counted(&node, "refused", "deaths"), 1.0);
    let died = || Page::of(&node).sum("spillway_engines_died_total", &[]);
    eventually("it is counted", || died() == 1.0).await;
}

#[tokio::test]
async fn streams_over_http2_go_on_too() {
    let (emulator, node) = start("").await;
    let expected = undisturbed(&emulator, Api::Chat, &json!({})).await;
    emulator.replica(0).set_fault(cut(5)).await.expect("a fault");
    let mut client = Client::http2(node.addresses()[0]).await;
    for _ in 0..4 {
        let reply = client.fetch(Api::Chat.request(&json!({}))).await;
        check(&Stream::read(reply.text()), &expected, 5);
    }
    assert!(counted(&node, "continued", "cut") >= 2.0);
}

#[tokio::test]
async fn who_goes_on_is_waited_for_as_long_as_a_stream_may_be_silent() {
    let emulator = emulator(2).await;
    let more = "timeouts = { idle_ms = 1500 }";
    let setup = emulator.addresses().iter().enumerate().fold(
        continuing(more).set("spill.queue_ms = 30000"),
        |setup, (index, address)| {
            let lines = "kind = \"vllm\"\nconnections_max = 1";
            setup.replica_with(&format!("r{index}"), &format!("http://{address}"), lines)
        },
    );
    let node = setup.start().await;
    let address = node.addresses()[0];
    let expected = undisturbed(&emulator, Api::Chat, &json!({})).await;
    // The other replica's only place is taken until its request is aborted.
    let mut holder = Client::http1(address).await;
    emulator.replica(1).set_fault(Fault::Stall { after_events: 1 }).await.expect("a fault");
    emulator.replica(0).set_fault(Fault::Stall { after_events: 1 }).await.expect("a fault");
    let held = holder.send(Api::Chat.request(&json!({}))).await.expect("a head");
    let busy = if emulator.replica(0).stats().received > 1 { 0 } else { 1 };
    emulator.replica(1 - busy).set_fault(cut(4)).await.expect("a fault");
    emulator.replica(busy).set_fault(Fault::None).await.expect("heals");
    let nothing = json!({});
    let (stream, ()) = tokio::join!(fetch(address, Api::Chat, &nothing), async {
        eventually("it has broken off", || {
            let faults = Page::of(&node).sum("spillway_replica_faults_total", &[]);
            faults >= 1.0
        })
        .await;
        drop(held);
        holder.abort();
    });
    check(&stream, &expected, 4);
}

#[tokio::test]
async fn a_stream_goes_on_while_its_client_reads_nothing() {
    let (emulator, node) = start("").await;
    let more = json!({"max_tokens": 600, "ignore_eos": true});
    let expected = undisturbed(&emulator, Api::Text, &more).await;
    assert!(expected.events > 500, "{} events", expected.events);
    for after in [1, 200, 500] {
        emulator.replica(0).set_fault(cut(after)).await.expect("a fault");
        // Of two streams one goes to the replica that breaks.
        for _ in 0..2 {
            // Most of it is read ahead.
            let mut client = Client::http2_with_window(node.addresses()[0], 4 << 10).await;
            let response = client.send(Api::Text.request(&more)).await.expect("a head");
            let taken = || Page::of(&node).sum("spillway_replica_in_flight", &[]);
            eventually("the whole stream is here", || taken() == 0.0).await;
            let reply = Reply::collect(response).await.expect("a whole reply");
            check(&Stream::read(reply.text()), &expected, after);
        }
    }
    assert!(counted(&node, "continued", "cut") >= 3.0);
}
