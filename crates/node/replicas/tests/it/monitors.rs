use std::time::Duration;

use spillway_replicas::{FactKind, Reconciled, ReplicaTarget, Scrape};
use spillway_testkit::eventually;

use crate::scripted::Scripted;
use crate::support::{Watching, scrape, target};

const PAGE: &str = "vllm:num_requests_waiting 1\n";

fn named(name: &str, port: u16) -> ReplicaTarget {
    let scrape = Scrape { period: Some(Duration::from_millis(10)), ..scrape() };
    ReplicaTarget { replica: name.into(), scrapes: vec![scrape], ..target(port) }
}

#[tokio::test]
async fn unchanged_targets_go_on_while_others_begin_change_and_end() {
    let (a, b, c) = (
        Scripted::start(200, PAGE).await,
        Scripted::start(200, PAGE).await,
        Scripted::start(200, PAGE).await,
    );
    let mut watching = Watching::new(1024);
    let monitors = &mut watching.monitors;
    let changes = monitors.reconcile(vec![named("a", a.port), named("b", b.port)]);
    assert_eq!(changes, Reconciled { kept: 0, started: 2, ended: 0 });
    eventually("both scraped", || !a.heads().is_empty() && !b.heads().is_empty()).await;

    // `b` moves to the port of `c`, `a` stays.
    let changes = monitors.reconcile(vec![named("b", c.port), named("a", a.port)]);
    assert_eq!(changes, Reconciled { kept: 1, started: 1, ended: 1 });
    let asked = a.heads().len();
    eventually("c scraped and a further", || !c.heads().is_empty() && a.heads().len() > asked + 2)
        .await;
    assert_eq!(a.connections(), 1, "its connection was kept");

    let changes = monitors.reconcile(vec![named("a", a.port)]);
    assert_eq!(changes, Reconciled { kept: 1, started: 0, ended: 1 });
    assert_eq!(monitors.len(), 1);
    watching.drain();
    let asked = a.heads().len();
    eventually("more of a", || a.heads().len() > asked + 10).await;
    let b_told = std::iter::from_fn(|| watching.facts.try_recv().ok())
        .filter(|fact| fact.replica.as_str() == "b")
        .count();
    assert!(b_told <= 1, "only what was under way may still come: {b_told}");
    watching.monitors.shutdown().await;
}

#[tokio::test]
async fn after_shutdown_nothing_is_asked_any_more() {
    let server = Scripted::start(200, PAGE).await;
    let mut watching = Watching::new(1024);
    watching.monitors.reconcile(vec![named("a", server.port)]);
    watching.next().await;
    watching.monitors.shutdown().await;
    let asked = server.heads().len();
    drop(watching.sender);
    // All senders are gone with their tasks, so that the channel ends.
    while watching.facts.recv().await.is_some() {}
    assert!(server.heads().len() <= asked + 1);
}

#[tokio::test]
async fn dropped_monitors_end_too() {
    let server = Scripted::start(200, PAGE).await;
    let mut watching = Watching::new(1024);
    watching.monitors.reconcile(vec![named("a", server.port)]);
    watching.next().await;
    drop(watching.monitors);
    drop(watching.sender);
    while watching.facts.recv().await.is_some() {}
}

#[tokio::test]
async fn nobody_reading_facts_stops_no_monitor() {
    let server = Scripted::start(200, PAGE).await;
    let mut watching = Watching::new(2);
    watching.monitors.reconcile(vec![named("a", server.port)]);
    eventually("facts to be dropped", || watching.sender.dropped() >= 5).await;
    let dropped = watching.sender.dropped();
    eventually("more of them", || watching.sender.dropped() >= dropped + 5).await;
    assert!(matches!(watching.next().await.kind, FactKind::Report { .. }));
}
