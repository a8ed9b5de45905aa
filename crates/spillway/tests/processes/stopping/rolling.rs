//! All nodes of a cluster are stopped and started again, one after the other, under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use spillway_emulator::{Emulator, EmulatorConfig};
use spillway_testkit::{PATIENCE, eventually};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::caller::{call, chat, status};
use crate::machines::{Machines, admin, data};

const NODES: usize = 3;
/// Number of clients, each with one request after the other.
const CLIENTS: usize = 24;
/// Interval of the balancer's readiness checks; the drain notice is four times as long.
const CHECKED_EVERY: Duration = Duration::from_millis(100);

/// Load balancer in front of the nodes: sends a client to its own region's node or, if that is not
/// ready, to the next one.
#[derive(Default)]
struct Balancer {
    ready: [AtomicBool; NODES],
    stops: AtomicBool,
    sent: AtomicUsize,
}

impl Balancer {
    async fn watch(self: Arc<Self>, node: usize) {
        while !self.stops.load(Ordering::Relaxed) {
            let reply = call(data(node), "GET /readyz", "").await.unwrap_or_default();
            self.ready[node].store(status(&reply) == 200, Ordering::Relaxed);
            // wait: the period of its checks
            sleep(CHECKED_EVERY).await;
        }
    }

    fn node_for(&self, client: usize) -> usize {
        let near_first = (0..NODES).map(|step| (client + step) % NODES);
        let mut ready = near_first.filter(|node| self.ready[*node].load(Ordering::Relaxed));
        ready.next().unwrap_or(client % NODES)
    }

    /// Sends requests until it is stopped, and returns the failures.
    async fn load(self: Arc<Self>, client: usize) -> Vec<String> {
        let mut failed = Vec::new();
        while !self.stops.load(Ordering::Relaxed) {
            let node = self.node_for(client);
            let streams = self.sent.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
            if let Err(why) = chat(data(node), streams, 20).await {
                failed.push(format!("n{node}: {why}"));
            }
        }
        failed
    }

    async fn sees(&self, node: usize, is_ready: bool) {
        let is_so = || self.ready[node].load(Ordering::Relaxed) == is_ready;
        eventually(&format!("n{node} is seen as ready: {is_ready}"), is_so).await;
    }
}

/// Returns the leader that a node names; empty if the node knows none.
async fn leader(node: usize) -> String {
    let reply = call(admin(node), "GET /v1/status", "").await.unwrap_or_default();
    let body = reply.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    let status: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    status["leader"]["node"].as_str().unwrap_or_default().to_owned()
}

/// Waits until all nodes name one leader.
async fn agreed() -> String {
    let by = Instant::now() + PATIENCE;
    loop {
        let first = leader(0).await;
        let mut is_same = !first.is_empty();
        for node in 1..NODES {
            is_same &= leader(node).await == first;
        }
        if is_same {
            return first;
        }
        assert!(Instant::now() < by, "the nodes do not agree on a leader");
        // wait: between two looks
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_under_load_loses_nothing() {
    let mut emulators = Vec::new();
    for _ in 0..NODES {
        let config = EmulatorConfig { replicas: 1, time_scale: 0.3, ..EmulatorConfig::default() };
        emulators.push(Emulator::start(config).await.unwrap());
    }
    let replica = |node: usize| {
        format!(
            "[[replica]]\nname = \"a\"\nurl = \"http://{}\"\nmodels = [\"tiny\"]\n\
             connections_max = 4\n[health]\nslow_start_ms = 0",
            emulators[node].addresses()[0]
        )
    };
    let lines = "node.drain_notice_ms = 400\nnode.drain_ms = 20000\nspill.reserve_percent = 0";
    let mut machines = Machines::new(NODES, lines, replica);
    (0..NODES).for_each(|node| machines.start(node));
    let balancer = Arc::<Balancer>::default();
    let mut tasks = JoinSet::new();
    for node in 0..NODES {
        tasks.spawn(Arc::clone(&balancer).watch(node));
    }
    for node in 0..NODES {
        balancer.sees(node, true).await;
    }
    agreed().await;
    let mut load = JoinSet::new();
    for client in 0..CLIENTS {
        load.spawn(Arc::clone(&balancer).load(client));
    }
    let mut handed_over = 0;
    for node in 0..NODES {
        let name = format!("n{node}");
        let led = agreed().await == name;
        machines.terminate(node);
        balancer.sees(node, false).await;
        let status = machines.ended(node);
        assert_eq!(status.code(), Some(0), "{name}: {}", machines.log(node));
        handed_over += usize::from(led && machines.log(node).contains("transferred leadership"));
        machines.start(node);
        balancer.sees(node, true).await;
        agreed().await;
    }
    balancer.stops.store(true, Ordering::Relaxed);
    let failed: Vec<String> = load.join_all().await.into_iter().flatten().collect();
    tasks.join_all().await;
    let sent = balancer.sent.load(Ordering::Relaxed);
    println!("{sent} requests, {} failed, lead handed over {handed_over} times", failed.len());
    assert!(sent > 100, "{sent} requests are no load");
    assert!(
        failed.is_empty(),
        "{} of {sent} failed: {:#?}",
        failed.len(),
        &failed[..failed.len().min(5)]
    );
    assert!(handed_over > 0, "whoever leads when it is stopped hands the lead over");
}
