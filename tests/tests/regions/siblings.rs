//! Several nodes in one region share its replicas.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use spillway_node::Node;
use spillway_tests::{Client, Cluster, OK, Scripted, Setup, chat, eventually, spawn};
use tokio::task::JoinSet;

const PLACES: usize = 6;
const NODES: usize = 3;
const LENGTH: Duration = Duration::from_secs(3);

/// Answers requests after a while and counts how many it has at a time.
async fn answer_slowly(replica: Scripted, busy: Arc<AtomicUsize>, most: Arc<AtomicUsize>) {
    let mut connections = JoinSet::new();
    loop {
        let mut wire = replica.accept().await;
        let (busy, most) = (Arc::clone(&busy), Arc::clone(&most));
        connections.spawn(async move {
            while wire.has_more().await {
                wire.message().await;
                most.fetch_max(busy.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // wait: the time that the replica works
                tokio::time::sleep(Duration::from_millis(20)).await;
                busy.fetch_sub(1, Ordering::SeqCst);
                wire.send(OK).await;
            }
        });
    }
}

fn claims(nodes: &[Node]) -> Vec<u32> {
    nodes.iter().map(|node| node.gateway().view().replicas()[0].claim()).collect()
}

#[tokio::test]
async fn a_limit_is_never_spent_twice_and_follows_the_demand() {
    let replica = Scripted::start().await;
    let url = format!("http://{}", replica.address);
    let lines = format!("connections_max = {PLACES}");
    let cluster = Cluster::new(&["here"; NODES]);
    let mut nodes = Vec::new();
    for index in 0..NODES {
        let setup = Setup::new().replica_with("a", &url, &lines);
        nodes.push(cluster.start(index, setup).await);
    }
    eventually("each has its part", || claims(&nodes).iter().sum::<u32>() as usize == PLACES).await;
    let (busy, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let serving = spawn(answer_slowly(replica, Arc::clone(&busy), Arc::clone(&most)));
    // All to one node, then to all of them, then to another one.
    for busy_nodes in [0..1, 0..NODES, NODES - 1..NODES] {
        let started = Instant::now();
        let mut clients = JoinSet::new();
        for number in 0..24 {
            let address = nodes[busy_nodes.start + number % busy_nodes.len()].addresses()[0];
            clients.spawn(async move {
                let mut served = 0;
                while started.elapsed() < LENGTH {
                    let reply = Client::once(address, chat("tiny", "")).await;
                    assert_eq!(reply.status, 200, "{}", reply.text());
                    served += 1;
                }
                served
            });
        }
        let served: usize = clients.join_all().await.into_iter().sum();
        let used = served as f64 * 0.020 / LENGTH.as_secs_f64();
        assert!(most.load(Ordering::SeqCst) <= PLACES, "{} at a time", most.load(Ordering::SeqCst));
        assert!(used > PLACES as f64 * 0.5, "{busy_nodes:?} used {used:.1} of {PLACES} places");
    }
    serving.abort();
    for node in nodes {
        node.stop().await;
    }
}
