//! Peers and strangers that break the rules. None of them may harm another peer.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, Empty, Full};
use quinn::{Connection, ReadError, VarInt};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use super::raw::RawClient;
use super::relay::Relay;
use super::world::{PATIENCE, TestNode, World, accept, identity, pattern, until};
use crate::{
    BodyError, ForwardAnswer, ForwardHead, HandshakeError, Kind, PeerConfig, PeerRoom, PieceError,
};

const MALFORMED: u32 = 0x14;

/// Node, with a raw peer `us/b` that has a valid certificate.
struct Adverse {
    node: TestNode,
    client: RawClient,
    connection: Connection,
    _world: World,
}

impl Adverse {
    async fn new(kind: Kind) -> Self {
        Self::with_head_wait(kind, PATIENCE).await
    }

    /// Starts a node that waits so long for the head of a request.
    async fn with_head_wait(kind: Kind, head_wait: Duration) -> Self {
        let world = World::new();
        let mut config = world.config("eu", "a");
        config.limits.head_wait_ms = head_wait.as_millis().try_into().unwrap();
        let node = TestNode::start(config);
        let me = identity("us", "b");
        let address = "127.0.0.1:9".to_owned();
        node.link.set_peers(vec![PeerConfig { identity: me.clone(), address, rtt_ms: None }]);
        let client = RawClient::new();
        let connection = client.connect(&node, &world.issue(&me, &world.authority), kind).await;
        Self { node, client, connection, _world: world }
    }

    /// Sends `bytes` as a request and ends the stream, or leaves it open. Returns the codes with
    /// which the node gives up, for the half that it reads and for the half that it would write.
    async fn rejected(&self, bytes: &[u8], end: bool) -> (VarInt, VarInt) {
        let (mut send, mut recv) = self.connection.open_bi().await.unwrap();
        // The node may give up before it has read all bytes.
        drop(send.write_all(bytes).await);
        if end {
            let _ = send.finish();
        }
        let reading = tokio::time::timeout(Duration::from_secs(5), recv.read_to_end(1_000));
        let error = reading.await.expect("an end").unwrap_err();
        let quinn::ReadToEndError::Read(ReadError::Reset(reset)) = error else {
            panic!("{error:?}")
        };
        let stopped = if end { VarInt::from_u32(MALFORMED) } else { stop_code(&send).await };
        (reset, stopped)
    }

    /// Checks that a valid request on the same connection is still answered.
    async fn still_serves(&self) {
        let (mut send, mut recv) = self.connection.open_bi().await.unwrap();
        send.write_all(&head_frame()).await.unwrap();
        send.finish().unwrap();
        let answer = recv.read_to_end(10_000).await.unwrap();
        assert!(answer.len() > 20, "word, head, end");
    }
}

async fn stop_code(send: &quinn::SendStream) -> VarInt {
    let stopped = tokio::time::timeout(Duration::from_secs(5), send.stopped());
    stopped.await.expect("a stop").unwrap().expect("a code")
}

/// Returns the frame of a head without a body, as a link sends it.
fn head_frame() -> Bytes {
    let head = ForwardHead::new(Method::GET, "/".parse().unwrap());
    crate::forward::head_frame_for_tests(head)
}

/// Returns the frame of a head with a body that follows, with its length in bytes if known.
fn head_frame_with_body(bytes: Option<u64>) -> Bytes {
    let mut head = ForwardHead::new(Method::GET, "/".parse().unwrap());
    head.body = crate::BodyPlan::Follows(bytes);
    crate::forward::head_frame_for_tests(head)
}

fn malformed() -> (VarInt, VarInt) {
    (VarInt::from_u32(MALFORMED), VarInt::from_u32(MALFORMED))
}

#[tokio::test]
async fn a_frame_that_is_cut_off_is_rejected() {
    let adverse = Adverse::new(Kind::Data).await;
    let frame = head_frame();
    for length in [0, 1, 13, 14, 15, frame.len() - 1] {
        assert_eq!(adverse.rejected(&frame[..length], true).await, malformed(), "{length}");
    }
    assert_eq!(adverse.node.link.status().totals.malformed, 6);
    adverse.still_serves().await;
}

#[tokio::test]
async fn a_frame_that_claims_too_much_is_rejected_before_it_comes() {
    let adverse = Adverse::new(Kind::Data).await;
    let mut frame = head_frame().to_vec();
    frame[6..10].copy_from_slice(&u32::MAX.to_le_bytes());
    let begin = Instant::now();
    // Only the header is sent, and the stream stays open.
    assert_eq!(adverse.rejected(&frame[..14], false).await, malformed());
    assert!(begin.elapsed() < PATIENCE / 2, "it waited for more");
    adverse.still_serves().await;
}

#[tokio::test]
async fn a_changed_frame_is_rejected() {
    let adverse = Adverse::new(Kind::Data).await;
    let frame = head_frame();
    for at in 0..frame.len() {
        let mut changed = frame.to_vec();
        changed[at] ^= 0x10;
        // A changed length may exceed the rest, which the node waits for, so the stream must end.
        assert_eq!(adverse.rejected(&changed, true).await, malformed(), "byte {at}");
    }
    adverse.still_serves().await;
}

#[tokio::test]
async fn random_bytes_are_rejected() {
    let adverse = Adverse::new(Kind::Data).await;
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..random.usize(0..300)).map(|_| random.u8(..)).collect();
        assert_eq!(adverse.rejected(&bytes, true).await, malformed());
    }
    adverse.still_serves().await;
}

#[tokio::test]
async fn a_head_that_does_not_come_is_not_waited_for_for_ever() {
    let wait = Duration::from_millis(400);
    let adverse = Adverse::with_head_wait(Kind::Data, wait).await;
    let begin = Instant::now();
    let (mut send, mut recv) = adverse.connection.open_bi().await.unwrap();
    send.write_all(&head_frame()[..10]).await.unwrap();
    let error = recv.read_to_end(100).await.unwrap_err();
    assert!(begin.elapsed() >= wait);
    assert_eq!(error, quinn::ReadToEndError::Read(ReadError::Reset(VarInt::from_u32(MALFORMED))));
    assert_eq!(stop_code(&send).await, VarInt::from_u32(MALFORMED));
}

/// Returns what a handler finds in the body of a request whose stream goes on with `bytes`.
async fn body_fault(adverse: &Adverse, announced: Option<u64>, bytes: &[u8]) -> BodyError {
    let (fault, mut faults) = mpsc::channel(1);
    adverse.node.react(move |_, body| {
        let fault = fault.clone();
        accept(async move {
            let found = body.collect().await.expect_err("a fault");
            fault.send(found).await.unwrap();
            Err("the body is bad".into())
        })
    });
    let (mut send, _recv) = adverse.connection.open_bi().await.unwrap();
    send.write_all(&[&head_frame_with_body(announced), bytes].concat()).await.unwrap();
    send.finish().unwrap();
    tokio::time::timeout(Duration::from_secs(5), faults.recv()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_body_against_the_rules_is_an_error_and_not_an_end() {
    let adverse = Adverse::new(Kind::Data).await;
    let data = |bytes: &[u8]| [&[1][..], &(bytes.len() as u32).to_le_bytes(), bytes].concat();
    let end = [3, 0, 0, 0, 0];

    let fault = body_fault(&adverse, None, b"").await;
    assert!(matches!(fault, BodyError::Malformed(PieceError::CutOff)), "{fault:?}");
    let fault = body_fault(&adverse, None, &data(b"half")).await;
    assert!(matches!(fault, BodyError::Malformed(PieceError::CutOff)), "{fault:?}");
    let fault = body_fault(&adverse, None, &[9, 0, 0, 0, 0]).await;
    assert!(matches!(fault, BodyError::Malformed(PieceError::Kind(9))), "{fault:?}");
    let fault = body_fault(&adverse, Some(3), &[data(b"four"), end.to_vec()].concat()).await;
    assert!(matches!(fault, BodyError::Length), "{fault:?}");
    let fault = body_fault(&adverse, Some(5), &[data(b"four"), end.to_vec()].concat()).await;
    assert!(matches!(fault, BodyError::Length), "{fault:?}");
    adverse.node.react(|head, body| accept(super::world::echo(head, body)));
    adverse.still_serves().await;
}

#[tokio::test]
async fn a_stream_that_nobody_serves_is_refused_and_harms_no_connection() {
    for kind in Kind::ALL {
        let adverse = Adverse::new(kind).await;
        for _ in 0..10 {
            let mut send = match kind {
                Kind::Control => adverse.connection.open_bi().await.unwrap().0,
                Kind::Data => adverse.connection.open_uni().await.unwrap(),
            };
            drop(send.write_all(b"x").await);
            let stopped = tokio::time::timeout(Duration::from_secs(5), send.stopped()).await;
            assert_eq!(stopped.unwrap().unwrap(), Some(VarInt::from_u32(0x10)));
        }
        assert!(adverse.connection.close_reason().is_none());
    }
}

#[tokio::test]
async fn a_peer_that_dials_again_and_again_keeps_few_connections() {
    let adverse = Adverse::new(Kind::Data).await;
    let files = adverse._world.issue(&identity("us", "b"), &adverse._world.authority);
    let mut connections = Vec::new();
    for _ in 0..30 {
        let dialled = adverse.client.dial(&adverse.node, Some(&files), b"spillway-data/1").await;
        connections.extend(dialled);
    }
    until("all but a few are closed", || {
        let open = connections.iter().filter(|one| one.close_reason().is_none()).count();
        open <= 4
    })
    .await;
    // The newest connection is the one in use.
    let last = connections.last().unwrap();
    assert!(last.close_reason().is_none());
}

#[tokio::test]
async fn garbage_on_the_port_harms_nobody() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..5_000 {
        let mut bytes = vec![0; random.usize(0..1_400)];
        random.fill(&mut bytes);
        if let Some(first) = bytes.first_mut()
            && round % 2 == 0
        {
            // First bits of a packet that begins a connection.
            *first |= 0xc0;
        }
        socket.send_to(&bytes, b.address()).await.unwrap();
        if round % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let head = ForwardHead::new(Method::POST, "/".parse().unwrap());
    let answer =
        a.link.forward(b.node(), head, Full::new(pattern(50_000)), PeerRoom::Unknown).await;
    let ForwardAnswer::Reply(reply) = answer.unwrap() else { panic!("refused") };
    assert_eq!(reply.into_body().collect().await.unwrap().to_bytes(), pattern(50_000));
    assert!(b.no_more_datagrams().await);
    assert_eq!(b.link.status().totals.received, 1);
}

#[tokio::test]
async fn what_somebody_recorded_and_sends_again_does_nothing() {
    let world = World::new();
    let (a, b) = (world.start("eu", "a"), world.start("us", "b"));
    let relay = Relay::start(b.address()).await;
    let mut through = b.as_peer();
    through.address = relay.address.to_string();
    a.link.set_peers(vec![through]);
    // No node answers at that address: only `a` dials.
    let mut deaf = a.as_peer();
    deaf.address = "127.0.0.1:9".to_owned();
    b.link.set_peers(vec![deaf]);
    a.connected(&b).await;
    for number in 0..20_u8 {
        a.link.send_datagram(b.node(), Bytes::copy_from_slice(&[number])).unwrap();
        assert_eq!(b.next_datagram().await.1[..], [number]);
    }
    let head = ForwardHead::new(Method::GET, "/".parse().unwrap());
    a.link.forward(b.node(), head, Empty::new(), PeerRoom::Unknown).await.unwrap();
    let recorded = relay.passed();
    assert!(recorded.len() > 25);
    let before = b.link.status().totals;
    let thief = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for _ in 0..3 {
        for packet in &recorded {
            thief.send_to(packet, b.address()).await.unwrap();
        }
    }
    // A datagram sent after the repetitions has overtaken none of them.
    a.link.send_datagram(b.node(), Bytes::from_static(b"last")).unwrap();
    assert_eq!(b.next_datagram().await.1, "last");
    assert!(b.no_more_datagrams().await);
    let after = b.link.status().totals;
    assert_eq!(after.received, before.received);
    assert_eq!(after.datagrams_received, before.datagrams_received + 1);
    assert_eq!(b.refusals(HandshakeError::UnknownNode), 0);
    assert!(a.link.peers()[0].is_connected());
}
