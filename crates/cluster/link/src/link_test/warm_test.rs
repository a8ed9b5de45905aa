//! Connections that come back, double connections, changed addresses, restarted peers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, Full};
use tokio::sync::mpsc;

use super::pressure_test::ChannelBody;
use super::relay::Relay;
use super::world::{PATIENCE, TestNode, World, meet, pattern, until};
use crate::delayed::{Path, Paths};
use crate::{ForwardAnswer, ForwardBody, ForwardHead, Kind, PeerConfig, PeerRoom};

fn head() -> ForwardHead {
    ForwardHead::new(Method::POST, "/".parse().unwrap())
}

fn reply(answer: ForwardAnswer) -> http::Response<ForwardBody> {
    match answer {
        ForwardAnswer::Reply(reply) => reply,
        ForwardAnswer::Refused(refused) => panic!("refused: {refused:?}"),
    }
}

async fn echo_once(from: &TestNode, to: &TestNode) {
    let body = Full::new(pattern(3_000));
    let answer = from.link.forward(to.node(), head(), body, PeerRoom::Unknown).await.unwrap();
    assert_eq!(reply(answer).into_body().collect().await.unwrap().to_bytes(), pattern(3_000));
}

#[tokio::test]
async fn of_two_nodes_that_start_together_only_one_dials() {
    let world = World::new();
    let (a, b) = (world.start("eu", "a"), world.start("us", "b"));
    // The higher name lets the other node dial for two of these: no busy machine takes as long.
    let far = |node: &TestNode| PeerConfig { rtt_ms: Some(10_000), ..node.as_peer() };
    a.link.set_peers(vec![far(&b)]);
    b.link.set_peers(vec![far(&a)]);
    a.connected(&b).await;
    b.connected(&a).await;
    let (a_peer, b_peer) = (&a.link.peers()[0], &b.link.peers()[0]);
    assert_eq!((a_peer.control_dials.attempts, a_peer.data_dials.attempts), (1, 1));
    assert_eq!((b_peer.control_dials.attempts, b_peer.data_dials.attempts), (0, 0));
    assert!(a_peer.data.unwrap().dialled && !b_peer.data.unwrap().dialled);
    assert_eq!(a.link.endpoint().open_connections(), 2);
}

/// Both nodes dial at once, because their head start is far shorter than the path. Requests go both
/// ways all the time, on the current connection, and none of them may fail.
#[tokio::test]
async fn doubles_are_resolved_and_no_request_notices() {
    let world = World::new();
    let (a, b) = world.distant_pair(Path::of(Duration::from_millis(150))).await;
    let done = AtomicU64::new(0);
    let ask = async |from: &TestNode, to: &TestNode| {
        let end = Instant::now() + Duration::from_secs(4);
        while Instant::now() < end {
            echo_once(from, to).await;
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    tokio::join!(ask(&a, &b), ask(&b, &a), ask(&a, &b), ask(&b, &a));
    let dials = |node: &TestNode| node.link.peers()[0].data_dials.attempts;
    assert!(dials(&a) > 0 && dials(&b) > 0, "both have dialled");
    assert!(done.load(Ordering::Relaxed) > 20);
    until("one connection of each kind is left", || {
        a.link.endpoint().open_connections() == 2 && b.link.endpoint().open_connections() == 2
    })
    .await;
    for kind in Kind::ALL {
        let dialled = |node: &TestNode| {
            let peer = node.link.peers().swap_remove(0);
            let connection = if kind == Kind::Control { peer.control } else { peer.data };
            connection.unwrap().dialled
        };
        assert!(dialled(&a) && !dialled(&b), "the lower name's {kind} connection stands");
    }
    echo_once(&a, &b).await;
    echo_once(&b, &a).await;
}

/// A double connection is closed only when no request is open on it. The higher name's connection
/// is made first. The lower name dials soon after, before it learns of that, and then its own
/// connection counts.
#[tokio::test]
async fn a_request_on_the_double_that_loses_finishes() {
    let world = World::new();
    let start = |region, node, seed| {
        let mut config = world.config(region, node);
        config.paths = Some(Paths::new(seed));
        config.limits.retire_ms = 500;
        // In either order the two connections count as dialled at once.
        config.limits.double_ms = 20_000;
        TestNode::start(config)
    };
    let (a, b) = (start("eu", "a", 1), start("us", "b", 2));
    let raw_peer = |node: &TestNode| {
        // No node answers at that address, so that node never makes a connection by dialling.
        PeerConfig { address: "127.0.0.1:9".to_owned(), ..node.as_peer() }
    };
    a.link.set_peers(vec![raw_peer(&b)]);
    b.link.set_peers(vec![a.as_peer()]);
    a.connected(&b).await;
    b.connected(&a).await;
    assert!(b.link.peers()[0].data.unwrap().dialled, "the higher name's connection stands");
    let (sender, receiver) = mpsc::channel(1);
    let body = ChannelBody(receiver);
    let answer = b.link.forward(a.node(), head(), body, PeerRoom::Likely).await.unwrap();
    let mut body = reply(answer).into_body();
    // The test makes the lower name's connection by hand, with the same process, as if it had been
    // in transit.
    a.link.dial_again_for_tests(b.node(), b.address()).await;
    until("the lower name's is used", || !b.link.peers()[0].data.unwrap().dialled).await;
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        sender.send(Bytes::from_static(b"token")).await.unwrap();
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await;
        assert_eq!(frame.unwrap().unwrap().unwrap().into_data().unwrap(), "token");
    }
    assert_eq!(b.link.endpoint().open_connections(), 3, "the double is still there");
    drop(sender);
    assert!(body.frame().await.is_none());
    until("the double is closed", || {
        a.link.endpoint().open_connections() == 2 && b.link.endpoint().open_connections() == 2
    })
    .await;
    echo_once(&b, &a).await;
}

#[tokio::test]
async fn a_peer_that_is_away_is_dialled_with_growing_waits() {
    let world = World::new();
    let mut config = world.config("eu", "a");
    config.limits.back_off_max_ms = 400;
    config.limits.dial_ms = 50;
    let (a, b) = (TestNode::start(config), world.start("us", "b"));
    let mut away = b.as_peer();
    // A port that takes packets and answers nothing.
    let silent = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    away.address = silent.local_addr().unwrap().to_string();
    let begin = Instant::now();
    a.link.set_peers(vec![away]);
    let dials = || a.link.peers()[0].data_dials.clone();
    until("five dials", || dials().attempts >= 5).await;
    let dials = dials();
    // Four time limits of 50 ms, and waits of 100 ms and three times 200 ms at least.
    assert!(begin.elapsed() >= Duration::from_millis(850), "{dials:?} in {:?}", begin.elapsed());
    assert_eq!(dials.last_fault.as_deref(), Some("it took too long"));
    // The peer comes back at another address, and is found there.
    a.link.set_peers(vec![b.as_peer()]);
    b.link.set_peers(vec![a.as_peer()]);
    until("it is found", || a.link.peers()[0].is_connected()).await;
    echo_once(&a, &b).await;
}

/// The peer's process ends without a message, and another one starts at the same address with the
/// same certificate. Open requests fail long before a data connection's idle time is over.
#[tokio::test]
async fn a_peer_that_crashes_and_starts_again_is_connected_at_once() {
    for (name, other) in [("a", "b"), ("b", "a")] {
        let world = World::new();
        let restarted = |seed| {
            let mut config = world.config("us", name);
            config.paths = Some(Paths::new(seed));
            config
        };
        let stays = world.start("eu", other);
        let first = restarted(1);
        let files = first.certificates.clone();
        let idle = Duration::from_millis(first.transport.data_idle_ms.into());
        let crashes = TestNode::start(first);
        let address = crashes.address();
        meet(&stays, &crashes);
        stays.connected(&crashes).await;
        crashes.connected(&stays).await;
        let (sender, receiver) = mpsc::channel(1);
        let body = ChannelBody(receiver);
        let answer =
            stays.link.forward(crashes.node(), head(), body, PeerRoom::Likely).await.unwrap();
        let mut body = reply(answer).into_body();
        // The last packets of the process are lost, as when it is killed.
        crashes.paths().cut(stays.address(), true);
        drop(crashes);
        let mut second = restarted(2);
        second.listen = address;
        second.certificates = files;
        let again = start_once_free(second).await;
        again.link.set_peers(vec![stays.as_peer()]);
        let begin = Instant::now();
        again.connected(&stays).await;
        // A packet to the dead process makes the new one answer that it does not know the
        // connection.
        sender.send(Bytes::from_static(b"are you there?")).await.unwrap();
        let lost = tokio::time::timeout(idle / 2, body.frame()).await;
        let lost = lost.expect("it fails soon");
        assert!(lost.unwrap().is_err());
        echo_once(&stays, &again).await;
        echo_once(&again, &stays).await;
        assert!(begin.elapsed() < idle / 2, "{:?}", begin.elapsed());
    }
}

/// A task closes the socket of the earlier node, which may take a moment.
async fn start_once_free(config: crate::LinkConfig) -> TestNode {
    let address = config.listen;
    until("the port is free", || std::net::UdpSocket::bind(address).is_ok()).await;
    TestNode::start(config)
}

/// The address that a peer sees changes, as behind an address translator: requests go on.
#[tokio::test]
async fn a_dialler_whose_address_changes_keeps_its_requests() {
    let world = World::new();
    let (a, b) = (world.start("eu", "a"), world.start("us", "b"));
    let relay = Relay::start(b.address()).await;
    let mut through = b.as_peer();
    through.address = relay.address.to_string();
    a.link.set_peers(vec![through]);
    let mut deaf = a.as_peer();
    deaf.address = "127.0.0.1:9".to_owned();
    b.link.set_peers(vec![deaf]);
    a.connected(&b).await;
    let (sender, receiver) = mpsc::channel(1);
    let body = ChannelBody(receiver);
    let answer = a.link.forward(b.node(), head(), body, PeerRoom::Likely).await.unwrap();
    let mut body = reply(answer).into_body();
    for round in 0..3 {
        sender.send(Bytes::from_static(b"token")).await.unwrap();
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await;
        let frame = frame.unwrap_or_else(|_| panic!("it goes on, round {round}"));
        assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "token");
        relay.rebind();
    }
    drop(sender);
    assert!(tokio::time::timeout(PATIENCE, body.frame()).await.unwrap().is_none());
    assert_eq!(a.link.peers()[0].data_dials.attempts, 1, "the same connection all the time");
}

#[tokio::test]
async fn methods_work_from_another_runtime_than_the_links_own() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let (link, to) = (Arc::clone(&a.link), b.node().clone());
    let worker = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let body = Full::new(pattern(300_000));
            let answer = link.forward(&to, head(), body, PeerRoom::Unknown).await.unwrap();
            reply(answer).into_body().collect().await.unwrap().to_bytes()
        })
    });
    until("the worker is done", || worker.is_finished()).await;
    assert_eq!(worker.join().unwrap(), pattern(300_000));
}
