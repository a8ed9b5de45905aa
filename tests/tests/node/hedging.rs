//! A second replica is asked where the first is slow, and no more often than allowed.

use std::time::{Duration, Instant};

use http::Request;
use spillway_emulator::Fault;
use spillway_node::Node;
use spillway_tests::{
    Client, ClientBody, OK, Page, SLOWDOWN, Scripted, Setup, chat, emulator, eventually, spawn,
};

fn hedges(node: &Node, result: &str) -> f64 {
    Page::of(node).sum("spillway_hedges_total", &[("result", result)])
}

fn route(hedge: &str) -> String {
    format!("[[route]]\nname = \"llm\"\npolicy = \"round_robin\"\nhedge = {{ {hedge} }}\n")
}

/// Asks so often, one request after the other, and is always answered.
async fn ask(node: &Node, count: usize, request: impl Fn() -> Request<ClientBody>) {
    let mut client = Client::http1(node.addresses()[0]).await;
    for _ in 0..count {
        let reply = client.fetch(request()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

fn is_idle(node: &Node) -> bool {
    Page::of(node).sum("spillway_replica_in_flight", &[]) == 0.0
}

#[tokio::test]
async fn one_slow_replica_of_three_costs_no_more_than_the_wait_for_the_second() {
    let emulator = emulator(3).await;
    let hedge = route("after_ms = 40, budget_percent = 50");
    let node = Setup::new().table(hedge).emulated(&emulator).start().await;
    let few = || chat("tiny", ",\"max_tokens\":3");
    // The budget is a share of the requests before.
    ask(&node, 60, few).await;
    let before = ["won", "lost", "failed"].map(|result| hedges(&node, result));
    // Half a minute for each token: no request whose turn is there would be answered in time.
    let slow = Fault::Slow { factor: 1e6 };
    emulator.replica(0).set_fault(slow).await.expect("a fault");
    ask(&node, 30, few).await;
    eventually("the second won", || hedges(&node, "won") >= 10.0).await;
    let all = ["won", "lost", "failed"].map(|result| hedges(&node, result));
    assert!(all.iter().sum::<f64>() <= 45.0, "half of 90: {all:?}, {before:?} of the first 60");
    eventually("what lost was let go", || is_idle(&node)).await;
    let held_against = Page::of(&node).sum("spillway_replica_faults_total", &[]);
    assert_eq!(held_against, 0.0, "to be slow is no fault");
}

#[tokio::test]
async fn what_lost_is_let_go_at_the_replica_too() {
    let slow = Scripted::start().await;
    let quick = Scripted::start().await.serve(OK);
    let hedge = route("after_ms = 20, budget_percent = 100");
    let setup = Setup::new().table(hedge).replica("slow", slow.address);
    let node = setup.replica("quick", quick.address).start().await;
    let address = node.addresses()[0];
    // It is the turn of the quick one every other time; the first earns the budget.
    let mut taken = Vec::new();
    for _ in 0..9 {
        let asked = spawn(async move {
            let mut client = Client::http1(address).await;
            (client.fetch(chat("tiny", "")).await.status, Instant::now())
        });
        let first = tokio::select! {
            request = slow.request() => Some(request),
            () = async { while !asked.is_finished() { tokio::task::yield_now().await } } => None,
        };
        let Some((mut wire, _)) = first else {
            assert_eq!(asked.await.expect("a reply").0, 200);
            continue;
        };
        let (status, answered) = asked.await.expect("a reply");
        assert_eq!(status, 200);
        wire.end().await;
        taken.push(answered.elapsed());
    }
    taken.sort_unstable();
    assert!(taken[taken.len() / 2] <= SLOWDOWN * Duration::from_millis(100), "{taken:?}");
}

#[tokio::test]
async fn without_budget_or_under_pressure_nobody_is_asked_twice() {
    let emulator = emulator(2).await;
    let hedge = route("after_ms = 1, budget_percent = 1");
    let node = Setup::new().table(hedge).emulated(&emulator).start().await;
    // Every request takes longer than that, and one in a hundred may be hedged.
    ask(&node, 150, || chat("tiny", ",\"max_tokens\":200,\"ignore_eos\":true")).await;
    let all: f64 = ["won", "lost", "failed"].map(|result| hedges(&node, result)).iter().sum();
    assert!(all <= 2.0, "{all} of 150 with 1 %");
}

#[tokio::test]
async fn a_second_reply_that_is_an_error_is_not_the_answer() {
    let slow = Scripted::start().await;
    let failing = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 2\r\n\r\nno";
    let failing = Scripted::start().await.serve(failing);
    // Long enough for the failing one to answer first when it is its turn, on a busy machine too.
    let hedge = route("after_ms = 2000, budget_percent = 100");
    let setup = Setup::new().table(hedge).replica("failing", failing.address);
    let node = setup.replica("slow", slow.address).start().await;
    let address = node.addresses()[0];
    let mut served = 0;
    for _ in 0..6 {
        let asked = spawn(async move { Client::once(address, chat("tiny", "")).await });
        let first = tokio::select! {
            request = slow.request() => Some(request),
            () = async { while !asked.is_finished() { tokio::task::yield_now().await } } => None,
        };
        if let Some((mut wire, _)) = first {
            let before = failing.requests.count();
            if served > 0 {
                eventually("the second failed", || failing.requests.count() > before).await;
            }
            wire.send(OK).await;
            assert_eq!(asked.await.expect("a reply").status, 200, "the first serves");
            served += 1;
        } else {
            assert_eq!(asked.await.expect("a reply").status, 500, "its own turn");
        }
    }
    eventually("it is counted", || hedges(&node, "failed") >= 1.0).await;
    assert_eq!(hedges(&node, "won"), 0.0);
}
