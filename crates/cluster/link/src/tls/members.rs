//! Members of the cluster: the nodes that may connect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use rustls::pki_types::CertificateDer;
use spillway_types::{NodeName, RegionName};

use super::refusal::HandshakeError;
use super::verifier::serial_of;
use crate::identity::Identity;

/// Nodes that may connect, each with its region. Handshakes read it without a lock.
#[derive(Debug)]
pub(crate) struct Members {
    cluster: Box<str>,
    regions: ArcSwap<BTreeMap<NodeName, RegionName>>,
    /// True if nodes of the cluster that are not members may ask to join.
    is_open: AtomicBool,
    /// Removed members that the log still needs for a moment: they take part in the log and in
    /// nothing else.
    leaving: ArcSwap<BTreeSet<NodeName>>,
    /// Serial numbers of revoked certificates, as [`serial_of`] writes them.
    revoked: ArcSwap<BTreeSet<String>>,
}

impl Members {
    /// Makes an empty list of members of the cluster `cluster`.
    pub(crate) fn new(cluster: &str) -> Self {
        Self {
            cluster: cluster.into(),
            regions: ArcSwap::default(),
            is_open: AtomicBool::new(false),
            leaving: ArcSwap::default(),
            revoked: ArcSwap::default(),
        }
    }

    /// Sets the nodes that take part in nothing but the log.
    pub(crate) fn set_leaving(&self, leaving: BTreeSet<NodeName>) {
        self.leaving.store(leaving.into());
    }

    /// Returns true if a peer takes part in nothing but the log.
    pub(crate) fn is_leaving(&self, node: &NodeName) -> bool {
        self.leaving.load().contains(node)
    }

    /// Sets the revoked certificates. Returns true if the list has changed.
    pub(crate) fn set_revoked(&self, revoked: BTreeSet<String>) -> bool {
        let is_new = **self.revoked.load() != revoked;
        if is_new {
            self.revoked.store(revoked.into());
        }
        is_new
    }

    /// Checks that a certificate is not revoked. A certificate without a readable serial number is
    /// refused.
    pub(crate) fn check_certificate(
        &self,
        certificate: &CertificateDer<'_>,
    ) -> Result<(), HandshakeError> {
        let serial = serial_of(certificate).ok_or(HandshakeError::BadCertificate)?;
        if self.revoked.load().contains(&serial) { Err(HandshakeError::Revoked) } else { Ok(()) }
    }

    /// Sets the members; no other node may connect.
    pub(crate) fn set<'a>(&self, members: impl Iterator<Item = &'a Identity>) {
        let regions = members
            .map(|identity| (identity.node().clone(), identity.region().clone()))
            .collect::<BTreeMap<_, _>>();
        self.regions.store(regions.into());
    }

    /// Lets nodes that are not members ask to join, or stops that.
    pub(crate) fn open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Relaxed);
    }

    /// Decides if a connection of `identity` is accepted during the handshake. While nodes may ask
    /// to join, the protocol is not known yet, so [`Self::admit`] decides the rest later.
    pub(crate) fn greet(&self, identity: &Identity) -> Result<(), HandshakeError> {
        match self.admit(identity) {
            Err(HandshakeError::UnknownNode | HandshakeError::WrongRegion)
                if self.is_open.load(Ordering::Relaxed) =>
            {
                Ok(())
            }
            verdict => verdict,
        }
    }

    /// Checks that `identity` is the member of that name, in this cluster and in its region.
    pub(crate) fn admit(&self, identity: &Identity) -> Result<(), HandshakeError> {
        if identity.cluster() != &*self.cluster {
            return Err(HandshakeError::OtherCluster);
        }
        match self.regions.load().get(identity.node()) {
            None => Err(HandshakeError::UnknownNode),
            Some(region) if region != identity.region() => Err(HandshakeError::WrongRegion),
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(cluster: &str, region: &str, node: &str) -> Identity {
        Identity::new(cluster, region, node).unwrap()
    }

    #[test]
    fn only_the_configured_node_in_its_region_is_admitted() {
        let members = Members::new("prod");
        let known = identity("prod", "eu", "a");
        assert_eq!(members.admit(&known), Err(HandshakeError::UnknownNode));
        members.set([known.clone()].iter());
        assert_eq!(members.admit(&known), Ok(()));
        assert_eq!(members.admit(&identity("prod", "us", "a")), Err(HandshakeError::WrongRegion));
        assert_eq!(members.admit(&identity("prod", "eu", "b")), Err(HandshakeError::UnknownNode));
        assert_eq!(members.admit(&identity("test", "eu", "a")), Err(HandshakeError::OtherCluster));
    }

    #[test]
    fn strangers_of_the_cluster_are_greeted_while_the_gate_is_open_and_never_admitted() {
        let members = Members::new("prod");
        members.set([identity("prod", "eu", "a")].iter());
        let (stranger, moved) = (identity("prod", "eu", "b"), identity("prod", "us", "a"));
        assert_eq!(members.greet(&stranger), Err(HandshakeError::UnknownNode));
        members.open(true);
        for unknown in [&stranger, &moved] {
            assert_eq!(members.greet(unknown), Ok(()));
            assert!(members.admit(unknown).is_err());
        }
        assert_eq!(members.greet(&identity("test", "eu", "a")), Err(HandshakeError::OtherCluster));
        members.open(false);
        assert_eq!(members.greet(&moved), Err(HandshakeError::WrongRegion));
    }
}
