//! Under crashes, every request has exactly one end, and everything is counted.

use std::collections::BTreeMap;

use http::HeaderValue;
use spillway_emulator::{CallOutcome, Emulator, Fault};
use spillway_tests::{Client, Page, Reply, Setup, chat, eventually, post, slow_emulator, spawn};

const REQUESTS: usize = 200;

#[derive(Debug, PartialEq, Eq)]
enum End {
    Whole,
    /// An error of its own, before or in the reply.
    Reasoned(String),
    /// The connection broke in the middle: the client knows that something is missing.
    Broken,
}

#[tokio::test]
async fn a_crash_loses_no_request_and_doubles_none() {
    let emulator = slow_emulator(4, 0.3).await;
    let setup = Setup::new()
        .set("node.workers = 2")
        .with(|config| config.gateway.retry.budget_min_per_second = 100);
    let node = setup.emulated(&emulator).start().await;
    let address = node.addresses()[0];
    let tasks: Vec<_> = (0..REQUESTS).map(|number| spawn(one(address, number))).collect();
    let victim = emulator.replica(1);
    eventually("the victim is busy", || victim.stats().started >= 20).await;
    victim.set_fault(Fault::Crash).await.expect("crashes");
    eventually("the others carry on", || finished(&emulator) >= 60).await;
    victim.set_fault(Fault::None).await.expect("heals");

    let (mut whole, mut reasoned) = (0, 0);
    for task in tasks {
        match task.await.expect("an end") {
            End::Whole => whole += 1,
            End::Reasoned(_) | End::Broken => reasoned += 1,
        }
    }
    assert_eq!(whole + reasoned, REQUESTS, "lost = 0");
    assert!(whole >= REQUESTS / 2, "{whole} whole");

    eventually("all places are free", || {
        Page::of(&node).sum("spillway_replica_in_flight", &[]) == 0.0
    })
    .await;
    let page = Page::of(&node);
    assert_eq!(page.sum("spillway_requests_total", &[]), REQUESTS as f64);
    let ends = page.sum("spillway_requests_total", &[("status", "200"), ("end", "complete")]);
    assert_eq!(ends, whole as f64);
    assert_eq!(page.sum("spillway_client_cancels_total", &[]), 0.0);
    assert_eq!(page.sum("spillway_outcomes_dropped_total", &[]), 0.0);
    check_replicas(&emulator, &page).await;
}

/// Sends one request of a mix. Returns how it ended.
async fn one(address: std::net::SocketAddr, number: usize) -> End {
    let mut request = match number % 3 {
        0 => chat("tiny", r#","stream":true,"max_tokens":20"#),
        1 => chat("tiny", r#","max_tokens":10"#),
        _ => post("/v1/embeddings", r#"{"model":"tiny","input":"words"}"#),
    };
    let id = HeaderValue::try_from(format!("request-{number}")).expect("a header");
    request.headers_mut().insert("x-request-id", id);
    let mut client = match number % 2 {
        0 => Client::http1(address).await,
        _ => Client::http2(address).await,
    };
    let response = client.send(request).await.expect("a head, whatever happens");
    let is_stream = number.is_multiple_of(3);
    match Reply::collect(response).await {
        Ok(reply) if reply.status != 200 => {
            End::Reasoned(reply.code().expect("a code of ours").to_owned())
        }
        Ok(reply) if is_stream && reply.events().last() != Some(&"data: [DONE]\n\n") => {
            assert!(reply.text().contains("\"error\""), "silently cut: {}", reply.text());
            End::Reasoned("in the stream".to_owned())
        }
        Ok(_) => End::Whole,
        Err(_) => End::Broken,
    }
}

fn finished(emulator: &Emulator) -> u64 {
    emulator.replicas().iter().map(|replica| replica.stats().finished).sum()
}

async fn check_replicas(emulator: &Emulator, page: &Page) {
    let ended = || {
        emulator
            .replicas()
            .iter()
            .map(|replica| replica.stats())
            .all(|stats| stats.received == stats.finished + stats.aborted + stats.rejected)
    };
    eventually("the replicas agree", ended).await;
    let (mut ends, mut arrivals) = (BTreeMap::<String, u32>::new(), 0);
    for record in emulator.replicas().iter().flat_map(|replica| replica.stats().last_requests) {
        arrivals += 1;
        if record.outcome == CallOutcome::Finished {
            *ends.entry(record.request_id.expect("an id")).or_default() += 1;
        }
    }
    let doubled: u32 = ends.values().map(|count| count - 1).sum();
    let resets = page.sum("spillway_retries_total", &[("cause", "reset")]);
    assert!(f64::from(doubled) <= resets, "{doubled} doubled, {resets} retried after a reset");
    let again = arrivals as f64 - REQUESTS as f64;
    assert!(again <= resets, "{again} sent again, {resets} retried after a reset");
}
