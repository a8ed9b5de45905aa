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
mod node_facts;
mod others;
mod own;
pub(crate) mod questions;
mod region_circuit_breakers;
mod remote;
mod residency;
mod residency_refusals;
mod siblings;
mod watched;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use spillway_config::{ClusterConfig, SpillConfig};
use spillway_dns::NameServerState;
use spillway_knowledge::KnowledgeHandle;
use spillway_link::certs::PrefixKey;
use spillway_link::{CertificateFiles, Identity, Link, LinkStartError, NameError, PeerConfig};
use spillway_proxy::Worker;
use spillway_request::gateway::Gateway;
use spillway_resolver::Resolver;
use spillway_types::unix_ms;
use tokio::sync::mpsc;

pub use spillway_link::delayed;

use crate::agreed::SharedRegionFacts;
use crate::cluster::driver::{Driver, Gossip};
use crate::cluster::guests::Guests;
use crate::cluster::homes::{Exchange, KnownHomes};
pub(crate) use crate::cluster::node_facts::{NodeAnswer, NodeFacts, ask_node};
use crate::cluster::remote::Links;
use crate::cluster::residency_refusals::ResidencyRefusals;
pub(crate) use crate::cluster::watched::Watched;
use crate::feedback::Feedback;
use crate::keeper::KeeperHandle;
use crate::node_tasks::NodeTasks;

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
}

/// Parts of the node that its cluster tasks work with.
#[derive(Debug)]
pub(crate) struct ClusterParts<'a> {
    pub(crate) config: ClusterConfig,
    /// Terms of regions.
    pub(crate) region_facts: Arc<SharedRegionFacts>,
    pub(crate) spill: SpillConfig,
    /// The name server, if there is one. It receives the state of regions.
    pub(crate) dns: Option<Arc<NameServerState>>,
    /// Name and region of this node.
    pub(crate) me: (&'a str, &'a str),
    pub(crate) gateway: Arc<Gateway>,
    /// Serves requests that other nodes forward.
    pub(crate) worker: Arc<Worker>,
    pub(crate) keeper: KeeperHandle,
    /// Looks the names of other nodes up.
    pub(crate) resolver: Resolver,
    /// Takes prompts that siblings report, and gives the speeds of the own region.
    pub(crate) knowledge: Arc<KnowledgeHandle>,
    pub(crate) feedback: &'a Arc<Feedback>,
    pub(crate) tasks: NodeTasks,
}

impl Cluster {
    /// Opens the port for other nodes and starts the link and the driver.
    ///
    /// # Errors
    /// Returns an error if certificates or the port can't be used.
    pub(crate) fn start(parts: ClusterParts<'_>) -> Result<Self, ClusterError> {
        let ClusterParts {
            config,
            region_facts,
            spill,
            dns,
            me,
            gateway,
            worker,
            keeper,
            resolver,
            knowledge,
            feedback,
            tasks,
        } = parts;
        let (node, region) = me;
        let identity = Identity::new(&config.id, region, node)?;
        let files = CertificateFiles {
            authority: config.ca.clone(),
            certificate: config.certificate.clone(),
            key: config.key.clone(),
        };
        let data = config.data.clone();
        let (sender, datagrams) = mpsc::channel(DATAGRAMS_MAX);
        let homes =
            KnownHomes { gateway: Arc::clone(&gateway), node: node.into(), region: region.into() };
        let guests = Guests {
            homes: homes.clone(),
            gateway: Arc::clone(&gateway),
            worker,
            datagrams: sender,
            region: region.into(),
            knowledge: Arc::clone(&knowledge),
            residency_refusals: ResidencyRefusals::default(),
            feedback: Arc::clone(feedback),
            keeper: keeper.clone(),
        };
        let mut link_config = spillway_link::LinkConfig::new(identity, config.address, files);
        link_config.paths.clone_from(&config.paths);
        link_config.resolver = resolver;
        link_config.revoked.clone_from(&config.revoked);
        link_config.revoked_heard = data.as_ref().map(|folder| folder.join(REVOKED_HEARD));
        link_config.limits.word_wait_ms = word_wait_ms(config.silence);
        // A node that may be silent for longer keeps its connection for as long.
        let silence_ms = u32::try_from(config.silence.as_millis()).unwrap_or(u32::MAX);
        let idle_ms = &mut link_config.transport.control_idle_ms;
        *idle_ms = silence_ms.saturating_mul(3).clamp(*idle_ms, CONTROL_IDLE_MS_MAX);
        link_config.watch = tasks.watch.clone();
        let link = Arc::new(Link::start(link_config, Arc::new(guests))?);
        // The config's peers, until the agreed state names others.
        link.set_peers(peers(&config)?);
        gateway.connect(Arc::new(Links::new(&link, gateway.seed())));
        let gossip = Arc::<Gossip>::default();
        feedback.watch(Watched { link: Arc::downgrade(&link), gossip: Arc::clone(&gossip) });
        let driver = Driver::new(driver::Parts {
            me: spillway_gossip::GossipMember::new(node, region),
            // Larger than at any start of this node before; only ever compared with this node's own.
            incarnation: unix_ms(SystemTime::now()),
            config,
            region_facts,
            spill,
            dns,
            gateway,
            keeper,
            knowledge,
            gossip,
            link: Arc::clone(&link),
            datagrams,
            tasks: tasks.tracker.clone(),
        });
        tasks.spawn_vital("cluster", driver.run(tasks.stop.clone()));
        tasks.spawn_vital("homes", Exchange::new(homes, &link, &tasks, data).run());
        Ok(Self { link })
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
