//! Tells the link whom the cluster consists of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use spillway_agreement::Agreement;
use spillway_consensus::Status;
use spillway_control::State;
use spillway_link::{Identity, Link, NameError, PeerConfig, PeerStatus};
use spillway_types::{NodeName, RegionName};
use tokio::time::timeout;

use crate::agreed::AgreedParts;
use crate::config::ClusterConfig;

/// At the latest after so long it looks again: who leaves the log's members changes no record.
const PERIOD: Duration = Duration::from_millis(500);

/// Keeps the link's peers those of the cluster.
#[derive(Debug)]
pub(super) struct Peers {
    agreement: Arc<Agreement>,
    config: ClusterConfig,
    me: NodeName,
    link: Arc<Link>,
}

impl Peers {
    pub(super) fn new(parts: &AgreedParts<'_>, agreement: Arc<Agreement>) -> Self {
        let (config, me) = (parts.config.clone(), parts.me.0.clone());
        Self { agreement, config, me, link: Arc::clone(&parts.link) }
    }

    /// Follows the state and the log's members as long as there are any.
    pub(super) async fn run(self) {
        let mut publications = self.agreement.publications();
        let mut last = None;
        loop {
            publications.mark_unchanged();
            let state = self.agreement.published();
            if state.cluster().is_some() {
                let known = (&self.agreement.status(), &self.link.peers()[..]);
                match peers(&state, known, &self.config, &self.me) {
                    Ok(peers) if last.as_ref() != Some(&peers) => {
                        self.link.set_peers(peers.clone());
                        last = Some(peers);
                    }
                    Ok(_) => {}
                    Err(error) => {
                        tracing::error!(%error, "a node of the cluster has an impossible name");
                    }
                }
            }
            if let Ok(Err(_)) = timeout(PERIOD, publications.changed()).await {
                return;
            }
        }
    }
}

/// Those whom the cluster knows, those of the config that it does not know yet, and those that are
/// removed and still take part in the log: without them the voters could not agree to go on
/// without them.
fn peers(
    state: &State,
    (status, connected): (&Status, &[PeerStatus]),
    config: &ClusterConfig,
    me: &NodeName,
) -> Result<Vec<PeerConfig>, NameError> {
    let rtt_ms = |region: &RegionName| {
        let known = config.regions.iter().find(|known| known.name == *region);
        let rtt = known.and_then(|region| region.rtt);
        rtt.map(|rtt| u32::try_from(rtt.as_millis()).unwrap_or(u32::MAX))
    };
    let mut found = BTreeMap::new();
    for member in status.members.values() {
        if let Some(peer) = connected.iter().find(|peer| *peer.identity.node() == member.name) {
            found.insert(member.name.clone(), (member.region.clone(), peer.address.clone()));
        }
    }
    for (_, node) in state.records().nodes.iter() {
        let spec = &node.spec;
        found.insert(spec.name.clone(), (spec.region.clone(), spec.address.clone()));
    }
    for peer in &config.peers {
        // A config may know a shorter way, but not another region.
        let region = found.get(&peer.name).map_or(&peer.region, |(region, _)| region).clone();
        found.insert(peer.name.clone(), (region, peer.address.to_string()));
    }
    found.remove(me);
    let peer = |(name, (region, address)): (NodeName, (RegionName, String))| {
        let identity = Identity::new(&config.id, region.as_str(), name.as_str())?;
        Ok(PeerConfig { identity, address, rtt_ms: rtt_ms(&region) })
    };
    found.into_iter().map(peer).collect()
}
