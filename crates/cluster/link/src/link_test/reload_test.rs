//! Certificates that change while a link runs.

use std::time::{Instant, SystemTime};

use http::Method;
use http_body_util::{BodyExt, Empty};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::raw::RawClient;
use super::world::{TestNode, World, days, identity, meet, until};
use crate::certs::{Authority, Validity};
use crate::{ForwardAnswer, ForwardHead, Kind, PeerConfig, PeerRoom, ReloadError};

/// Returns the certificate that a node shows to a dialler.
async fn shown(world: &World, node: &TestNode) -> Vec<u8> {
    let me = identity("ap", "watcher");
    let files = world.issue(&me, &world.authority);
    let connection = RawClient::new().connect(node, &files, Kind::Control).await;
    let chain = connection.peer_identity().unwrap();
    let chain = chain.downcast::<Vec<CertificateDer<'static>>>().unwrap();
    chain[0].to_vec()
}

fn watcher() -> PeerConfig {
    let address = "127.0.0.1:9".to_owned();
    PeerConfig { identity: identity("ap", "watcher"), address, rtt_ms: None }
}

fn in_file(node: &TestNode, world: &World) -> Vec<u8> {
    let name = format!("{}.{}.pem", node.me.node(), node.me.region());
    CertificateDer::from_pem_file(world.path().join(name)).unwrap().to_vec()
}

#[tokio::test]
async fn new_connections_use_changed_certificates_and_old_ones_go_on() {
    let world = World::new();
    let (a, b) = world.pair().await;
    a.link.set_peers(vec![b.as_peer(), watcher()]);
    let old = in_file(&a, &world);
    assert_eq!(shown(&world, &a).await, old);
    assert!(!a.link.reload().await.unwrap(), "nothing has changed");
    world.issue(&a.me, &world.authority);
    assert_ne!(in_file(&a, &world), old);
    assert_eq!(shown(&world, &a).await, old, "not before it is told");
    assert!(a.link.reload().await.unwrap());
    assert_eq!(shown(&world, &a).await, in_file(&a, &world));
    assert!(b.link.peers()[0].is_connected());
    assert_eq!(a.link.peers()[0].data_dials.attempts, 1, "the old connection goes on");
    assert_eq!(a.link.status().totals.reloads, 1);
    // Connections that the node dials from now on show the new certificate too.
    b.link.set_peers(Vec::new());
    until("it is gone", || a.link.peers().iter().all(|peer| !peer.is_connected())).await;
    b.link.set_peers(vec![a.as_peer()]);
    b.connected(&a).await;
}

#[tokio::test]
async fn changed_files_are_noticed() {
    let world = World::new();
    let mut config = world.config("eu", "a");
    config.limits.certificates_check_ms = 20;
    let node = TestNode::start(config);
    let expires = node.link.status().certificate_expires_at.unwrap();
    let left = expires.duration_since(SystemTime::now()).unwrap();
    assert!((4 * 86_400..=5 * 86_400).contains(&left.as_secs()), "{left:?}");
    world.issue_valid(&node.me, &world.authority, days(9));
    until("the new one is in use", || {
        let expires = node.link.status().certificate_expires_at.unwrap();
        expires.duration_since(SystemTime::now()).unwrap().as_secs() > 8 * 86_400
    })
    .await;
    until("it is counted", || node.link.status().totals.reloads == 1).await;
}

#[tokio::test]
async fn files_that_can_not_be_used_change_nothing() {
    let world = World::new();
    let (a, b) = world.pair().await;
    a.link.set_peers(vec![b.as_peer(), watcher()]);
    let old = in_file(&a, &world);
    for wrong in [
        world.issue(&identity("eu", "z"), &world.authority).certificate,
        world.issue(&identity("eu", "y"), &Authority::new("test", days(3)).unwrap()).certificate,
        world.path().join("ca.pem"),
        world.path().join("b.us-key.pem"),
    ] {
        std::fs::copy(&wrong, world.path().join("a.eu.pem")).unwrap();
        let failed = a.link.reload().await;
        assert!(matches!(failed, Err(ReloadError::Certificates(_))), "{}", wrong.display());
        assert_eq!(shown(&world, &a).await, old);
    }
    std::fs::remove_file(world.path().join("a.eu.pem")).unwrap();
    assert!(a.link.reload().await.is_err());
    assert_eq!(a.link.status().totals.reloads_failed, 5);
    // Half of a file, as a tool leaves it that writes in place.
    world.issue(&a.me, &world.authority);
    let whole = std::fs::read(world.path().join("a.eu.pem")).unwrap();
    std::fs::write(world.path().join("a.eu.pem"), &whole[..whole.len() / 2]).unwrap();
    assert!(a.link.reload().await.unwrap_err().to_string().contains("a.eu.pem"));
    // A certificate that has expired.
    let past = SystemTime::now() - std::time::Duration::from_secs(10 * 86_400);
    world.issue_valid(&a.me, &world.authority, Validity::days(past, 1).unwrap());
    let ended = a.link.reload().await.unwrap_err().to_string();
    assert!(ended.contains("expired"), "{ended}");
    assert_eq!(shown(&world, &a).await, old);
    assert_eq!(a.link.status().totals.reloads_failed, 7);
    assert!(a.link.peers()[0].is_connected());
}

/// Rotation of the CA: first all nodes trust both CAs, then they get new certificates one by one.
#[tokio::test]
async fn an_authority_can_be_changed_without_an_interruption() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let begin = Instant::now();
    let next = Authority::new("test", days(20)).unwrap();
    let both = [world.authority.certificate_pem(), next.certificate_pem()].concat();
    std::fs::write(world.path().join("ca.pem"), both).unwrap();
    assert!(a.link.reload().await.unwrap() && b.link.reload().await.unwrap());
    world.issue(&a.me, &next);
    assert!(a.link.reload().await.unwrap());
    // One certificate of the new CA and one of the old: the nodes connect again in either
    // direction.
    a.link.set_peers(Vec::new());
    meet(&a, &b);
    until("it is noticed", || {
        b.link.peers()[0].data.is_some_and(|data| data.age < begin.elapsed())
    })
    .await;
    a.connected(&b).await;
    b.connected(&a).await;
    world.issue(&b.me, &next);
    std::fs::write(world.path().join("ca.pem"), next.certificate_pem()).unwrap();
    assert!(a.link.reload().await.unwrap() && b.link.reload().await.unwrap());
    a.link.set_peers(Vec::new());
    until("b notices", || !b.link.peers()[0].is_connected()).await;
    meet(&a, &b);
    a.connected(&b).await;
    b.connected(&a).await;
    let head = ForwardHead::new(Method::GET, "/".parse().unwrap());
    let answer = a.link.forward(b.node(), head, Empty::new(), PeerRoom::Unknown).await.unwrap();
    let ForwardAnswer::Reply(reply) = answer else { panic!("refused") };
    reply.into_body().collect().await.unwrap();
    let refused: u64 = a.link.status().refusals.iter().map(|(_, count)| count).sum();
    assert_eq!(refused, 0, "nobody was ever refused");
}

#[tokio::test]
async fn a_connection_that_is_made_now_shows_what_a_peer_uses_now_and_changes_nothing() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let limit = std::time::Duration::from_secs(20);
    let old = in_file(&b, &world);
    assert_eq!(a.link.shown_by(b.node(), limit).await.unwrap()[0].to_vec(), old);
    world.issue(&b.me, &world.authority);
    assert!(b.link.reload().await.unwrap());
    let new = a.link.shown_by(b.node(), limit).await.unwrap()[0].to_vec();
    assert_eq!(new, in_file(&b, &world));
    assert_ne!(new, old);
    assert_eq!(b.link.used_certificates().chain[0].to_vec(), new);
    assert!(a.link.used_certificates().since < b.link.used_certificates().since);
    // Neither side has counted the look as one of its own connections.
    assert_eq!(a.link.peers()[0].data_dials.attempts, 1, "the old connection goes on");
    assert!(b.link.peers()[0].is_connected());
    let refused: u64 = b.link.status().refusals.iter().map(|(_, count)| count).sum();
    assert_eq!(refused, 0);
    assert!(a.link.shown_by(&"nobody".into(), limit).await.is_err());
}

#[tokio::test]
async fn a_node_that_reads_between_the_two_files_of_a_renewal_keeps_its_old_pair() {
    let world = World::new();
    let (a, b) = world.pair().await;
    a.link.set_peers(vec![b.as_peer(), watcher()]);
    let file = world.path().join("a.eu.pem");
    let (shown_before, before) = (in_file(&a, &world), std::fs::read(&file).unwrap());
    world.issue(&a.me, &world.authority);
    let after = std::fs::read(&file).unwrap();
    // The new key is in its place, and the new certificate is not.
    std::fs::write(&file, before).unwrap();
    let between = a.link.reload().await.unwrap_err().to_string();
    assert!(between.contains("a.eu-key.pem"), "{between}");
    assert_eq!(shown(&world, &a).await, shown_before);
    std::fs::write(&file, after).unwrap();
    assert!(a.link.reload().await.unwrap());
    assert_eq!(shown(&world, &a).await, in_file(&a, &world));
}
