//! Faults of a simulated cluster.

use std::time::Duration;

use spillway_gossip::{Reach, RegionView};

use crate::world::World;

impl World {
    /// Ends a node without notice.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].gossip = None;
        self.nodes[node].timeout = None;
    }

    /// Cuts or mends the ways from all nodes of a region to all nodes of another.
    pub(crate) fn cut_region(&mut self, from: usize, to: usize, is_cut: bool) {
        let (senders, receivers) = (self.of(from), self.of(to));
        let ways = senders.iter().flat_map(|a| receivers.iter().map(move |b| (*a, *b)));
        for way in ways {
            if is_cut {
                self.cuts.insert(way);
            } else {
                self.cuts.remove(&way);
            }
        }
    }

    /// Lets `ms` milliseconds pass.
    pub(crate) fn run_ms(&mut self, ms: u64) {
        let end = self.now + Duration::from_millis(ms);
        self.run_until(end, |_| {});
    }

    /// Lets `ms` milliseconds pass while every node reports its load every 50 ms.
    pub(crate) fn run_fed_ms(&mut self, ms: u64) {
        for _ in 0..ms / 50 {
            (0..self.nodes.len()).for_each(|node| self.feed(node));
            self.run_ms(50);
        }
    }

    /// Returns a node's knowledge of the region with that number.
    pub(crate) fn view(&self, node: usize, region: usize) -> RegionView {
        let name = format!("r{region:02}");
        let views = self.gossip(node).regions(self.now);
        views.into_iter().find(|view| view.region.as_str() == name).unwrap()
    }

    pub(crate) fn reach(&self, node: usize, region: usize) -> Reach {
        self.view(node, region).reach
    }

    /// The nodes of a region.
    pub(crate) fn of(&self, region: usize) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].region == region).collect()
    }

    /// Returns the time until `is_so`, milliseconds; looks every 5, and gives up at `most_ms`.
    pub(crate) fn wait_ms(&mut self, most_ms: u64, is_so: impl Fn(&Self) -> bool) -> u64 {
        let mut waited_ms = 0;
        while !is_so(self) {
            assert!(waited_ms < most_ms, "not within {most_ms} ms");
            if waited_ms % 50 == 0 {
                (0..self.nodes.len()).for_each(|node| self.feed(node));
            }
            self.run_ms(5);
            waited_ms += 5;
        }
        waited_ms
    }
}
