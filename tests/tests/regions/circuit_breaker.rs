//! A region that reports but does not serve is taken out, found to serve again, and given its share
//! step by step.

use std::time::Duration;

use spillway_node::Node;
use spillway_tests::{Client, Cluster, OK, Reply, Scripted, Setup, chat, eventually, knows};

async fn ask(node: &Node) -> Reply {
    Client::once(node.addresses()[0], chat("tiny", "")).await
}

fn is_let_through(node: &Node) -> bool {
    node.gateway().routing.regions().others[0].breaker.is_open()
}

#[tokio::test]
async fn a_region_that_never_begins_to_reply_is_left_out_until_it_does() {
    let replica = Scripted::start().await;
    let cluster = Cluster::new(&["edge", "core"]).ramping(Duration::from_secs(3));
    let edge = Setup::new().table("[[route]]\nname = \"all\"\ntimeouts.first_byte_ms = 600");
    let edge = cluster.start(0, edge).await;
    let core = cluster.start(1, Setup::new().replica("a", replica.address)).await;
    knows(&edge, "core").await;
    eventually("it has its full share", || {
        edge.gateway().routing.regions().others[0].ramp_permille == 1_000
    })
    .await;
    let mut kept = Vec::new();
    for _ in 0..5 {
        let (reply, asked) = tokio::join!(ask(&edge), replica.request());
        assert_eq!(reply.status, 502, "{}", reply.text());
        kept.push(asked);
    }
    eventually("it is left out", || !is_let_through(&edge)).await;
    // It is not asked: that would end in a 502.
    let reply = ask(&edge).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert!(reply.header("retry-after").is_some());
    assert!(knows_it_lives(&edge), "it is heard all the while");

    drop(kept);
    let replica = replica.serve(OK);
    eventually("some may go there", || is_let_through(&edge)).await;
    let mut served = 0;
    eventually_served(&edge, &mut served).await;
    let before = replica.requests.count();
    assert!((3..=4).contains(&before), "{before}: three find out, one may come after them");
    let ramp = edge.gateway().routing.regions().others[0].ramp_permille;
    assert!((50..1_000).contains(&ramp), "{ramp}: not all at once");
    eventually("it has its full share", || {
        edge.gateway().routing.regions().others[0].ramp_permille == 1_000
    })
    .await;
    edge.stop().await;
    core.stop().await;
}

fn knows_it_lives(edge: &Node) -> bool {
    edge.gateway().routing.regions().others[0].is_reachable
}

/// Asks until the region is judged well again.
async fn eventually_served(edge: &Node, served: &mut u32) {
    while edge.gateway().routing.regions().others[0].breaker.tally().0 < 3 {
        let reply = ask(edge).await;
        assert!(matches!(reply.status, 200 | 503), "{}", reply.text());
        *served += u32::from(reply.status == 200);
    }
    eventually("it ramps", || edge.gateway().routing.regions().others[0].ramp_permille < 1_000)
        .await;
}

#[tokio::test]
async fn a_region_that_is_only_busy_is_no_broken_one() {
    let replica = Scripted::start().await;
    let cluster =
        Cluster::new(&["edge", "core"]).set("spill.reserve_percent = 0").set("spill.queue_ms = 10");
    let edge = cluster.start(0, Setup::new()).await;
    let url = format!("http://{}", replica.address);
    let core = Setup::new().replica_with("a", &url, "connections_max = 1");
    let core = cluster.start(1, core).await;
    knows(&edge, "core").await;
    let held = spillway_tests::spawn(Client::once(core.addresses()[0], chat("tiny", "")));
    let (mut wire, _) = replica.request().await;
    for _ in 0..20 {
        assert_eq!(ask(&edge).await.status, 503);
    }
    assert!(is_let_through(&edge));
    assert_eq!(edge.gateway().routing.regions().others[0].breaker.tally().1, 0);
    wire.send(OK).await;
    assert_eq!(held.await.expect("a reply").status, 200);
    edge.stop().await;
    core.stop().await;
}
