//! Which nodes may connect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use rustls::pki_types::CertificateDer;
use spillway_types::{NodeName, RegionName};

use super::refusal::Refusal;
use super::verifier::serial_of;
use crate::identity::Identity;

/// The nodes that may connect, each with its region. Read by handshakes without a lock.
#[derive(Debug)]
pub(crate) struct Members {
    cluster: Box<str>,
    regions: ArcSwap<BTreeMap<NodeName, RegionName>>,
    /// Whether nodes of the cluster that are no members may knock.
    is_open: AtomicBool,
    /// Members that were removed and are needed for a moment to go on without them: they take part
    /// in the log and in nothing else.
    leaving: ArcSwap<BTreeSet<NodeName>>,
    /// Serial numbers of certificates that nobody accepts, as [`serial_of`] writes them.
    revoked: ArcSwap<BTreeSet<String>>,
}

impl Members {
    /// No members yet of the cluster `cluster`.
    pub(crate) fn new(cluster: &str) -> Self {
        Self {
            cluster: cluster.into(),
            regions: ArcSwap::default(),
            is_open: AtomicBool::new(false),
            leaving: ArcSwap::default(),
            revoked: ArcSwap::default(),
        }
    }

    /// From now on these take part in nothing but the log.
    pub(crate) fn set_leaving(&self, leaving: BTreeSet<NodeName>) {
        self.leaving.store(leaving.into());
    }

    /// Whether a peer takes part in nothing but the log.
    pub(crate) fn is_leaving(&self, node: &NodeName) -> bool {
        self.leaving.load().contains(node)
    }

    /// From now on these certificates are refused; says whether that is anything new.
    pub(crate) fn set_revoked(&self, revoked: BTreeSet<String>) -> bool {
        let is_new = **self.revoked.load() != revoked;
        if is_new {
            self.revoked.store(revoked.into());
        }
        is_new
    }

    /// Whether a certificate may be used. One whose serial number can't be read may not.
    pub(crate) fn check_certificate(
        &self,
        certificate: &CertificateDer<'_>,
    ) -> Result<(), Refusal> {
        let serial = serial_of(certificate).ok_or(Refusal::BadCertificate)?;
        if self.revoked.load().contains(&serial) { Err(Refusal::Revoked) } else { Ok(()) }
    }

    /// From now on these may connect and no others.
    pub(crate) fn set<'a>(&self, members: impl Iterator<Item = &'a Identity>) {
        let regions = members
            .map(|identity| (identity.node().clone(), identity.region().clone()))
            .collect::<BTreeMap<_, _>>();
        self.regions.store(regions.into());
    }

    /// From now on strangers may knock, or may not.
    pub(crate) fn open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Relaxed);
    }

    /// Whether a connection of `identity` is taken at all. While strangers may knock, what it
    /// speaks is not known yet, so the rest is decided by [`Self::admit`] when it is.
    pub(crate) fn greet(&self, identity: &Identity) -> Result<(), Refusal> {
        match self.admit(identity) {
            Err(Refusal::UnknownNode | Refusal::WrongRegion)
                if self.is_open.load(Ordering::Relaxed) =>
            {
                Ok(())
            }
            verdict => verdict,
        }
    }

    /// Whether `identity` is the node that the config has under that name.
    pub(crate) fn admit(&self, identity: &Identity) -> Result<(), Refusal> {
        if identity.cluster() != &*self.cluster {
            return Err(Refusal::OtherCluster);
        }
        match self.regions.load().get(identity.node()) {
            None => Err(Refusal::UnknownNode),
            Some(region) if region != identity.region() => Err(Refusal::WrongRegion),
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
        assert_eq!(members.admit(&known), Err(Refusal::UnknownNode));
        members.set([known.clone()].iter());
        assert_eq!(members.admit(&known), Ok(()));
        assert_eq!(members.admit(&identity("prod", "us", "a")), Err(Refusal::WrongRegion));
        assert_eq!(members.admit(&identity("prod", "eu", "b")), Err(Refusal::UnknownNode));
        assert_eq!(members.admit(&identity("test", "eu", "a")), Err(Refusal::OtherCluster));
    }

    #[test]
    fn strangers_of_the_cluster_are_greeted_while_the_gate_is_open_and_never_admitted() {
        let members = Members::new("prod");
        members.set([identity("prod", "eu", "a")].iter());
        let (stranger, moved) = (identity("prod", "eu", "b"), identity("prod", "us", "a"));
        assert_eq!(members.greet(&stranger), Err(Refusal::UnknownNode));
        members.open(true);
        for unknown in [&stranger, &moved] {
            assert_eq!(members.greet(unknown), Ok(()));
            assert!(members.admit(unknown).is_err());
        }
        assert_eq!(members.greet(&identity("test", "eu", "a")), Err(Refusal::OtherCluster));
        members.open(false);
        assert_eq!(members.greet(&moved), Err(Refusal::WrongRegion));
    }
}
