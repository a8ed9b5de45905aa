//! State machine of the load gossip.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use spillway_types::{NodeName, RegionName};

use crate::cadence::Cadence;
use crate::claims::Claims;
use crate::counters::GossipCounters;
use crate::entry::{ModelEntry, ReplicaEntry, ShareEntry, SiblingEntry};
use crate::ledger::Ledger;
use crate::name_id::NameId;
use crate::node::{Foreigner, NodeStanding, Sibling};
use crate::region::RegionContact;
use crate::{GossipConfig, GossipEvent, GossipMember, OwnLoad, Reach, ReplicaCounts};

/// Load gossip of one node.
///
/// Feed it one input, then drain [`Self::poll_transmit`] and [`Self::poll_event`], and call
/// [`Self::handle_timeout`] at the moment of [`Self::poll_timeout`], which any input may move.
/// Time may not run backwards.
#[derive(Debug)]
pub struct GossipMachine {
    pub(crate) me: GossipMember,
    pub(crate) id: NameId,
    pub(crate) incarnation: u64,
    pub(crate) config: GossipConfig,
    pub(crate) rng: fastrand::Rng,
    pub(crate) seq: u64,
    pub(crate) siblings: BTreeMap<NodeName, Sibling>,
    pub(crate) foreigners: BTreeMap<NodeName, Foreigner>,
    pub(crate) regions: BTreeMap<RegionName, RegionContact>,
    pub(crate) load_at: Option<Instant>,
    pub(crate) sibling_ledger: Ledger<SiblingEntry>,
    pub(crate) sibling_cadence: Cadence,
    pub(crate) region_ledger: Ledger<ModelEntry>,
    pub(crate) region_cadence: Cadence,
    pub(crate) claims: Claims,
    pub(crate) speaker: NodeName,
    pub(crate) transmits: VecDeque<(NodeName, Bytes)>,
    events: VecDeque<GossipEvent>,
    pub(crate) counters: GossipCounters,
}

impl GossipMachine {
    /// Creates the gossip of the node `me`, without other members for now.
    ///
    /// `incarnation` has to be larger than at any start of this node before: the time of day in
    /// milliseconds will do. `rng` spreads heartbeats; nodes should not share its seed.
    #[must_use]
    pub fn new(
        me: GossipMember,
        incarnation: u64,
        config: GossipConfig,
        rng: fastrand::Rng,
        now: Instant,
    ) -> Self {
        Self {
            id: NameId::of_node(&me.region, &me.node),
            speaker: me.node.clone(),
            me,
            incarnation,
            rng,
            seq: 0,
            siblings: BTreeMap::new(),
            foreigners: BTreeMap::new(),
            regions: BTreeMap::new(),
            load_at: None,
            sibling_ledger: Ledger::new(),
            sibling_cadence: Cadence::new(config.fast_ms, &config, now),
            region_ledger: Ledger::new(),
            region_cadence: Cadence::new(config.region_fast_ms, &config, now),
            claims: Claims::default(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            counters: GossipCounters::default(),
            config,
        }
    }

    /// Sets the members of the cluster, with or without this node among them. Knowledge of members
    /// that stay is kept.
    ///
    /// A node that joins claims nothing at first, and the others' claims stay as they are until it
    /// proposes one. A node that leaves loses its claims at once: remove it after it has stopped.
    pub fn set_members(&mut self, members: &[GossipMember], now: Instant) {
        let (own, others): (Vec<&GossipMember>, Vec<&GossipMember>) = members
            .iter()
            .filter(|member| member.node != self.me.node)
            .partition(|member| member.region == self.me.region);
        let kept = self.config.members_max.min(own.len() + others.len());
        self.counters.members_left_out += (own.len() + others.len() - kept) as u64;
        // Nodes of the own region are kept first: claims need all of them.
        let others = &others[..kept.saturating_sub(own.len())];
        let own = &own[..kept.min(own.len())];
        let config = &self.config;
        // All siblings are of the own region, so an equal name is enough.
        retake(&mut self.siblings, own, |_| true, |member| Sibling::new(member, config, now));
        retake(
            &mut self.foreigners,
            others,
            |(member, foreigner)| member.region == foreigner.region,
            |member| Foreigner::new(member, config, now),
        );
        let regions = &mut self.regions;
        regions.retain(|name, _| others.iter().any(|member| member.region == *name));
        for member in others {
            regions.entry(member.region.clone()).or_insert_with(RegionContact::new);
        }
        self.settle(now);
    }

    /// Takes over the load that this node knows of. Call it at least every 100 ms, and sooner after
    /// a large change: a report is no fresher than this.
    pub fn set_load(&mut self, now: Instant, load: &OwnLoad) {
        let most = self.config.entries_max;
        let lists = [load.replicas.len(), load.shares.len(), load.models.len()];
        let too_many: usize = lists.iter().map(|length| length.saturating_sub(most)).sum();
        self.load_at = Some(now);
        self.claims.set(load.replicas.iter().take(most), now);
        let claims: BTreeMap<NameId, _> = self.claims.entries().collect();
        let replicas = load.replicas.iter().take(most).map(|(name, load)| {
            let id = NameId::of_replica(name);
            let claim = claims.get(&id).copied().unwrap_or_default();
            SiblingEntry::Replica(ReplicaEntry::new(id, load, claim))
        });
        let shares = load.shares.iter().take(most).map(|(name, share)| {
            SiblingEntry::Share(ShareEntry::new(NameId::of_model(name), share))
        });
        let doubles = self.sibling_ledger.set(replicas.chain(shares));
        let models = load.models.iter().take(most);
        let models = models.map(|(name, load)| ModelEntry::new(NameId::of_model(name), load));
        let doubles = doubles + self.region_ledger.set(models);
        self.counters.names_left_out += too_many as u64 + doubles;
        self.settle_claims(now);
    }

    /// Sets the counts of this node at replicas, by [`NameId::of_replica`]. Replicas that
    /// [`Self::set_load`] did not name are ignored.
    ///
    /// It costs little compared with [`Self::set_load`]. Call it in between, some 100 times a
    /// second: nodes that learn late of each other's requests send theirs to the same replica.
    pub fn set_counts(&mut self, counts: impl IntoIterator<Item = (NameId, ReplicaCounts)>) {
        self.sibling_ledger.update_each(counts, |entry, counts| {
            if let SiblingEntry::Replica(replica) = entry {
                replica.set_counts(counts);
            }
        });
    }

    /// Returns when [`Self::handle_timeout`] is to be called next; `None` while this node is alone.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let siblings = self.siblings.values().flat_map(|sibling| sibling.timeouts(&self.config));
        // Only a datagram ends a region's silence, so a silent region needs no timeout.
        let regions = self.regions.values().filter(|region| region.settled() != Reach::Silent);
        let regions = regions.filter_map(|region| region.silent_at(self.config.silence_ms));
        let reports = [self.siblings_due(), self.regions_due()];
        reports.into_iter().flatten().chain(siblings).chain(regions).min()
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        // First: this node may become the speaker, who has more to send.
        self.settle(now);
        if self.siblings_due().is_some_and(|due| now >= due) {
            self.send_siblings(now);
        }
        if self.regions_due().is_some_and(|due| now >= due) {
            self.send_regions(now);
        }
    }

    /// Returns the next datagram to send, and its receiver. Drain it after every input.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<(NodeName, Bytes)> {
        let (to, datagram) = self.transmits.pop_front()?;
        self.counters.sent += 1;
        self.counters.sent_bytes += datagram.len() as u64;
        Some((to, datagram))
    }

    /// Returns the next change. Drain it after every input.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<GossipEvent> {
        self.events.pop_front()
    }
}

impl GossipMachine {
    /// Evaluates the silence of every node again, and acts on the result.
    pub(crate) fn settle(&mut self, now: Instant) {
        for region in self.regions.keys().cloned().collect::<Vec<_>>() {
            self.settle_region(&region, now);
        }
        for node in self.siblings.keys().cloned().collect::<Vec<_>>() {
            self.settle_sibling(&node, now);
        }
        self.settle_speaker();
        self.settle_claims(now);
    }

    pub(crate) fn settle_region(&mut self, name: &RegionName, now: Instant) {
        let silence_ms = self.config.silence_ms;
        let Some(region) = self.regions.get_mut(name) else { return };
        if let Some(from) = region.settle(now, silence_ms) {
            let event = GossipEvent::Region { region: name.clone(), from, to: region.settled() };
            self.tell(event);
        }
    }

    pub(crate) fn settle_sibling(&mut self, node: &NodeName, now: Instant) {
        let Some(sibling) = self.siblings.get_mut(node) else { return };
        if !sibling.settle(&self.config, now) {
            return;
        }
        match sibling.standing {
            NodeStanding::Live => self.tell(GossipEvent::NodeHeard(node.clone())),
            NodeStanding::Gone => self.tell(GossipEvent::NodeSilent(node.clone())),
            NodeStanding::Expected => {}
        }
    }

    pub(crate) fn settle_speaker(&mut self) {
        // All nodes that receive each other's datagrams choose the same speaker: the first by name.
        let first = self.siblings.iter().find(|(_, sibling)| sibling.may_speak);
        let first = first.map_or(&self.me.node, |(node, _)| node.min(&self.me.node)).clone();
        if first != self.speaker {
            self.speaker = first.clone();
            self.tell(GossipEvent::Speaker(first));
        }
    }

    /// Goes on with the claims, and with their lines in the next report.
    pub(crate) fn settle_claims(&mut self, now: Instant) {
        // The claims of silent nodes are void.
        let rivals: Vec<(&NodeName, &Sibling)> = self
            .siblings
            .iter()
            .filter(|(_, sibling)| sibling.standing != NodeStanding::Gone)
            .collect();
        let deaf_ms = self.deaf_ms();
        let changed = if rivals.iter().any(|(_, sibling)| sibling.detector.is_deaf(deaf_ms)) {
            self.claims.suspend()
        } else {
            let place = rivals.iter().filter(|(name, _)| **name < self.me.node).count();
            self.claims.settle(place, now, |id| rivals.iter().map(|(_, s)| s.rival(id)).collect())
        };
        for (id, claim) in self.claims.entries() {
            self.sibling_ledger.update(id, |entry| {
                if let SiblingEntry::Replica(replica) = entry {
                    replica.claim = claim;
                }
            });
        }
        // One such event is enough: its reader looks at all claims.
        if changed && !self.events.contains(&GossipEvent::Claims) {
            self.tell(GossipEvent::Claims);
        }
    }

    /// Returns the time, milliseconds, after which a sibling that receives nothing from us counts
    /// as deaf. It is shorter than the time after which the sibling takes our claims for void,
    /// because its report takes a while to arrive.
    pub(crate) fn deaf_ms(&self) -> u32 {
        self.config.silence_ms / 4 * 3
    }

    fn tell(&mut self, event: GossipEvent) {
        if self.events.len() >= self.config.events_max {
            self.events.pop_front();
            self.counters.events_dropped += 1;
        }
        self.events.push_back(event);
    }
}

/// Makes `known` hold exactly `members`, keeping those that did not change.
fn retake<T>(
    known: &mut BTreeMap<NodeName, T>,
    members: &[&GossipMember],
    is_same: impl Fn((&GossipMember, &T)) -> bool,
    new: impl Fn(&GossipMember) -> T,
) {
    let mut before = std::mem::take(known);
    for member in members {
        let kept = before.remove(&member.node).filter(|kept| is_same((member, kept)));
        known.insert(member.node.clone(), kept.unwrap_or_else(|| new(member)));
    }
}

#[cfg(test)]
#[path = "machine_test.rs"]
mod tests;
