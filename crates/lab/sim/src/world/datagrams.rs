//! Datagrams of gossip between nodes: delayed, overtaken, lost.

use std::collections::BTreeMap;

use bytes::Bytes;
use spillway_gossip::GossipMember;
use spillway_types::{NodeName, RegionName};

use super::gossip::RegionCounts;
use super::{World, WorldEvent};
use crate::Time;

/// Names of all nodes, and the datagrams that are under way between them.
#[derive(Debug)]
pub(super) struct Network {
    /// Nodes by their numbers.
    pub(super) members: Vec<GossipMember>,
    /// Names of regions by their numbers.
    pub(super) regions: Vec<RegionName>,
    numbers: BTreeMap<NodeName, usize>,
    under_way: BTreeMap<usize, Datagram>,
    sent: usize,
}

#[derive(Debug)]
struct Datagram {
    from: usize,
    to: usize,
    bytes: Bytes,
    /// Counts of a region's speaker, and when they were made.
    counts: Option<(Time, RegionCounts)>,
}

impl Network {
    pub(super) fn new(members: Vec<GossipMember>, regions: Vec<RegionName>) -> Self {
        let numbers = members.iter().zip(0..).map(|(member, at)| (member.node.clone(), at));
        let numbers = numbers.collect();
        Self { members, regions, numbers, under_way: BTreeMap::new(), sent: 0 }
    }
}

impl World {
    /// Sends the datagrams that a node's gossip has ready, reads its news, and notes when it is
    /// due.
    pub(super) fn settle_gossip(&mut self, node: usize) {
        while let Some((to, bytes)) = self.nodes[node].gossip.machine.poll_transmit() {
            self.send_datagram(node, &to, bytes);
        }
        if self.nodes[node].gossip.take_news() {
            self.publish(node);
        }
        let origin = self.config.origin;
        let gossip = &mut self.nodes[node].gossip;
        let due = gossip.machine.poll_timeout();
        let due = due.map(|at| Time::from(at.duration_since(origin)).max(self.now));
        if due != gossip.due {
            gossip.due = due;
            if let Some(at) = due {
                self.agenda.put(at, WorldEvent::Gossip { node });
            }
        }
    }

    /// Lets a node's gossip do its due work.
    pub(super) fn gossip_due(&mut self, node: usize) {
        // A later change may have moved the moment: this event is then out of date.
        if self.nodes[node].gossip.due != Some(self.now) {
            return;
        }
        self.nodes[node].gossip.due = None;
        if !self.is_region_lost(self.region_of(node)) {
            let instant = self.instant();
            self.nodes[node].gossip.machine.handle_timeout(instant);
            self.settle_gossip(node);
        }
    }

    fn send_datagram(&mut self, from: usize, to: &NodeName, bytes: Bytes) {
        let Some(&to) = self.network.numbers.get(to) else { return };
        let (here, there) = (self.region_of(from), self.region_of(to));
        if self.is_lost() || self.is_cut(here, there) {
            return;
        }
        let node = &self.nodes[from];
        let speaks = *node.gossip.machine.speaker() == self.network.members[from].node;
        let counts = (speaks && here != there).then_some((node.report.at, node.report.counts));
        let hop_us = self.config.news.hop_ms * 1e3;
        let way_us = if here == there { hop_us } else { self.way_us(here, there) as f64 };
        let way_us = way_us * (1.0 + self.config.news.jitter * self.luck.f64());
        let network = &mut self.network;
        let number = network.sent;
        network.sent += 1;
        network.under_way.insert(number, Datagram { from, to, bytes, counts });
        self.agenda.put(self.now.after_us(way_us as u64), WorldEvent::Datagram { number });
    }

    /// Hands a datagram that arrives to its receiver.
    pub(super) fn take_datagram(&mut self, number: usize) {
        let Some(datagram) = self.network.under_way.remove(&number) else { return };
        let Datagram { from, to, bytes, counts } = datagram;
        if self.is_region_lost(self.region_of(to)) {
            return;
        }
        let (instant, home) = (self.instant(), self.region_of(from));
        let GossipMember { node, region } = &self.network.members[from];
        let gossip = &mut self.nodes[to].gossip;
        let taken = gossip.machine.handle_datagram(instant, node, region, &bytes);
        // Overtaken datagrams are refused, as in nodes.
        if let Some(counts) = counts.filter(|_| taken.is_ok()) {
            gossip.count(home, counts);
        }
        self.settle_gossip(to);
    }
}
