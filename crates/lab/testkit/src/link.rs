//! Links between nodes on loopback.

use bytes::Bytes;
use spillway_link::{
    Deciding, ForwardBody, ForwardHead, Handler, Identity, Link, PeerConfig, Refused, RefusedReason,
};

/// A [`Handler`] that drops datagrams and refuses every forwarded request: no replica is free.
#[derive(Clone, Copy, Debug, Default)]
pub struct RefuseAll;

impl Handler for RefuseAll {
    fn datagram(&self, _from: &Identity, _datagram: Bytes) {}

    fn forwarded(&self, _from: &Identity, _head: ForwardHead, _body: ForwardBody) -> Deciding {
        Box::pin(async { Err(Refused { reason: RefusedReason::NoReplica, wait_ms: None }) })
    }
}

/// Returns the entry by which other nodes find a running link of loopback.
///
/// # Panics
/// If the link does not listen any more.
#[must_use]
pub fn as_peer(identity: &Identity, link: &Link) -> PeerConfig {
    let address = link.local_address().expect("a link that listens").to_string();
    PeerConfig { identity: identity.clone(), address, rtt_ms: Some(5) }
}

/// Makes each of these links know all of them. A link takes no notice of itself in the list.
///
/// # Panics
/// If one of the links does not listen any more.
pub fn introduce(links: &[(Identity, &Link)]) {
    let peers: Vec<PeerConfig> =
        links.iter().map(|(identity, link)| as_peer(identity, link)).collect();
    for (_, link) in links {
        link.set_peers(peers.clone());
    }
}
