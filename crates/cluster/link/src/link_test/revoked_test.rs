//! Certificates that were revoked, and peers that are leaving.

use std::collections::BTreeSet;
use std::time::SystemTime;

use bytes::Bytes;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;

use super::raw::RawServer;
use super::world::{TestNode, World, days, identity, meet, until};
use crate::certs::{Authority, RevocationError, serial_of_pem};
use crate::{DatagramError, ForwardHead, HandshakeError, PeerConfig, PeerRoom};

fn serial(world: &World, region: &str, node: &str) -> String {
    let files = crate::certs::NodeFiles::in_folder(world.path(), region, node);
    serial_of_pem(&std::fs::read(files.certificate).unwrap()).unwrap()
}

#[tokio::test]
async fn a_revoked_certificate_ends_its_connections_and_makes_no_new_ones() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let revoked = serial(&world, "us", "b");
    a.link.set_revoked([revoked].into());
    until("it is disconnected", || !b.link.peers()[0].is_connected()).await;
    // Either side may dial: both refuse to go on.
    until("new connections are refused", || a.refusals(HandshakeError::Revoked) > 2).await;
    assert!(!a.link.peers()[0].is_connected() && !b.link.peers()[0].is_connected());
    a.link.set_revoked(BTreeSet::new());
    a.connected(&b).await;
    // A new certificate of the same node has another number.
    a.link.set_revoked([serial(&world, "us", "b")].into());
    until("it is disconnected", || !b.link.peers()[0].is_connected()).await;
    world.issue(&b.me, &world.authority);
    b.link.reload().await.unwrap();
    a.connected(&b).await;
}

/// Returns a revocation list of `authority` in DER form.
fn list(authority: &Authority, serial: &str) -> Vec<u8> {
    let pem = authority.revoke(serial, SystemTime::now()).unwrap();
    CertificateRevocationListDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

#[tokio::test]
async fn a_list_of_the_authority_counts_at_once_whoever_sends_it() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let (serial, sender) = (serial(&world, "us", "b"), "any".into());
    let other = Authority::new("test", days(1)).unwrap();
    let forged = a.link.hear_revoked(&sender, &list(&other, &serial));
    assert_eq!(forged, Err(RevocationError::NotSigned));
    let signed = list(&world.authority, &serial);
    assert!(a.link.peers()[0].is_connected());
    assert_eq!(a.link.hear_revoked(b.me.node(), &signed), Ok(true));
    until("it is disconnected", || !b.link.peers()[0].is_connected()).await;
    until("new connections are refused", || a.refusals(HandshakeError::Revoked) > 2).await;
    assert_eq!(a.link.hear_revoked(&sender, &signed), Ok(false), "known");
    assert_eq!(a.link.revocation_lists(), [Bytes::from(signed.clone())]);
    assert_eq!(a.link.unrecorded_revocations(), [serial.clone()].into());
    // The cluster's records take its place.
    a.link.set_revoked([serial].into());
    assert!(a.link.revocation_lists().is_empty() && a.link.unrecorded_revocations().is_empty());
    assert!(!a.link.peers()[0].is_connected());
    a.link.set_revoked(BTreeSet::new());
    a.connected(&b).await;
}

#[tokio::test]
async fn the_file_of_revoked_certificates_is_read_again() {
    let world = World::new();
    let file = world.path().join("revoked.pem");
    let mut config = world.config("eu", "a");
    config.revoked = Some(file.clone());
    let (a, b) = (TestNode::start(config), world.start("us", "b"));
    meet(&a, &b);
    a.connected(&b).await;
    let revoke = |serial: &str| world.authority.revoke(serial, SystemTime::now()).unwrap();
    let revoked = revoke(&serial(&world, "us", "b"));
    std::fs::write(&file, &revoked).unwrap();
    a.link.reload().await.unwrap();
    until("it is disconnected", || !b.link.peers()[0].is_connected()).await;
    // Half a file takes nothing back.
    std::fs::write(&file, &revoked[..revoked.len() / 2]).unwrap();
    a.link.reload().await.unwrap();
    assert_eq!(a.link.unrecorded_revocations().len(), 1);
    std::fs::write(&file, [revoked, revoke("5c")].concat()).unwrap();
    a.link.reload().await.unwrap();
    assert_eq!(a.link.unrecorded_revocations().len(), 2);
    std::fs::remove_file(&file).unwrap();
    a.link.reload().await.unwrap();
    assert!(a.link.unrecorded_revocations().is_empty());
    a.connected(&b).await;
}

#[tokio::test]
async fn a_node_that_answers_with_a_revoked_certificate_is_refused() {
    let world = World::new();
    let node = world.start("eu", "a");
    let me = identity("us", "b");
    let server = RawServer::new(&world.issue(&me, &world.authority));
    node.link.set_revoked([serial(&world, "us", "b")].into());
    let address = server.address().to_string();
    node.link.set_peers(vec![PeerConfig { identity: me, address, rtt_ms: None }]);
    assert!(server.accept().await.is_err(), "the handshake went through");
    until("it is counted", || node.refusals(HandshakeError::Revoked) > 0).await;
}

#[tokio::test]
async fn a_serial_number_is_written_without_leading_zeros() {
    let world = World::new();
    for _ in 0..100 {
        world.issue(&identity("us", "b"), &world.authority);
        let serial = serial(&world, "us", "b");
        assert!(!serial.starts_with('0') && serial.len() > 8, "{serial}");
    }
}

#[tokio::test]
async fn a_revoked_certificate_may_not_even_knock() {
    let world = World::new();
    let (node, stranger) = (world.start("eu", "a"), world.start("us", "z"));
    node.link.set_revoked([serial(&world, "us", "z")].into());
    let files = crate::certs::NodeFiles::in_folder(world.path(), "us", "z");
    let files = crate::CertificateFiles {
        authority: world.path().join("ca.pem"),
        certificate: files.certificate,
        key: files.key,
    };
    let client = super::raw::RawClient::new();
    assert!(client.dial(&node, Some(&files), b"spillway-join/1").await.is_err());
    until("it is counted", || node.refusals(HandshakeError::Revoked) == 1).await;
    drop(stranger);
}

#[tokio::test]
async fn a_peer_that_leaves_is_neither_told_nor_heard() {
    let world = World::new();
    let (a, b) = world.pair().await;
    a.link.set_leaving([b.me.node().clone()].into());
    b.link.send_datagram(a.me.node(), Bytes::from_static(b"one")).unwrap();
    let received = || a.link.status().totals.datagrams_received;
    until("the first has come", || received() == 1).await;
    let told = a.link.send_datagram(b.me.node(), Bytes::from_static(b"three"));
    assert_eq!(told, Err(DatagramError::NotConnected));
    assert!(a.link.connected_in(b.me.region()).is_empty());
    let head = ForwardHead::new(http::Method::GET, "/".parse().unwrap());
    let body = http_body_util::Empty::<Bytes>::new();
    let asked = b.link.forward(a.me.node(), head, body, PeerRoom::Unknown).await;
    assert!(asked.is_err(), "a request of a peer that leaves is served");
    assert!(a.link.open_control(b.me.node()).is_ok(), "the log goes on");
    a.link.set_leaving(BTreeSet::new());
    b.link.send_datagram(a.me.node(), Bytes::from_static(b"two")).unwrap();
    assert_eq!(a.next_datagram().await.1, Bytes::from_static(b"two"), "the first was not heard");
}
