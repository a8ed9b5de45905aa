//! Nodes that die and come back under load.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use spillway_emulator::Emulator;
use spillway_tests::{Client, Cluster, Setup, chat, knows, slow_emulator, spawn};
use tokio::task::JoinSet;

const REGIONS: [&str; 3] = ["one", "two", "three"];
const SERVED: &str = "200 -";
const BROKEN: &str = "502 replica_reset";
const LENGTH: Duration = Duration::from_secs(6);
/// Requests that a node's replicas serve at once.
const SLOTS: usize = 4;
const PERIOD: Duration = Duration::from_millis(12);

/// Number of requests by ending: the status and the gateway's code, or a broken connection.
type Endings = Arc<Mutex<BTreeMap<String, usize>>>;

/// Few places, so that one region alone can't serve them all.
fn setup(emulator: &Emulator) -> Setup {
    let mut setup = Setup::new();
    for (index, address) in emulator.addresses().iter().enumerate() {
        let url = format!("http://{address}");
        setup = setup.replica_with(&format!("r{index}"), &url, "connections_max = 2");
    }
    setup
}

fn request(number: usize) -> http::Request<spillway_tests::ClientBody> {
    let mut request = chat("tiny", ",\"max_tokens\":60");
    let id = http::HeaderValue::from_str(&format!("load-{number}")).expect("a value");
    request.headers_mut().insert("x-request-id", id);
    request
}

/// Returns how often each request of the load was finished at a replica.
fn finished(emulators: &[Emulator]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for replica in emulators.iter().flat_map(Emulator::replicas) {
        for record in replica.stats().last_requests {
            let is_finished = record.outcome == spillway_emulator::CallOutcome::Finished;
            if let Some(id) = record.request_id.filter(|id| is_finished && id.starts_with("load-"))
            {
                *counts.entry(id).or_default() += 1;
            }
        }
    }
    counts
}

/// Sends requests at a steady pace, whatever their outcomes.
async fn send(address: SocketAddr, sent: Arc<AtomicUsize>, endings: Endings) {
    let started = Instant::now();
    let mut requests = JoinSet::new();
    while started.elapsed() < LENGTH {
        let number = sent.fetch_add(1, Ordering::SeqCst);
        let endings = Arc::clone(&endings);
        requests.spawn(async move {
            let reply = Client::once(address, request(number)).await;
            let ending = format!("{} {}", reply.status, reply.code().unwrap_or("-"));
            let mut endings = endings.lock().unwrap_or_else(PoisonError::into_inner);
            *endings.entry(ending).or_default() += 1;
        });
        // wait: the pace of the load
        tokio::time::sleep(PERIOD).await;
    }
    requests.join_all().await;
}

#[tokio::test]
async fn a_node_dies_and_comes_back_and_every_request_is_accounted_for() {
    let endings = restart_under_load(true).await;
    // Only requests on the killed node, which has four places, and those in transit to it.
    assert!(endings.get(BROKEN).copied().unwrap_or(0) <= 8, "{endings:?}");
}

#[tokio::test]
async fn nodes_that_are_stopped_and_started_again_lose_nothing() {
    let endings = restart_under_load(false).await;
    assert_eq!(endings.get(BROKEN), None, "{endings:?}");
}

/// Stops one node after the other under load that one region can't carry, the first one without a
/// farewell if it `is_killed`, and starts them again.
async fn restart_under_load(is_killed: bool) -> BTreeMap<String, usize> {
    let cluster =
        Cluster::new(&REGIONS).set("spill.reserve_percent = 0").set("node.drain_ms = 2000");
    let cluster = cluster.set("cluster.silence_ms = 900");
    for (one, other, rtt_ms) in [(0, 1, 20), (0, 2, 40), (1, 2, 60)] {
        cluster.distance(one, other, Duration::from_millis(rtt_ms));
    }
    let mut emulators = Vec::new();
    for _ in REGIONS {
        emulators.push(slow_emulator(2, 0.05).await);
    }
    let first = cluster.start(0, setup(&emulators[0])).await;
    let mut others = Vec::new();
    for index in [1, 2] {
        others.push(Some(cluster.start(index, setup(&emulators[index])).await));
    }
    knows(&first, "two").await;
    knows(&first, "three").await;

    let (sent, endings) = (Arc::<AtomicUsize>::default(), Endings::default());
    let load = spawn(send(first.addresses()[0], Arc::clone(&sent), Arc::clone(&endings)));
    // wait: what happens between two faults
    let pause = || tokio::time::sleep(Duration::from_millis(1_200));
    pause().await;
    match others[0].take() {
        Some(node) if is_killed => drop(node),
        node => _ = node.expect("a node").stop().await,
    }
    pause().await;
    others[1].take().expect("a node").stop().await;
    pause().await;
    for (place, index) in [(0, 1), (1, 2)] {
        others[place] = Some(cluster.start(index, setup(&emulators[index])).await);
    }
    load.await.expect("the load");

    let endings = endings.lock().unwrap_or_else(PoisonError::into_inner).clone();
    check(&endings, sent.load(Ordering::SeqCst), &finished(&emulators), is_killed);
    first.stop().await;
    for other in others.into_iter().flatten() {
        other.stop().await;
    }
    endings
}

/// Checks that every request has an ending, that most are served, and that none is served twice,
/// except for requests of a killed node.
fn check(
    endings: &BTreeMap<String, usize>,
    sent: usize,
    finished: &BTreeMap<String, usize>,
    is_killed: bool,
) {
    assert_eq!(endings.values().sum::<usize>(), sent, "{endings:?}");
    let known = [SERVED, BROKEN, "503 overloaded", "502 replica_connect"];
    for ending in endings.keys() {
        assert!(known.contains(&ending.as_str()), "{ending} in {endings:?}");
    }
    let served = endings[SERVED];
    assert!(served * 10 > sent * 9, "{endings:?}");
    // A reply that a node has when it is killed is lost with it, and the request is sent again (decision 004).
    let lost = if is_killed { SLOTS } else { 0 };
    let doubled: Vec<_> = finished.iter().filter(|(_, count)| **count > 1).collect();
    assert!(doubled.len() <= lost, "served twice: {doubled:?}");
    assert!(doubled.iter().all(|(_, count)| **count == 2), "served more than twice: {doubled:?}");
    assert!(finished.len() >= served, "{} finished, {served} served", finished.len());
}
