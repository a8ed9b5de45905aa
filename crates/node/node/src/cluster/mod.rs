//! This node's part in a cluster: gossip, the link to other nodes, and requests from them.
//!
//! One task, the driver, feeds the pure gossip machine of `gossip` and turns its state into the
//! [`Regions`](spillway_view::Regions) by which requests are routed. The data path
//! itself asks no other node: it reads that state, and forwards over open connections.

mod driver;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod guest_notes;
mod guests;
mod homes;
mod names;
pub(crate) mod node_facts;
mod others;
mod own;
mod region_circuit_breakers;
mod remote;
mod residency;
mod residency_refusals;
mod siblings;
mod watched;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use spillway_config::{ClusterConfig, SpillConfig};
use spillway_dns::NameServerState;
use spillway_link::certs::PrefixKey;
use spillway_link::{
    CertificateFiles, Identity, Link, LinkConfig, LinkStartError, NameError, PeerConfig,
};
use tokio::sync::mpsc;

pub use spillway_link::delayed;

use crate::agreed::ClusterMember;
use crate::cluster::driver::{Driver, Gossip};
use crate::cluster::guests::Guests;
pub(crate) use crate::cluster::guests::{AnswerPeers, PeerService};
use crate::cluster::homes::{Exchange, KnownHomes};
pub(crate) use crate::cluster::node_facts::{NodeAnswer, NodeFacts, ask_node};
use crate::cluster::remote::Links;
use crate::cluster::residency_refusals::ResidencyRefusals;
pub(crate) use crate::cluster::watched::Watched;
use crate::data_path::DataPath;

/// Capacity of the driver's queue of datagrams: as many as 500 nodes send within a tenth of a
/// second.
const DATAGRAMS_MAX: usize = 8_192;
/// File in the data folder with the revocation lists that other nodes sent.
const REVOKED_HEARD: &str = "revoked-heard";
/// Longest time that a control connection stays up without a sign of life, in ms.
const CONTROL_IDLE_MS_MAX: u32 = 60_000;

/// The cluster could not be joined.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A name is not valid in a certificate.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Certificates or the UDP port can't be used.
    #[error("can't open the link to other nodes: {0}")]
    Link(#[from] LinkStartError),
    /// The key that all nodes hash with can't be read.
    #[error("can't read the prefix key {path}: {why}")]
    PrefixKey {
        /// Path of the file.
        path: String,
        /// Reason in words.
        why: String,
    },
}

/// Handle of the link to the other nodes.
#[derive(Debug)]
pub(crate) struct Cluster {
    link: Arc<Link>,
    gossip: Arc<Gossip>,
}

impl Cluster {
    /// Opens the port for other nodes and starts the link and the driver, which also publishes the
    /// state of regions to the name server `dns`.
    ///
    /// # Errors
    /// Returns an error if certificates or the port can't be used.
    pub(crate) fn start(
        member: &ClusterMember,
        data_path: &DataPath,
        service: PeerService,
        spill: SpillConfig,
        dns: Option<Arc<NameServerState>>,
    ) -> Result<Self, ClusterError> {
        let gateway = &data_path.gateway;
        let (sender, datagrams) = mpsc::channel(DATAGRAMS_MAX);
        let homes = KnownHomes::new(gateway, member.name.clone(), member.region.clone());
        let guests = Guests {
            homes: homes.clone(),
            switches: Arc::clone(&gateway.switches),
            datagrams: sender,
            region: member.region.clone(),
            knowledge: Arc::clone(&data_path.knowledge),
            residency_refusals: ResidencyRefusals::default(),
            service,
        };
        let link = Arc::new(Link::start(link_config(member)?, Arc::new(guests))?);
        // The config's peers, until the agreed state names others.
        link.set_peers(peers(&member.config)?);
        gateway.routing.connect(Arc::new(Links::new(&link, gateway.routing.seed)));
        gateway.homes.outbox.open();
        let driver = Driver::new(member, data_path, spill, &link, datagrams);
        let mut driver = driver.publishing_to(dns);
        driver.begin();
        let gossip = Arc::clone(driver.gossip());
        let tasks = &member.tasks;
        tasks.spawn_vital("cluster", driver.run(tasks.stop.clone()));
        let exchange = Exchange::new(homes, &link, tasks, member.config.data.clone());
        tasks.spawn_vital("homes", exchange.run());
        Ok(Self { link, gossip })
    }

    /// Returns the sources of the cluster's figures.
    pub(crate) fn watched(&self) -> Watched {
        Watched { link: Arc::downgrade(&self.link), gossip: Arc::clone(&self.gossip) }
    }

    /// Returns the UDP address for other nodes.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.link.local_address()
    }

    /// Returns the link.
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Waits until all requests that peers forwarded are answered, at most for `limit`.
    pub(crate) async fn finish_guests(&self, limit: Duration) {
        drop(tokio::time::timeout(limit, self.link.idle()).await);
    }

    /// Tells the peers that this node ends, after their forwarded requests are answered or `limit`
    /// is over.
    pub(crate) async fn shutdown(&self, limit: Duration) {
        self.link.shutdown(limit).await;
    }
}

fn link_config(member: &ClusterMember) -> Result<LinkConfig, ClusterError> {
    let config = &member.config;
    let identity = Identity::new(&config.id, member.region.as_str(), member.name.as_str())?;
    let files = CertificateFiles {
        authority: config.ca.clone(),
        certificate: config.certificate.clone(),
        key: config.key.clone(),
    };
    let mut link = LinkConfig::new(identity, config.address, files);
    link.paths.clone_from(&config.paths);
    link.resolver = member.resolver.clone();
    link.revoked.clone_from(&config.revoked);
    link.revoked_heard = config.data.as_ref().map(|folder| folder.join(REVOKED_HEARD));
    link.limits.word_wait_ms = word_wait_ms(config.silence);
    // A node that may be silent for longer keeps its connection for as long.
    let silence_ms = u32::try_from(config.silence.as_millis()).unwrap_or(u32::MAX);
    let idle_ms = &mut link.transport.control_idle_ms;
    *idle_ms = silence_ms.saturating_mul(3).clamp(*idle_ms, CONTROL_IDLE_MS_MAX);
    link.watch = member.tasks.watch.clone();
    Ok(link)
}

/// Reads the key that all nodes of the cluster hash with.
///
/// # Errors
/// Returns an error if the file does not hold one.
pub(crate) fn prefix_key(config: &ClusterConfig) -> Result<[u64; 4], ClusterError> {
    let fault = |why: String| {
        let path = config.prefix_key.display().to_string();
        ClusterError::PrefixKey { path, why }
    };
    let text = std::fs::read_to_string(&config.prefix_key).map_err(|e| fault(e.to_string()))?;
    let key = PrefixKey::from_hex(&text).map_err(|e| fault(e.to_string()))?;
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(key.bytes().as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    Ok(words)
}

/// Returns the time limit for a peer's decision to accept or refuse a request, in ms. A peer
/// decides at once, so the limit covers the round trip and lost packets: twice the time that a peer
/// may be silent. A longer limit makes requests wait longer that were sent to a region just before
/// it was known to be lost.
fn word_wait_ms(silence: Duration) -> u32 {
    u32::try_from(silence.as_millis()).unwrap_or(u32::MAX).saturating_mul(2)
}

fn peers(config: &ClusterConfig) -> Result<Vec<PeerConfig>, NameError> {
    let peer = |peer: &spillway_config::PeerConfig| {
        let region = config.regions.iter().find(|region| region.name == peer.region);
        let rtt = region.and_then(|region| region.rtt);
        Ok(PeerConfig {
            identity: Identity::new(&config.id, peer.region.as_str(), peer.name.as_str())?,
            address: peer.address.to_string(),
            rtt_ms: rtt.map(|rtt| u32::try_from(rtt.as_millis()).unwrap_or(u32::MAX)),
        })
    };
    config.peers.iter().map(peer).collect()
}
