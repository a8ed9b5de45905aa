//! Requests on a replica that goes down. A replica that refuses connections has lost its requests:
//! they end, or are retried elsewhere. A silent replica may go on: its requests wait, unless
//! another replica can serve them.

use std::time::Duration;

use spillway_emulator::{Emulator, Fault};
use spillway_node::Node;
use spillway_tests::{
    Client, OK, Page, Reply, Scripted, Setup, chat, eventually, slow_emulator, spawn, within,
};
use tokio::task::JoinHandle;

use crate::health::{QUICK, stands_at_last};

/// More tokens than the replica generates within a test.
const LONG: &str = ",\"max_tokens\":5000";

/// Checks ten times a second, and no time-out that a test would meet.
fn quick() -> Setup {
    let lines = QUICK.into_iter().filter(|line| !line.starts_with("timeouts"));
    lines.fold(Setup::new(), Setup::set)
}

/// A node with one slow emulated replica, which is checked in two ways.
async fn world(more: impl FnOnce(Setup) -> Setup) -> (Emulator, Node) {
    world_at(50.0, more).await
}

/// A node with a replica that is so many times slower than usual.
async fn world_at(scale: f64, more: impl FnOnce(Setup) -> Setup) -> (Emulator, Node) {
    let emulator = slow_emulator(1, scale).await;
    let url = format!("http://{}", emulator.addresses()[0]);
    let setup = quick().replica_with("slow", &url, "kind = \"vllm\"");
    let node = more(setup).start().await;
    stands_at_last(&node, "slow", "open").await;
    (emulator, node)
}

fn ask(node: &Node, fields: &str) -> JoinHandle<Reply> {
    spawn(Client::once(node.addresses()[0], chat("tiny", fields)))
}

async fn hang(emulator: &Emulator) {
    emulator.replica(0).set_fault(Fault::Hang).await.expect("a fault");
}

/// Starts a node over a replica whose process is gone while a connection of it is half alive, e.g.
/// behind a proxy. Returns the reply to a request that was at the replica then, after it had sent
/// `begun` of its own reply.
async fn reply_of_dying(fields: &str, begun: &str) -> Reply {
    let dying = Scripted::start().await;
    let lines = "kind = \"generic\"\nhealth = { check = \"tcp\" }";
    let url = format!("http://{}", dying.address);
    let node = quick().replica_with("dying", &url, lines).start().await;
    let checks = spawn(async move {
        // Checks connect and leave; the request stays.
        loop {
            let mut wire = dying.accept().await;
            if wire.has_more().await {
                return (wire, dying);
            }
        }
    });
    let waits = ask(&node, fields);
    let (mut held, listener) = within("the request", checks).await.expect("a request");
    held.send(begun).await;
    drop(listener);
    let reply = within("it ends", waits).await.expect("a reply");
    eventually("its place is free", || node.gateway().counters.unfinished() == 0).await;
    drop(held);
    reply
}

#[tokio::test]
async fn a_request_whose_replica_refuses_connections_is_told_so_at_once() {
    let reply = reply_of_dying(LONG, "").await;
    assert_eq!((reply.status, reply.code()), (502, Some("replica_down")), "{}", reply.text());
    assert!(reply.header("retry-after").is_some(), "{}", reply.text());
}

#[tokio::test]
async fn a_stream_whose_replica_refuses_connections_ends_with_an_event() {
    let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
    let begun = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{event}");
    let reply = reply_of_dying(",\"stream\":true", &begun).await;
    let events = reply.events();
    assert_eq!(events.first(), Some(&event), "{}", reply.text());
    assert!(events.last().is_some_and(|it| it.contains("stream_cut")), "{}", reply.text());
}

/// Waits until the node finds the replica down, and heals it.
async fn thaw(emulator: &Emulator, node: &Node) {
    stands_at_last(node, "slow", "down").await;
    // wait: longer than the grace after which a request counts as lost.
    tokio::time::sleep(Duration::from_secs(1)).await;
    emulator.replica(0).set_fault(Fault::None).await.expect("a healthy replica");
}

#[tokio::test]
async fn a_request_waits_for_its_only_replica_when_that_is_merely_silent() {
    let (emulator, node) = world_at(3.0, |setup| setup).await;
    let waits = ask(&node, ",\"max_tokens\":20");
    eventually("it is at the replica", || emulator.replica(0).stats().running == 1).await;
    emulator.replica(0).set_fault(Fault::Freeze).await.expect("a fault");
    thaw(&emulator, &node).await;
    let reply = within("it is served", waits).await.expect("a reply");
    assert_eq!(reply.status, 200, "{}", reply.text());
    stands_at_last(&node, "slow", "open").await;
    let labels = [("replica", "slow")];
    let share = Page::of(&node).sum("spillway_replica_ramp", &labels);
    assert!((share - 1.0).abs() < f64::EPSILON, "it has kept its caches, and has its full share");
}

#[tokio::test]
async fn a_stream_waits_for_its_only_replica_when_that_is_merely_silent() {
    let (emulator, node) =
        world_at(3.0, |setup| setup.table("[[route]]\nname = \"llm\"\ncontinue_streams = true\n"))
            .await;
    let waits = ask(&node, ",\"stream\":true,\"max_tokens\":40");
    eventually("it is at the replica", || emulator.replica(0).stats().running == 1).await;
    emulator.replica(0).set_fault(Fault::Freeze).await.expect("a fault");
    thaw(&emulator, &node).await;
    let reply = within("it ends", waits).await.expect("a reply");
    assert_eq!(reply.events().last(), Some(&"data: [DONE]\n\n"), "{}", reply.text());
    assert_eq!(emulator.replica(0).stats().received, 1, "asked once");
}

/// The route does not continue streams, so the other replica is of no use to it.
#[tokio::test]
async fn a_stream_that_no_other_replica_can_continue_waits_for_its_own() {
    let well = Scripted::start().await.serve(OK);
    let (emulator, node) = world_at(3.0, |setup| {
        setup
            .table("[[route]]\nname = \"llm\"\npolicy = \"round_robin\"\n")
            .replica("well", well.address)
    })
    .await;
    let mut waits = ask(&node, ",\"stream\":true,\"max_tokens\":40");
    while emulator.replica(0).stats().received == 0 {
        if let Ok(reply) = tokio::time::timeout(Duration::from_secs(1), &mut waits).await {
            assert_eq!(reply.expect("a reply").status, 200);
            waits = ask(&node, ",\"stream\":true,\"max_tokens\":40");
        }
    }
    eventually("it is at the replica", || emulator.replica(0).stats().running == 1).await;
    emulator.replica(0).set_fault(Fault::Freeze).await.expect("a fault");
    thaw(&emulator, &node).await;
    let reply = within("it ends", waits).await.expect("a reply");
    assert_eq!(reply.events().last(), Some(&"data: [DONE]\n\n"), "{}", reply.text());
}

#[tokio::test]
async fn a_request_whose_replica_goes_down_goes_to_another_one() {
    let well = Scripted::start().await.serve(OK);
    let (emulator, node) = world(|setup| {
        setup
            .table("[[route]]\nname = \"llm\"\npolicy = \"round_robin\"\n")
            .replica("well", well.address)
    })
    .await;
    let mut waits = ask(&node, LONG);
    for _ in 0..3 {
        if emulator.replica(0).stats().received > 0 {
            break;
        }
        if let Ok(reply) = tokio::time::timeout(Duration::from_secs(1), &mut waits).await {
            assert_eq!(reply.expect("a reply").status, 200);
            waits = ask(&node, LONG);
        }
    }
    eventually("it is at the replica", || emulator.replica(0).stats().running == 1).await;
    hang(&emulator).await;
    let reply = within("it is served", waits).await.expect("a reply");
    assert_eq!((reply.status, reply.text()), (200, "ok"));
}

/// The replica's checks report that it is down, and yet it is the only one.
#[tokio::test]
async fn a_request_that_is_sent_to_a_replica_which_is_down_is_not_given_up_for_that() {
    let emulator = slow_emulator(1, 0.5).await;
    let lines = "kind = \"vllm\"\nhealth = { path = \"/nothing-here\" }\nmetrics.scrape = false";
    let url = format!("http://{}", emulator.addresses()[0]);
    let node = quick().set("health.stall_ms = 60000").replica_with("r0", &url, lines).start().await;
    stands_at_last(&node, "r0", "down").await;
    // Seconds of work, and not a byte before its end.
    let reply = Client::once(node.addresses()[0], chat("tiny", ",\"max_tokens\":1000"));
    let reply = within("it is served", reply).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}
