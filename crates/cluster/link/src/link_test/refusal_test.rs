//! Refused connections, and their counters by reason.

use std::time::{Duration, SystemTime};

use super::raw::{RawClient, RawServer};
use super::world::{TestNode, World, days, identity, until};
use crate::certs::{Authority, Validity};
use crate::{CertificateFiles, ForwardHead, HandshakeError, Identity, Kind, PeerConfig, PeerRoom};

/// Node that knows `us/b`, with the certificates that a dialler shows.
async fn check_dialler(
    world: &World,
    files: Option<&CertificateFiles>,
    protocol: &[u8],
    expected: HandshakeError,
) {
    let node = world.start("eu", "a");
    let peer = PeerConfig {
        identity: identity("us", "b"),
        // No node answers at that address: only the dialler's own connection can count.
        address: "127.0.0.1:9".to_owned(),
        rtt_ms: None,
    };
    node.link.set_peers(vec![peer]);
    let client = RawClient::new();
    let outcome = client.dial(&node, files, protocol).await;
    assert!(outcome.is_err(), "{expected:?}: let in");
    until("it is counted", || node.refusals(expected) == 1).await;
    for (reason, count) in node.link.status().refusals {
        assert_eq!(count, u64::from(reason == expected), "{reason:?} for {expected:?}");
    }
    assert!(!node.link.peers()[0].is_connected());
    assert!(node.no_more_datagrams().await);
}

fn data() -> &'static [u8] {
    Kind::Data.protocol()
}

#[tokio::test]
async fn a_dialler_of_another_authority_is_refused() {
    let world = World::new();
    let other = Authority::new("test", days(5)).unwrap();
    let files = world.issue(&identity("us", "b"), &other);
    check_dialler(&world, Some(&files), data(), HandshakeError::WrongAuthority).await;
}

#[tokio::test]
async fn a_dialler_whose_certificate_has_expired_is_refused() {
    let world = World::new();
    let long_ago = SystemTime::now() - Duration::from_secs(3 * 86_400);
    let validity = Validity::days(long_ago, 1).unwrap();
    let files = world.issue_valid(&identity("us", "b"), &world.authority, validity);
    check_dialler(&world, Some(&files), data(), HandshakeError::Expired).await;
}

#[tokio::test]
async fn a_dialler_whose_certificate_is_of_tomorrow_is_refused() {
    let world = World::new();
    let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
    let validity = Validity::days(tomorrow, 1).unwrap();
    let files = world.issue_valid(&identity("us", "b"), &world.authority, validity);
    check_dialler(&world, Some(&files), data(), HandshakeError::NotYetValid).await;
}

#[tokio::test]
async fn a_dialler_of_another_cluster_is_refused_even_if_the_authority_is_the_same() {
    let world = World::new();
    let other = Identity::new("other", "us", "b").unwrap();
    let files = world.issue(&other, &world.authority);
    check_dialler(&world, Some(&files), data(), HandshakeError::OtherCluster).await;
}

#[tokio::test]
async fn a_dialler_that_is_not_configured_is_refused() {
    let world = World::new();
    let files = world.issue(&identity("us", "c"), &world.authority);
    check_dialler(&world, Some(&files), data(), HandshakeError::UnknownNode).await;
}

#[tokio::test]
async fn a_dialler_of_another_region_than_configured_is_refused() {
    let world = World::new();
    let files = world.issue(&identity("ap", "b"), &world.authority);
    check_dialler(&world, Some(&files), data(), HandshakeError::WrongRegion).await;
}

#[tokio::test]
async fn a_dialler_without_a_certificate_is_refused() {
    let world = World::new();
    check_dialler(&world, None, data(), HandshakeError::NoCertificate).await;
}

#[tokio::test]
async fn a_dialler_of_another_protocol_is_refused() {
    let world = World::new();
    let files = world.issue(&identity("us", "b"), &world.authority);
    check_dialler(&world, Some(&files), b"h3", HandshakeError::NoProtocol).await;
}

#[tokio::test]
async fn the_authority_itself_is_no_node() {
    let world = World::new();
    let files = CertificateFiles {
        authority: world.path().join("ca.pem"),
        certificate: world.path().join("ca.pem"),
        key: world.path().join("ca-key.pem"),
    };
    std::fs::write(&files.key, world.authority.key_pem()).unwrap();
    check_dialler(&world, Some(&files), data(), HandshakeError::BadCertificate).await;
}

#[tokio::test]
async fn a_valid_dialler_is_let_in() {
    let world = World::new();
    let node = world.start("eu", "a");
    let me = identity("us", "b");
    let address = "127.0.0.1:9".to_owned();
    node.link.set_peers(vec![PeerConfig { identity: me.clone(), address, rtt_ms: None }]);
    let files = world.issue(&me, &world.authority);
    let client = RawClient::new();
    for kind in Kind::ALL {
        client.dial(&node, Some(&files), kind.protocol()).await.unwrap();
    }
    assert!(node.link.status().refusals.iter().all(|(_, count)| *count == 0));
}

/// Starts a node that dials `us/b`, where a server answers with `files`.
async fn check_answer(world: &World, files: &CertificateFiles, expected: HandshakeError) {
    let server = RawServer::new(files);
    let node = world.start("eu", "a");
    let peer = PeerConfig {
        identity: identity("us", "b"),
        address: server.address().to_string(),
        rtt_ms: Some(2),
    };
    node.link.set_peers(vec![peer]);
    // One dial for each kind of connection.
    for _ in Kind::ALL {
        assert!(server.accept().await.is_err(), "{expected:?}: dialled");
    }
    until("it is counted", || node.refusals(expected) >= 1).await;
    until("it is known why", || {
        let peers = node.link.peers();
        peers[0].control_dials.last_fault.is_some() && peers[0].data_dials.last_fault.is_some()
    })
    .await;
    assert!(!node.link.peers()[0].is_connected());
    let head = ForwardHead::new(http::Method::GET, "/".parse().unwrap());
    let body = http_body_util::Empty::<bytes::Bytes>::new();
    let to = identity("us", "b");
    let forwarded = node.link.forward(to.node(), head, body, PeerRoom::Unknown).await;
    assert!(matches!(forwarded, Err(crate::ForwardError::NotConnected)), "{forwarded:?}");
}

#[tokio::test]
async fn an_answer_of_another_authority_is_refused() {
    let world = World::new();
    let other = Authority::new("test", days(5)).unwrap();
    let files = world.issue(&identity("us", "b"), &other);
    check_answer(&world, &files, HandshakeError::WrongAuthority).await;
}

#[tokio::test]
async fn an_answer_with_an_expired_certificate_is_refused() {
    let world = World::new();
    let long_ago = SystemTime::now() - Duration::from_secs(3 * 86_400);
    let validity = Validity::days(long_ago, 1).unwrap();
    let files = world.issue_valid(&identity("us", "b"), &world.authority, validity);
    check_answer(&world, &files, HandshakeError::Expired).await;
}

#[tokio::test]
async fn an_answer_of_another_cluster_is_refused_even_if_all_else_is_the_same() {
    let world = World::new();
    let other = Identity::new("other", "us", "b").unwrap();
    let files = world.issue(&other, &world.authority);
    check_answer(&world, &files, HandshakeError::OtherCluster).await;
}

#[tokio::test]
async fn an_answer_of_another_node_or_region_is_refused() {
    let world = World::new();
    let files = world.issue(&identity("us", "c"), &world.authority);
    check_answer(&world, &files, HandshakeError::WrongNode).await;
    let files = world.issue(&identity("ap", "b"), &world.authority);
    check_answer(&world, &files, HandshakeError::WrongRegion).await;
}

#[tokio::test]
async fn two_links_of_different_authorities_never_connect_and_both_say_why() {
    let (one, other) = (World::new(), World::new());
    let (a, b) = (one.start("eu", "a"), other.start("us", "b"));
    super::world::meet(&a, &b);
    until("both refuse", || {
        let refused = |node: &TestNode| node.refusals(HandshakeError::WrongAuthority) > 0;
        refused(&a) && refused(&b)
    })
    .await;
    assert!(!a.link.peers()[0].is_connected() && !b.link.peers()[0].is_connected());
}

#[tokio::test]
async fn a_peer_that_is_no_member_any_more_is_disconnected_and_refused() {
    let world = World::new();
    let (a, b) = world.pair().await;
    a.link.set_peers(Vec::new());
    until("it is disconnected", || !b.link.peers()[0].is_connected()).await;
    until("it is refused", || a.refusals(HandshakeError::UnknownNode) > 0).await;
    assert!(a.link.peers().is_empty());
    a.link.set_peers(vec![b.as_peer()]);
    b.connected(&a).await;
}
