//! Paths of the network: between regions, and from a node to a replica.

use super::World;
use super::request::Request;
use crate::Time;

impl World {
    /// Returns the microseconds of the one-way path from one region to another.
    pub(super) fn way_us(&self, from: usize, to: usize) -> u64 {
        let slowness: f64 = self.faults.iter().map(|fault| fault.kind.slowness(from, to)).product();
        (self.config.rtt_ms[from][to] * 500.0 * slowness) as u64
    }

    /// Returns the round-trip time in milliseconds that nodes of one region believe to be that to
    /// another. They measure it, and so see when it is longer than usual.
    pub(super) fn seen_rtt_ms(&self, home: usize, region: usize) -> f32 {
        let slowness: f64 =
            self.faults.iter().map(|fault| fault.kind.slowness(home, region)).product();
        (f64::from(self.believed_rtt_ms[home][region]) * slowness) as f32
    }

    /// Returns the microseconds of the one-way path from a node to a replica.
    pub(super) fn reach_us(&self, node: usize, replica: usize) -> u64 {
        let group = &self.groups[self.nodes[node].group];
        let home = group.homes[replica - group.replicas.start];
        (self.config.news.hop_ms * 1e3) as u64 + self.way_us(group.region, home)
    }

    /// Returns the microseconds of the one-way path between a request's client and a node, by way of
    /// the node that the client asks. Only the network between regions counts.
    pub(super) fn client_us(&self, request: usize, node: usize) -> u64 {
        let Request { entry, region, .. } = self.requests[request];
        self.home_us(request, node) + self.way_us(self.region_of(entry), region)
    }

    /// Returns the microseconds of the one-way path between the node that a request's client asks and
    /// a node.
    pub(super) fn home_us(&self, request: usize, node: usize) -> u64 {
        self.way_us(self.region_of(node), self.region_of(self.requests[request].entry))
    }

    /// Returns the region in which a node runs.
    pub(super) fn region_of(&self, node: usize) -> usize {
        self.groups[self.nodes[node].group].region
    }

    /// Returns the group of nodes that the clients of a region ask.
    pub(super) fn entry_group(&self, region: usize) -> usize {
        if self.config.central.is_some() { 0 } else { region }
    }

    /// Returns the moment at which neighbours learn of an event at `at`; `None` if they never do.
    pub(super) fn shared_at(&self, at: Time) -> Option<Time> {
        self.config.news.share_ms.map(|share_ms| at.after_us((share_ms * 1e3) as u64))
    }

    /// Draws whether news get lost.
    pub(super) fn is_lost(&mut self) -> bool {
        let lost = self.config.news.lost;
        lost > 0.0 && self.luck.f64() < lost
    }
}
