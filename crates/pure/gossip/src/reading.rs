//! Views of the gossip that can be read at any time.

use std::time::Instant;

use spillway_types::{ModelName, NodeName, RegionName, ReplicaName};

use crate::counters::GossipCounters;
use crate::entry::SiblingEntry;
use crate::name_id::NameId;
use crate::node::{Foreigner, NodeStanding, Sibling};
use crate::region::{Reach, RegionContact};
use crate::time::ms_since;
use crate::{
    Elsewhere, GossipMachine, GossipMember, ModelReport, PeerView, RegionView, ReplicaReport,
    WHOLE_REGION,
};

impl GossipMachine {
    /// Returns this node.
    #[must_use]
    pub fn me(&self) -> &GossipMember {
        &self.me
    }

    /// Returns the node that speaks for the own region, as this one sees it.
    #[must_use]
    pub fn speaker(&self) -> &NodeName {
        &self.speaker
    }

    /// Returns the counts since the start.
    #[must_use]
    pub fn counters(&self) -> GossipCounters {
        self.counters
    }

    /// Returns all other regions, in the order of their names, as they are at `now`.
    #[must_use]
    pub fn regions(&self, now: Instant) -> Vec<RegionView> {
        self.regions.iter().map(|(name, region)| self.region_view(name, region, now)).collect()
    }

    /// Returns another region as it is at `now`; `None` if no member is of it.
    #[must_use]
    pub fn region(&self, name: &RegionName, now: Instant) -> Option<RegionView> {
        self.regions.get(name).map(|region| self.region_view(name, region, now))
    }

    /// Returns all other nodes of the own region, in the order of their names, as they are at
    /// `now`.
    #[must_use]
    pub fn peers(&self, now: Instant) -> Vec<PeerView> {
        self.siblings.iter().map(|(node, sibling)| self.peer_view(node, sibling, now)).collect()
    }

    /// Returns how many requests this node may have in flight at a replica; `None` without a limit.
    /// A node that has more in flight starts no further ones.
    #[must_use]
    pub fn claim(&self, replica: &ReplicaName) -> Option<u32> {
        self.claims.usable(NameId::of_replica(replica))
    }

    /// Returns the load of the other living nodes of the own region at a replica.
    #[must_use]
    pub fn elsewhere(&self, replica: &ReplicaName) -> Elsewhere {
        let id = NameId::of_replica(replica);
        let live = self.siblings.values().filter(|sibling| sibling.standing == NodeStanding::Live);
        let told = live.filter_map(|sibling| sibling.replica(id));
        told.fold(Elsewhere::default(), |sum, told| Elsewhere {
            in_flight: sum.in_flight.saturating_add(told.in_flight),
            pending_tokens: sum.pending_tokens.saturating_add(told.pending_tokens()),
        })
    }

    fn region_view(&self, name: &RegionName, region: &RegionContact, now: Instant) -> RegionView {
        // Several nodes may speak while the speaker changes: the newest report counts.
        let speaker = self
            .foreigners
            .iter()
            .filter(|(_, foreigner)| foreigner.region == *name)
            .filter_map(|(node, foreigner)| Some((foreigner.told_at()?, node, foreigner)))
            .max_by_key(|(told_at, _, _)| *told_at);
        let reach = region.reach(now, self.config.silence_ms);
        let mut models = speaker.map(|(_, _, foreigner)| foreigner.models(now)).unwrap_or_default();
        RegionView {
            region: name.clone(),
            reach,
            age_ms: region.age_ms(now),
            reachable_since: region.since().filter(|_| reach == Reach::Both),
            speaker: speaker.map(|(_, node, _)| node.clone()),
            whole: models.remove(&NameId::of_model(&ModelName::from(WHOLE_REGION))),
            models,
        }
    }

    fn peer_view(&self, node: &NodeName, sibling: &Sibling, now: Instant) -> PeerView {
        let heard_at = sibling.detector.heard_at();
        let mut view = PeerView {
            node: node.clone(),
            live: heard_at.is_some() && now < sibling.detector.silent_at(self.config.silence_ms),
            age_ms: heard_at.map(|at| ms_since(at, now)),
            replicas: [].into(),
            shares: [].into(),
        };
        for (id, entry, at) in sibling.mirror.entries() {
            match entry {
                SiblingEntry::Share(share) => {
                    view.shares.insert(id, share.share());
                }
                SiblingEntry::Replica(replica) => {
                    let report = ReplicaReport {
                        in_flight: replica.in_flight,
                        pending_tokens: replica.pending_tokens(),
                        claimed: sibling.rival(id).held(),
                        wanted: sibling.rival(id).wanted(),
                        signals: replica.signals(),
                        age_ms: ms_since(at, now),
                    };
                    view.replicas.insert(id, report);
                }
            }
        }
        view
    }
}

impl Foreigner {
    /// Returns when the last whole report of the node was measured. A node without a whole report
    /// ranks below one with an older whole report.
    fn told_at(&self) -> Option<Instant> {
        self.mirror.whole_at()
    }

    fn models(&self, now: Instant) -> std::collections::BTreeMap<NameId, ModelReport> {
        let report = |at| move |load| ModelReport { load, age_ms: ms_since(at, now) };
        self.mirror.entries().map(|(id, entry, at)| (id, report(at)(entry.load()))).collect()
    }
}
