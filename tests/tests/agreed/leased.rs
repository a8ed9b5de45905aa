//! Replicas that were registered with the cluster instead of standing in a config.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use spillway_cluster_state::{
    Command, Expect, LeaseSource, Outcome, RecordKey, ReplicaId, ReplicaSpec,
};
use spillway_node::Node;
use spillway_tests::{
    Client, Cluster, OK, PATIENCE, Reply, Scripted, Setup, chat, eventually, spawn, within,
};
use spillway_types::{Admission, ReplicaSlot};

use crate::world::*;

const LEASE: LeaseSource = LeaseSource::Lease { length_ms: 15_000 };

fn id() -> ReplicaId {
    ReplicaId::new("one".into(), "r".into())
}

fn register(address: std::net::SocketAddr, source: LeaseSource, incarnation: u64) -> Command {
    let mut spec = ReplicaSpec::new(&format!("http://{address}"), ["new".into()]);
    spec.source = source;
    Command::RegisterReplica { id: id(), spec, incarnation, expect: Expect::Any }
}

/// Two nodes of region `one` and one of `two`, whose configs have other replicas.
async fn started(cluster: &Cluster, replica: std::net::SocketAddr, lines: &[&str]) -> Vec<Node> {
    let mut nodes = Vec::new();
    for index in 0..3 {
        let mut setup = Setup::new().replica("a", replica);
        for line in lines {
            setup = setup.set(*line);
        }
        nodes.push(cluster.start(index, setup).await);
    }
    eventually("the cluster is formed", || {
        nodes.iter().all(|node| state(node).records().nodes.len() == nodes.len())
    })
    .await;
    nodes
}

/// Returns the admission state of `r` at a node; `None` if the node does not know the replica.
fn standing(node: &Node) -> Option<Admission> {
    let view = node.gateway().routing.view();
    let index = view.replicas().iter().position(|found| found.spec().name.as_str() == "r")?;
    Some(view.standing(ReplicaSlot(u32::try_from(index).expect("few replicas"))).admission)
}

fn is_open(node: &Node) -> bool {
    standing(node) == Some(Admission::Open)
}

async fn ask_new(node: &Node) -> Reply {
    Client::once(node.addresses()[0], chat("new", "")).await
}

async fn applied(node: &Node, command: Command) {
    let done = order(node, command).await;
    assert!(matches!(done, Outcome::Applied { .. }), "{done:?}");
}

#[tokio::test]
async fn a_leased_replica_serves_while_its_lease_is_renewed_and_finishes_what_it_has_after() {
    let other = Scripted::start().await.serve(OK);
    let leased = Scripted::start().await;
    let cluster = Cluster::new(&["one", "one", "two"]).agreeing();
    let nodes = started(&cluster, other.address, &[]).await;
    let of_region = &nodes[..2];
    // By a node of another region, as any node may be asked.
    let registration = register(leased.address, LEASE, 7);
    let begin = Instant::now();
    applied(&nodes[2], registration.clone()).await;
    eventually("both nodes of the region have it", || of_region.iter().all(is_open)).await;
    assert_eq!(standing(&nodes[2]), None, "it is no replica of theirs");

    let mut client = Client::http1(nodes[0].addresses()[0]).await;
    let serving = spawn(async move {
        let (mut wire, _) = leased.request().await;
        wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
        wire
    });
    let under_way = client.send(chat("new", "")).await.expect("a reply's head");
    let mut wire = serving.await.expect("a request");
    // Twice, so that a busy machine has most of a lease for each.
    let mut renew_at = begin;
    for at_s in [5, 10] {
        // wait: so that the lease would be over without being renewed
        tokio::time::sleep_until((begin + Duration::from_secs(at_s)).into()).await;
        renew_at = Instant::now();
        order(&nodes[2], registration.clone()).await;
    }
    // wait: past the end that it had before
    tokio::time::sleep_until((begin + Duration::from_secs(18)).into()).await;
    assert!(of_region.iter().all(is_open), "it was renewed");
    let deadline = renew_at + PATIENCE;
    while nodes.iter().any(|node| standing(node).is_some()) {
        assert!(Instant::now() < deadline, "its lease never ends");
        // wait: between two looks
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let lasted = renew_at.elapsed();
    // The region's clock may have been a tick of 5 s behind when the lease began.
    assert!(lasted > Duration::from_secs(9), "{lasted:?}");
    eventually("it is forgotten", || {
        nodes.iter().all(|node| state(node).records().replicas.get(&id()).is_none())
    })
    .await;
    // The node that registered it may be back soon, so no node treats its model as unknown.
    for node in &nodes {
        let reply = ask_new(node).await;
        assert_eq!((reply.status, reply.code()), (503, Some("no_replica")), "{}", reply.text());
    }
    wire.send("2\r\nok\r\n0\r\n\r\n").await;
    let body = within("the rest", under_way.into_body().collect()).await.expect("a whole reply");
    assert_eq!(body.to_bytes(), "ok");
}

#[tokio::test]
async fn one_that_is_registered_anew_is_another() {
    let other = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["one", "one", "two"]).agreeing();
    let lines = ["health.eject_ms = 600000", "retry.attempts_max = 1"];
    let nodes = started(&cluster, other.address, &lines).await;
    let socket = Scripted::refusing();
    // A second of the same model, since the last one is never left out.
    let spare = ReplicaId::new("one".into(), "spare".into());
    let spare_spec = ReplicaSpec::new(&format!("http://{}", other.address), ["new".into()]);
    let expect = Expect::Any;
    applied(
        &nodes[0],
        Command::RegisterReplica { id: spare, spec: spare_spec, incarnation: 1, expect },
    )
    .await;
    applied(&nodes[0], register(socket, LEASE, 1)).await;
    eventually("it is there", || is_open(&nodes[0])).await;
    let begin = Instant::now();
    while is_open(&nodes[0]) {
        assert!(begin.elapsed() < PATIENCE, "it is never left out");
        ask_new(&nodes[0]).await;
    }
    applied(&nodes[1], register(socket, LEASE, 2)).await;
    eventually("nothing is held against it", || is_open(&nodes[0])).await;
}

#[tokio::test]
async fn one_without_a_lease_stays_until_it_is_removed_and_does_not_come_back() {
    let other = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["one", "one", "two"]).agreeing();
    let mut nodes = started(&cluster, other.address, &["health.check = \"tcp\""]).await;
    applied(&nodes[1], register(other.address, LeaseSource::Config, 1)).await;
    eventually("both nodes of the region serve it", || nodes[..2].iter().all(is_open)).await;
    assert_eq!(ask_new(&nodes[0]).await.header("x-spillway-replica"), Some("r"));
    // It is there for the first request after a restart.
    nodes.remove(0).stop().await;
    let setup = Setup::new().replica("a", other.address).set("health.check = \"tcp\"");
    let node = cluster.start(0, setup).await;
    assert!(is_open(&node), "as those of its config it is presumed ready");
    nodes.insert(0, node);
    assert_eq!(ask_new(&nodes[0]).await.status, 200);
    let remove = Command::Remove { key: RecordKey::Replica(id()), expect: Expect::Any };
    applied(&nodes[2], remove).await;
    eventually("it is gone", || nodes.iter().all(|node| standing(node).is_none())).await;
    // wait: the nodes report their knowledge every half second; the replica is no longer in it
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(state(&nodes[0]).records().replicas.get(&id()).is_none());
    assert!(nodes.iter().all(|node| standing(node).is_none()));
}

#[tokio::test]
async fn one_that_is_registered_without_models_is_asked_for_them() {
    let other = Scripted::start().await.serve(OK);
    let page = r#"{"object":"list","data":[{"id":"new","object":"model","owned_by":"me"}]}"#;
    let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{page}", page.len());
    let registered = Scripted::start().await.serve(reply);
    let cluster = Cluster::new(&["one", "one", "two"]).agreeing();
    let nodes = started(&cluster, other.address, &["health.check = \"tcp\""]).await;
    let spec = ReplicaSpec::new(&format!("http://{}", registered.address), []);
    let command = Command::RegisterReplica { id: id(), spec, incarnation: 1, expect: Expect::Any };
    applied(&nodes[2], command).await;
    for node in &nodes[..2] {
        within("its model is served", async {
            while ask_new(node).await.status != 200 {
                // wait: until the replica was asked for its models.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
    for node in nodes {
        node.stop().await;
    }
}
