//! Reports of sibling nodes about the region's replicas.

use std::collections::{BTreeMap, BTreeSet};

use spillway_cluster_state::{Belief, Health, NodeId, Observed, State};
use spillway_health::{PeerReports, Votes};
use spillway_link::Link;
use spillway_types::{NodeName, RegionName, ReplicaName};

/// Returns the region's other nodes that this one is connected with.
pub(super) fn connected(link: &Link, region: &RegionName) -> BTreeSet<NodeName> {
    let peers = link.peers();
    let near = peers.iter().filter(|peer| peer.identity.region() == region);
    near.filter(|peer| peer.is_connected()).map(|peer| peer.identity.node().clone()).collect()
}

/// Returns the reports of the other nodes of `me`'s region against its replicas. `live` names the
/// live nodes, with or without a report. A replica without a report against it is left out.
pub(super) fn peer_reports(
    state: &State,
    me: (&NodeName, &RegionName),
    live: &BTreeSet<NodeName>,
) -> BTreeMap<ReplicaName, PeerReports> {
    let jury = Jury::of(state, me.0, me.1, live);
    // A replica that was registered again has no such record until a node reports on it.
    let own = state.records().health.iter().filter(|(id, _)| id.region == *me.1);
    own.filter_map(|(id, health)| Some((id.name.clone(), jury.reports_of(health)?))).collect()
}

/// The region's other nodes, and the maximum age of their reports.
struct Jury {
    /// Other nodes, and whether each is live.
    nodes: BTreeMap<NodeId, bool>,
    now_ms: u64,
    observation_ms: u64,
}

impl Jury {
    fn of(state: &State, name: &NodeName, region: &RegionName, live: &BTreeSet<NodeName>) -> Self {
        let nodes = state.records().nodes.iter();
        let others =
            nodes.filter(|(_, node)| node.spec.region == *region && node.spec.name != *name);
        Self {
            nodes: others.map(|(id, node)| (*id, live.contains(&node.spec.name))).collect(),
            now_ms: state.region_clock_ms(region).unwrap_or(0),
            observation_ms: observation_ms(state),
        }
    }

    /// Counts the nodes that report the replica as down. The live others are counted as quiet: it
    /// is unknown whether they see it well or not at all, since a node that has nothing against a
    /// replica mostly reports nothing.
    fn reports_of(&self, health: &Health) -> Option<PeerReports> {
        let against = |id: &NodeId| {
            let said = health.observers.get(id).filter(|said| self.is_fresh(said))?;
            // A report against the replica counts once even if it names no signal.
            (said.belief == Belief::Down).then_some(said.signals.max(1))
        };
        let signals: Vec<u8> = self.nodes.keys().filter_map(against).collect();
        let quiet = self.nodes.iter().filter(|(id, lives)| **lives && against(id).is_none());
        let quiet = u32::try_from(quiet.count()).unwrap_or(u32::MAX);
        let votes = signals.into_iter().map(Votes::reported);
        let peer_reports = PeerReports::of(votes);
        (peer_reports != PeerReports::default()).then(|| peer_reports.beside_quiet(quiet))
    }

    fn is_fresh(&self, said: &Observed) -> bool {
        self.now_ms.saturating_sub(said.at_ms) <= self.observation_ms
    }
}

/// Returns for how long a node's report about a replica counts, in ms.
pub(super) fn observation_ms(state: &State) -> u64 {
    let setting = state.setting("health.observation_ms");
    setting.and_then(|value| value.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
#[path = "peer_report_test.rs"]
mod peer_report_test;
