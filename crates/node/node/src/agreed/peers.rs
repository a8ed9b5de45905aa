//! Keeps the link's peers and revoked certificates as the agreed state has them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_cluster_state::State;
use spillway_config::ClusterConfig;
use spillway_control_plane::ControlPlane;
use spillway_link::{Identity, Link, NameError, PeerConfig, PeerStatus};
use spillway_raft::{Member, NodeId, Status};
use spillway_types::{NodeName, RegionName};
use tokio::time::timeout;

use crate::agreed::ClusterMember;

/// Longest time between two looks: a node that leaves the log's members changes no record.
const PERIOD: Duration = Duration::from_millis(500);
/// Maximum age of a state that counts as the current one.
const FRESH: Duration = Duration::from_secs(5);
/// Time for which a removed node stays connected, to learn of its removal. It has no vote during
/// that time.
const FAREWELL: Duration = Duration::from_secs(1);
/// Longest such time if the removed node leads, or if the voters have no majority without it: a
/// removed node itself stays as long.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(30);

/// Task that keeps the link's peers those of the cluster.
#[derive(Debug)]
pub(super) struct Peers {
    control_plane: Arc<ControlPlane>,
    config: ClusterConfig,
    me: NodeName,
    link: Arc<Link>,
    /// Members of the log that are removed, and since when this node knows it.
    removed: BTreeMap<NodeName, Instant>,
    last: Option<Vec<PeerConfig>>,
}

impl Peers {
    pub(super) fn new(
        member: &ClusterMember,
        link: &Arc<Link>,
        control_plane: Arc<ControlPlane>,
    ) -> Self {
        Self {
            control_plane,
            config: member.config.clone(),
            me: member.name.clone(),
            link: Arc::clone(link),
            removed: BTreeMap::new(),
            last: None,
        }
    }

    /// Follows the state and the log's members as long as states are published.
    pub(super) async fn run(mut self) {
        let mut publications = self.control_plane.publications();
        loop {
            // Marked before the state is read, so that one published in between is not missed.
            publications.mark_unchanged();
            let state = self.control_plane.published();
            self.look(&state);
            if let Ok(Err(_)) = timeout(PERIOD, publications.changed()).await {
                return;
            }
        }
    }

    /// Applies what is known now. The first call comes before anything else is done, so that a
    /// removed node is kept out from the start.
    pub(super) fn look(&mut self, state: &State) {
        if state.cluster().is_none() {
            return;
        }
        let revoked = state.records().revoked_certificates.keys();
        self.link.set_revoked(revoked.map(ToString::to_string).collect());
        let status = self.control_plane.status();
        let is_fresh = status.age.is_some_and(|age| age < FRESH);
        // A current state has all members itself; other nodes' information on them may be out of
        // date.
        if is_fresh {
            self.control_plane.forget_met();
        }
        let leaving = self.leaving(state, &status, is_fresh);
        let met = self.control_plane.met();
        let told =
            PeerSources { met: &met, connected: &self.link.peers(), leaving: &leaving, is_fresh };
        match peers(state, &status, told, &self.config, &self.me) {
            Ok(peers) => {
                self.link.set_leaving(leaving);
                if self.last.as_ref() != Some(&peers) {
                    self.link.set_peers(peers.clone());
                    self.last = Some(peers);
                }
            }
            Err(error) => tracing::error!(%error, "a node of the cluster has an impossible name"),
        }
    }

    /// Returns the removed nodes that stay connected for a moment.
    fn leaving(&mut self, state: &State, status: &Status, is_fresh: bool) -> BTreeSet<NodeName> {
        let is_gone = |member: &&Member| {
            let is_unknown = state.node(&member.name).is_none();
            // An old state may just lack a new member: then only a recorded removal counts.
            is_unknown && member.name != self.me && (is_fresh || state.is_removed(&member.name))
        };
        let gone: BTreeSet<NodeName> =
            status.members.values().filter(is_gone).map(|member| member.name.clone()).collect();
        self.removed.retain(|name, _| gone.contains(name));
        let needed = needed(status, &gone);
        let mut leaving = BTreeSet::new();
        for name in gone {
            let since = *self.removed.entry(name.clone()).or_insert_with(Instant::now);
            let limit = if needed.contains(&name) { HAND_OVER_LIMIT } else { FAREWELL };
            if since.elapsed() < limit {
                leaving.insert(name);
            }
        }
        leaving
    }
}

/// Returns the removed nodes that the others need to go on without them: the leader, which hands
/// over, and voters if the rest is no majority.
fn needed(status: &Status, gone: &BTreeSet<NodeName>) -> BTreeSet<NodeName> {
    let name_of = |id: &NodeId| status.members.get(id).map(|member| member.name.clone());
    let is_gone = |id: &&NodeId| name_of(id).is_some_and(|name| gone.contains(&name));
    let gone_voters: BTreeSet<NodeId> = status.voters.iter().filter(is_gone).copied().collect();
    let rest = status.voters.len() - gone_voters.len();
    let is_majority = 2 * rest > status.voters.len();
    let leader = status.leader.filter(|id| is_gone(&id));
    let voters = gone_voters.into_iter().filter(|_| !is_majority);
    voters.chain(leader).filter_map(|id| name_of(&id)).collect()
}

/// Sources of peers besides the agreed state.
struct PeerSources<'a> {
    /// Members that another member has named.
    met: &'a [PeerConfig],
    connected: &'a [PeerStatus],
    leaving: &'a BTreeSet<NodeName>,
    /// True if the state is recent enough to be the current one.
    is_fresh: bool,
}

/// Returns the peers: the nodes that the cluster knows, and those that are leaving it. While this
/// node may have missed entries, members that another member has named and members of the log count
/// too. The config only gives addresses and round trips: a node that the cluster does not know is
/// no peer.
fn peers(
    state: &State,
    status: &Status,
    told: PeerSources<'_>,
    config: &ClusterConfig,
    me: &NodeName,
) -> Result<Vec<PeerConfig>, NameError> {
    let rtt_ms = |region: &RegionName| {
        let known = config.regions.iter().find(|known| known.name == *region);
        let rtt = known.and_then(|region| region.rtt);
        rtt.map(|rtt| u32::try_from(rtt.as_millis()).unwrap_or(u32::MAX))
    };
    let mut found = BTreeMap::new();
    for peer in told.met.iter().filter(|peer| !state.is_removed(peer.identity.node())) {
        let identity = &peer.identity;
        found.insert(identity.node().clone(), (identity.region().clone(), peer.address.clone()));
    }
    for member in status.members.values() {
        let is_leaving = told.leaving.contains(&member.name);
        let may_be_new = !told.is_fresh && !state.is_removed(&member.name);
        let connected = told.connected.iter().find(|peer| *peer.identity.node() == member.name);
        if let Some(peer) = connected.filter(|_| is_leaving || may_be_new) {
            found.insert(member.name.clone(), (member.region.clone(), peer.address.clone()));
        }
    }
    // A record replaces an address that is known only from other nodes' messages.
    for (_, node) in state.records().nodes.iter() {
        let spec = &node.spec;
        found.insert(spec.name.clone(), (spec.region.clone(), spec.address.clone()));
    }
    for peer in &config.peers {
        // A config may know a shorter way, but not another region.
        if let Some((_, address)) = found.get_mut(&peer.name) {
            *address = peer.address.to_string();
        }
    }
    found.remove(me);
    let peer = |(name, (region, address)): (NodeName, (RegionName, String))| {
        let identity = Identity::new(&config.id, region.as_str(), name.as_str())?;
        Ok(PeerConfig { identity, address, rtt_ms: rtt_ms(&region) })
    };
    found.into_iter().map(peer).collect()
}

#[cfg(test)]
#[path = "peers_test.rs"]
mod tests;
