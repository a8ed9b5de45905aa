//! Nodes that are not peers may ask to join, and get nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spillway_codec::Wire;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::raw::RawClient;
use super::world::{PATIENCE, TestNode, World, days, identity, until};
use crate::certs::Authority;
use crate::{
    HandshakeError, Identity, JoinError, JoinHandler, Kind, PeerConfig, Served, StreamReceiver,
    StreamSender,
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Word(String);

impl Wire for Word {
    const KIND: u16 = 0x7f30;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 4_096;
}

/// Gate that answers with the node's name and the question, as soon as there is a permit.
struct Echo {
    permits: Arc<Semaphore>,
    served: Arc<AtomicUsize>,
}

impl JoinHandler for Echo {
    fn asked_to_join(&self, from: Identity, streams: (StreamSender, StreamReceiver)) -> Served {
        let (permits, (mut sender, mut receiver)) = (Arc::clone(&self.permits), streams);
        self.served.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let Ok(Some(Word(word))) = receiver.message::<Word>().await else { return };
            permits.acquire().await.unwrap().forget();
            sender.message(&Word(format!("{from}: {word}"))).await.unwrap();
            sender.finish();
        })
    }
}

fn open(node: &TestNode, permits: usize) -> (Arc<Semaphore>, Arc<AtomicUsize>) {
    let (permits, served) = (Arc::new(Semaphore::new(permits)), Arc::<AtomicUsize>::default());
    let join_handler = Echo { permits: Arc::clone(&permits), served: Arc::clone(&served) };
    node.link.serve_joins(Some(Arc::new(join_handler)));
    (permits, served)
}

async fn ask_to_join(from: &TestNode, to: &PeerConfig) -> Result<String, JoinError> {
    let answer =
        from.link.ask_to_join::<Word, Word>(to, &Word("may I?".to_owned()), PATIENCE).await;
    answer.map(|Word(word)| word)
}

#[tokio::test]
async fn a_stranger_is_answered_and_gets_nothing_else() {
    let world = World::new();
    let (node, stranger) = (world.start("eu", "a"), world.start("us", "z"));
    let (_permits, served) = open(&node, 9);
    for _ in 0..3 {
        let answer = ask_to_join(&stranger, &node.as_peer()).await;
        assert_eq!(answer, Ok("test/us/z: may I?".to_owned()));
    }
    assert_eq!(served.load(Ordering::SeqCst), 3);
    assert_eq!(node.link.status().totals.strangers, 3);
    // The protocols of peers are refused to the stranger, and counted.
    let files = world.issue(&identity("us", "z"), &world.authority);
    for (count, kind) in Kind::ALL.into_iter().enumerate() {
        let client = RawClient::new();
        assert!(client.dial(&node, Some(&files), kind.protocol()).await.is_err(), "{kind}");
        until("it is counted", || node.refusals(HandshakeError::UnknownNode) > count as u64).await;
    }
    stranger.link.set_peers(vec![node.as_peer()]);
    until("it was refused as a peer", || node.refusals(HandshakeError::UnknownNode) > 3).await;
    assert!(!stranger.link.peers()[0].is_connected());
    assert!(node.no_more_datagrams().await && node.link.peers().is_empty());
    // The stranger may still ask, and a peer may too.
    assert!(ask_to_join(&stranger, &node.as_peer()).await.is_ok());
    node.link.set_peers(vec![stranger.as_peer()]);
    stranger.connected(&node).await;
    assert!(ask_to_join(&stranger, &node.as_peer()).await.is_ok());
}

#[tokio::test]
async fn without_a_gate_strangers_are_refused_in_the_handshake() {
    let world = World::new();
    let (node, stranger) = (world.start("eu", "a"), world.start("us", "z"));
    let refused = ask_to_join(&stranger, &node.as_peer()).await.unwrap_err();
    let JoinError::Certificate(why) = refused else { panic!("{refused}") };
    assert!(why.contains("admits no new nodes"), "{why}");
    until("it is counted", || node.refusals(HandshakeError::UnknownNode) == 1).await;
    open(&node, 9);
    assert!(ask_to_join(&stranger, &node.as_peer()).await.is_ok());
    node.link.serve_joins(None);
    assert!(ask_to_join(&stranger, &node.as_peer()).await.is_err());
}

#[tokio::test]
async fn who_is_not_of_the_cluster_never_reaches_the_gate() {
    let (world, elsewhere) = (World::new(), World::new());
    let node = world.start("eu", "a");
    let (_permits, served) = open(&node, 9);
    // Another CA: neither node trusts the other.
    let stranger = elsewhere.start("us", "z");
    let refused = ask_to_join(&stranger, &node.as_peer()).await.unwrap_err();
    assert!(matches!(&refused, JoinError::Certificate(why) if why.contains("CA")), "{refused}");
    // Another cluster's name under the same CA.
    let other = Identity::new("other", "us", "b").unwrap();
    let files = world.issue(&other, &world.authority);
    let client = RawClient::new();
    assert!(client.dial(&node, Some(&files), b"spillway-join/1").await.is_err());
    until("it is counted", || node.refusals(HandshakeError::OtherCluster) == 1).await;
    let files =
        world.issue_valid(&identity("us", "b"), &Authority::new("test", days(5)).unwrap(), days(5));
    assert!(RawClient::new().dial(&node, Some(&files), b"spillway-join/1").await.is_err());
    until("it is counted", || node.refusals(HandshakeError::WrongAuthority) >= 1).await;
    assert_eq!(served.load(Ordering::SeqCst), 0);
    // Another node answers than the expected one.
    let local = world.start("us", "z");
    let wrong = PeerConfig { identity: identity("eu", "b"), ..node.as_peer() };
    let refused = ask_to_join(&local, &wrong).await.unwrap_err();
    assert!(matches!(refused, JoinError::Certificate(_)), "{refused}");
}

#[tokio::test]
async fn only_a_few_strangers_are_served_at_a_time() {
    let world = World::new();
    let node = world.start("eu", "a");
    let strangers = ["v", "w", "x", "y", "z"].map(|name| Arc::new(world.start("us", name)));
    let (permits, served) = open(&node, 0);
    let ask_as = |at: usize| {
        let (stranger, peer) = (Arc::clone(&strangers[at]), node.as_peer());
        TaskTracker::new().spawn(async move { ask_to_join(&stranger, &peer).await })
    };
    let ask = || ask_as(4);
    let mut waiting = vec![ask_as(0), ask_as(0)];
    until("two are served", || served.load(Ordering::SeqCst) == 2).await;
    // The same certificate gets no third place.
    let refused = ask_as(0).await.unwrap().unwrap_err();
    assert!(matches!(&refused, JoinError::Closed(why) if why.contains("too many")), "{refused}");
    waiting.extend([1, 1, 2, 2, 3, 3].map(ask_as));
    until("eight are served", || served.load(Ordering::SeqCst) == 8).await;
    let refused = ask().await.unwrap().unwrap_err();
    assert!(matches!(&refused, JoinError::Closed(why) if why.contains("too many")), "{refused}");
    assert_eq!(node.refusals(HandshakeError::Busy), 2);
    permits.add_permits(9);
    for task in waiting {
        task.await.unwrap().unwrap();
    }
    let start = std::time::Instant::now();
    while ask().await.unwrap().is_err() {
        assert!(start.elapsed() < PATIENCE, "a place does not become free");
        // wait: until the earlier nodes have left
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Gate that sends nothing and reads nothing.
struct Mute;

impl JoinHandler for Mute {
    fn asked_to_join(&self, _from: Identity, streams: (StreamSender, StreamReceiver)) -> Served {
        Box::pin(async move {
            std::future::pending::<()>().await;
            drop(streams);
        })
    }
}

#[tokio::test]
async fn a_stranger_has_one_stream_and_a_little_room() {
    let world = World::new();
    let node = world.start("eu", "a");
    node.link.serve_joins(Some(Arc::new(Mute)));
    let files = world.issue(&identity("us", "z"), &world.authority);
    let client = RawClient::new();
    let connection = client.connection(&node, &files, b"spillway-join/1").await;
    let (mut sender, _receiver) = connection.open_bi().await.unwrap();
    sender.write_all(&[0; 4 << 10]).await.unwrap();
    until("it is served", || node.link.status().totals.strangers == 1).await;
    // A hello takes one stream.
    let _hello = connection.open_uni().await.unwrap();
    // wait: no event shows that nothing more is read; a second is many round trips.
    let a_while = Duration::from_secs(1);
    let (second, one_way, much) = tokio::join!(
        tokio::time::timeout(a_while, connection.open_bi()),
        tokio::time::timeout(a_while, connection.open_uni()),
        tokio::time::timeout(a_while, sender.write_all(&[0; 128 << 10])),
    );
    assert!(second.is_err() && one_way.is_err(), "more streams");
    assert!(much.is_err(), "it is read into memory");
}

#[tokio::test]
async fn a_stranger_that_asks_nothing_or_does_not_leave_is_shown_out() {
    let world = World::new();
    let node = world.start("eu", "a");
    let (_permits, served) = open(&node, 9);
    let files = world.issue(&identity("us", "z"), &world.authority);
    let client = RawClient::new();
    let mute = client.connection(&node, &files, b"spillway-join/1").await;
    let stays = client.connection(&node, &files, b"spillway-join/1").await;
    let (mut sender, _receiver) = stays.open_bi().await.unwrap();
    sender.write_all(&spillway_codec::encode(&Word("?".to_owned())).unwrap()).await.unwrap();
    until("it is answered", || served.load(Ordering::SeqCst) == 1).await;
    // A joining node may stay for 15 s in all.
    let limit = Duration::from_secs(12);
    tokio::time::timeout(limit, mute.closed()).await.expect("who asks nothing has to go");
    tokio::time::timeout(limit, stays.closed()).await.expect("who was answered has to go");
}
