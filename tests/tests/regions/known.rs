//! A model that is configured somewhere is known everywhere, whatever became of its replicas.

use std::time::{Duration, Instant};

use http::Method;
use spillway_node::Node;
use spillway_tests::{
    Client, Cluster, OK, PATIENCE, Reply, Scripted, Setup, chat, eventually, full, get, knows,
    message, spawn,
};
use tokio::sync::watch;

/// Replicas are asked whether they are well.
const CHECKED: &str = "health.check = \"tcp\"\nhealth.interval_ms = 100";
/// Far longer than a node takes to report changes.
const WATCHED_FOR: Duration = Duration::from_secs(2);

async fn ask(node: &Node) -> Reply {
    Client::once(node.addresses()[0], chat("tiny", "")).await
}

async fn is_listed(node: &Node) -> bool {
    let list = Client::once(node.addresses()[0], get("/v1/models")).await;
    list.text().contains("\"tiny\"")
}

#[track_caller]
fn check_unavailable(reply: &Reply) {
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert!(reply.header("retry-after").is_some(), "{}", reply.text());
}

/// Sends requests until the first 503, and then for a while longer: from then on every reply must
/// be 503.
async fn stays_unavailable(node: &Node) {
    let started = Instant::now();
    let first = loop {
        let reply = ask(node).await;
        if reply.status == 503 {
            break reply;
        }
        assert!([200, 502].contains(&reply.status), "{}", reply.text());
        assert!(started.elapsed() < PATIENCE, "it is served for ever");
    };
    check_unavailable(&first);
    let since = Instant::now();
    while since.elapsed() < WATCHED_FOR {
        check_unavailable(&ask(node).await);
        assert!(is_listed(node).await);
    }
}

#[tokio::test]
async fn a_model_whose_only_replica_is_drained_is_unavailable_at_an_edge() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["edge", "core"]);
    let setup = Setup::new().replica("a", replica.address);
    let core = cluster.start(1, setup).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "core").await;
    assert_eq!(ask(&edge).await.status, 200);
    let drain = message(Method::POST, "/replicas/a/drain", "application/json", full(""));
    let drained = Client::once(core.admin_address().expect("an address"), drain).await;
    assert_eq!(drained.status, 200, "{}", drained.text());
    stays_unavailable(&edge).await;
    check_unavailable(&ask(&core).await);
    let resume = message(Method::POST, "/replicas/a/resume", "application/json", full(""));
    Client::once(core.admin_address().expect("an address"), resume).await;
    knows(&edge, "core").await;
    assert_eq!(ask(&edge).await.status, 200);
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn a_model_whose_replicas_never_came_up_is_unavailable_in_other_regions() {
    let other = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["edge", "core"]);
    let url = format!("http://{}", Scripted::refusing());
    let core = Setup::new().set(CHECKED).replica_with("a", &url, "");
    let core = cluster.start(1, core).await;
    let replica = format!("url = \"http://{}\"\nmodels = [\"other\"]", other.address);
    let edge = Setup::new().table(format!("[[replica]]\nname = \"o\"\n{replica}"));
    let edge = cluster.start(0, edge).await;
    let is_known =
        |node: &Node| node.gateway().routing.view().models().iter().any(|it| it.as_str() == "tiny");
    eventually("it has heard of the model", || is_known(&edge)).await;
    stays_unavailable(&edge).await;
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn no_client_is_told_that_a_model_does_not_exist_while_its_region_dies_and_comes_back() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["edge", "core"]);
    let setup = Setup::new().replica("a", replica.address);
    let core = cluster.start(1, setup.clone()).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "core").await;
    let (stop, stopped) = watch::channel(());
    let address = edge.addresses()[0];
    let asking = spawn(async move {
        let mut statuses = std::collections::BTreeMap::new();
        while !stopped.has_changed().unwrap_or(true) {
            let status = Client::once(address, chat("tiny", "")).await.status;
            *statuses.entry(status).or_insert(0_u32) += 1;
            let list = Client::once(address, get("/v1/models")).await;
            assert!(list.text().contains("\"tiny\""), "{}", list.text());
        }
        statuses
    });
    // Without a farewell.
    drop(core);
    eventually("it is lost", || !spillway_tests::is_open(&edge, "core")).await;
    // It comes back before its replica does.
    let url = format!("http://{}", Scripted::refusing());
    let without = Setup::new().set(CHECKED).replica_with("a", &url, "");
    let core_without = cluster.start(1, without).await;
    let is_heard =
        || edge.gateway().routing.regions().others.iter().any(|other| other.is_reachable);
    eventually("it is heard again", is_heard).await;
    eventually("its replica is down", || !spillway_tests::is_open(&edge, "core")).await;
    drop(core_without);
    let core = cluster.start(1, setup).await;
    knows(&edge, "core").await;
    drop(stop);
    let statuses = asking.await.expect("statuses");
    assert!(!statuses.contains_key(&404), "{statuses:?}");
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn a_node_that_has_just_started_asks_for_patience_until_it_has_heard_the_others() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["edge", "core"]);
    cluster.distance(0, 1, Duration::from_millis(80));
    let core = cluster.start(1, Setup::new().replica("a", replica.address)).await;
    let edge = cluster.start(0, Setup::new()).await;
    let mut statuses = Vec::new();
    while statuses.last() != Some(&200) {
        let reply = ask(&edge).await;
        if reply.status == 503 {
            check_unavailable(&reply);
        }
        statuses.push(reply.status);
        assert!(statuses.len() < 100_000, "it is never served");
    }
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    let unknown = || Client::once(edge.addresses()[0], chat("huge", ""));
    let started = Instant::now();
    while unknown().await.status != 404 {
        assert!(started.elapsed() < PATIENCE, "it learns for ever");
    }
    edge.stop().await;
    core.stop().await;
}
