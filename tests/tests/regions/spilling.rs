//! At home while there is room, elsewhere while there is room there, and else in the queue.

use std::time::Duration;

use spillway_emulator::{Emulator, EmulatorConfig};
use spillway_node::Node;
use spillway_tests::{
    Client, Cluster, OK, Reply, Scripted, Setup, Wire, chat, eventually, knows, spawn,
};
use spillway_types::ReplicaSlot;
use tokio::task::JoinHandle;

const ONE_PLACE: &str = "connections_max = 1";

/// A node with one replica that takes so many requests at a time.
async fn with_replica(cluster: &Cluster, index: usize, lines: &str) -> (Node, Scripted) {
    let replica = Scripted::start().await;
    let url = format!("http://{}", replica.address);
    let setup = Setup::new().replica_with(&format!("r{index}"), &url, lines);
    (cluster.start(index, setup).await, replica)
}

fn ask(node: &Node) -> JoinHandle<Reply> {
    spawn(Client::once(node.addresses()[0], chat("tiny", "")))
}

/// The next request at a replica, to be answered later.
async fn held(replica: &Scripted) -> Wire {
    replica.request().await.0
}

async fn served_by(reply: JoinHandle<Reply>) -> String {
    let reply = reply.await.expect("a reply");
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.header("x-spillway-region").expect("a header").to_owned()
}

/// Waits until `node` knows the load of that region.
pub(crate) async fn sees_running(node: &Node, region: &str, running: f32) {
    let regions = || node.gateway().routing.regions();
    eventually("the load is known", || {
        let regions = regions();
        let other = regions.others.iter().find(|other| other.name.as_str() == region);
        other.is_some_and(|other| other.models.values().any(|model| model.load.running == running))
    })
    .await;
}

#[tokio::test]
async fn a_full_region_sends_on_what_another_has_room_for_and_the_rest_waits_at_home() {
    let cluster = Cluster::new(&["home", "away"]).set("spill.reserve_percent = 0");
    cluster.distance(0, 1, Duration::from_millis(20));
    let (home, here) = with_replica(&cluster, 0, ONE_PLACE).await;
    let (away, there) = with_replica(&cluster, 1, ONE_PLACE).await;
    knows(&home, "away").await;

    let first = ask(&home);
    let mut first_wire = held(&here).await;
    let second = ask(&home);
    let mut second_wire = held(&there).await;
    sees_running(&home, "away", 1.0).await;
    let third = ask(&home);
    eventually("it waits", || home.gateway().routing.waiting.count() == 1).await;
    first_wire.send(OK).await;
    let mut third_wire = held_on(&here, first_wire).await;
    second_wire.send(OK).await;
    third_wire.send(OK).await;
    let regions = [served_by(first).await, served_by(second).await, served_by(third).await];
    assert_eq!(regions, ["home", "away", "home"]);
    home.stop().await;
    away.stop().await;
}

/// The next request at a replica, on the connection that it kept or on a new one.
async fn held_on(replica: &Scripted, mut kept: Wire) -> Wire {
    let on_kept = async {
        if !kept.has_more().await {
            std::future::pending::<()>().await;
        }
        kept.message().await;
    };
    let fresh = tokio::select! {
        (wire, _) = replica.request() => Some(wire),
        () = on_kept => None,
    };
    fresh.unwrap_or(kept)
}

/// Route on which regions do not compare what reading the prompt holds up: only room counts.
const BY_REQUESTS: &str = "[[route]]\nname = \"llm\"\npolicy = \"least_connections\"\n";

#[tokio::test]
async fn a_limit_that_is_a_guess_sends_nobody_away() {
    let cluster = Cluster::new(&["home", "away"]);
    let mut nodes = Vec::new();
    let mut engines = Vec::new();
    for index in 0..2 {
        let engine = Emulator::start(EmulatorConfig::default()).await.expect("an emulator");
        let url = format!("http://{}", engine.addresses()[0]);
        // One report, of a calm engine.
        let lines = "kind = \"vllm\"";
        let setup = Setup::new().table(BY_REQUESTS).replica_with(&format!("r{index}"), &url, lines);
        let setup = setup.with(|config| {
            let replicas = config.world.replicas.iter_mut();
            let scrapes = replicas.flat_map(|replica| &mut replica.care.scrapes);
            scrapes.for_each(|scrape| scrape.period = Some(Duration::from_secs(60)));
        });
        nodes.push(cluster.start(index, setup).await);
        engines.push(engine);
    }
    let home = &nodes[0];
    knows(home, "away").await;
    eventually("its engine has said that nothing waits", || {
        home.gateway().routing.view().replica_loads().signals(ReplicaSlot(0)).queued.is_known()
    })
    .await;
    let request = || chat("tiny", ",\"max_tokens\":64,\"ignore_eos\":true");
    let asked = (0..72).map(|_| spawn(Client::once(home.addresses()[0], request())));
    for reply in asked.collect::<Vec<_>>() {
        assert_eq!(served_by(reply).await, "home");
    }
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn what_waits_at_home_goes_elsewhere_as_soon_as_there_is_room() {
    let cluster = Cluster::new(&["home", "away"]).set("spill.reserve_percent = 0");
    let (home, here) = with_replica(&cluster, 0, ONE_PLACE).await;
    let (away, there) = with_replica(&cluster, 1, ONE_PLACE).await;
    knows(&home, "away").await;
    let _busy_here = ask(&home);
    let mut here_wire = held(&here).await;
    let busy_there = ask(&away);
    let mut there_wire = held(&there).await;
    sees_running(&home, "away", 1.0).await;
    let waiting = ask(&home);
    eventually("it waits", || home.gateway().routing.waiting.count() == 1).await;
    there_wire.send(OK).await;
    assert_eq!(served_by(busy_there).await, "away");
    let mut moved = held_on(&there, there_wire).await;
    moved.send(OK).await;
    assert_eq!(served_by(waiting).await, "away");
    here_wire.send(OK).await;
    home.stop().await;
    away.stop().await;
}

#[tokio::test]
async fn a_region_keeps_a_reserve_for_its_own_and_says_so() {
    let cluster = Cluster::new(&["home", "away"]).set("spill.reserve_percent = 50");
    let (home, here) = with_replica(&cluster, 0, ONE_PLACE).await;
    let (away, there) = with_replica(&cluster, 1, "connections_max = 2").await;
    knows(&home, "away").await;
    let first = ask(&home);
    let mut first_wire = held(&here).await;
    let guest = ask(&home);
    let mut guest_wire = held(&there).await;
    sees_running(&home, "away", 1.0).await;
    let waiting = ask(&home);
    eventually("no second guest", || home.gateway().routing.waiting.count() == 1).await;
    let own = ask(&away);
    let mut own_wire = held(&there).await;
    own_wire.send(OK).await;
    assert_eq!(served_by(own).await, "away", "its own client has the place");
    guest_wire.send(OK).await;
    assert_eq!(served_by(guest).await, "away");
    first_wire.send(OK).await;
    assert_eq!(served_by(first).await, "home");
    let mut last = tokio::select! {
        wire = held_on(&here, first_wire) => wire,
        wire = held_on(&there, guest_wire) => wire,
        wire = held_on(&there, own_wire) => wire,
    };
    last.send(OK).await;
    served_by(waiting).await;
    home.stop().await;
    away.stop().await;
}

#[tokio::test]
async fn nothing_leaves_a_region_that_keeps_all_at_home() {
    let cluster = Cluster::new(&["home", "away"]).set("spill.enabled = false");
    let (home, here) = with_replica(&cluster, 0, ONE_PLACE).await;
    let (away, there) = with_replica(&cluster, 1, ONE_PLACE).await;
    knows(&home, "away").await;
    let first = ask(&home);
    let mut wire = held(&here).await;
    let second = ask(&home);
    eventually("it waits", || home.gateway().routing.waiting.count() == 1).await;
    wire.send(OK).await;
    assert_eq!(served_by(first).await, "home");
    held_on(&here, wire).await.send(OK).await;
    assert_eq!(served_by(second).await, "home");
    assert!(there.is_alone().await);
    home.stop().await;
    away.stop().await;
}
