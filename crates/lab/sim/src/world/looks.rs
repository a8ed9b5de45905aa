//! Periodic news: nodes learn of their region and of other regions.

use std::sync::Arc;
use std::time::Duration;

use spillway_prefix::HotView;
use spillway_types::{Reading, Signals};

use crate::Time;
use crate::router::region_name;
use crate::text::mix;
use crate::world::gossip::KnownRegion;
use crate::world::{World, WorldEvent};

/// Milliseconds between looks where everything is known at once: waiting requests are called.
const LOOK_MS: f64 = 100.0;

/// Microseconds between two measurements of a node's own load, as in the gateway.
const TICK_US: u64 = 50_000;

/// Microseconds between two counts of a node's own requests, as in the gateway.
const COUNT_US: u64 = 10_000;

impl World {
    /// Lets the nodes of a group look at their replicas.
    pub(super) fn look(&mut self, group: usize) {
        let next = self.now.after_us(self.look_us());
        self.agenda.put(next, WorldEvent::Look { group });
        if self.is_region_lost(self.groups[group].region) {
            return;
        }
        for node in self.groups[group].nodes.clone() {
            self.look_at_replicas(node);
        }
        // A lone node sends no reports, so it does not tick.
        if self.nodes.len() == 1 {
            self.sum_up(0);
            self.wake(0);
        }
    }

    /// Adds the first measurements of all nodes. A lone node has no node to report to.
    pub(super) fn begin_gossip(&mut self) {
        // Nodes don't measure in step with each other.
        let mut spread = fastrand::Rng::with_seed(mix(self.config.seed, 0x7469_636B));
        for node in (0..self.nodes.len()).filter(|_| self.nodes.len() > 1) {
            let at = Time(spread.u64(0..TICK_US));
            self.agenda.put(at, WorldEvent::Tick { node });
            if self.has_siblings(node) {
                self.agenda.put(at, WorldEvent::Count { node });
            }
        }
    }

    fn has_siblings(&self, node: usize) -> bool {
        self.groups[self.nodes[node].group].nodes.len() > 1
    }

    /// Lets a node measure its load and report it to others.
    pub(super) fn tick(&mut self, node: usize) {
        self.agenda.put(self.now.after_us(TICK_US), WorldEvent::Tick { node });
        if self.is_region_lost(self.region_of(node)) {
            return;
        }
        self.publish(node);
        let instant = self.instant();
        self.nodes[node].gossip.machine.handle_timeout(instant);
        self.settle_gossip(node);
    }

    /// Lets a node that has siblings count its requests, and those that the siblings reported.
    pub(super) fn count(&mut self, node: usize) {
        self.agenda.put(self.now.after_us(COUNT_US), WorldEvent::Count { node });
        if !self.is_region_lost(self.region_of(node)) {
            let names = &self.groups[self.nodes[node].group].names;
            self.nodes[node].count(names);
            self.settle_gossip(node);
        }
    }

    /// Measures a node's own load, reads the reports of others, and calls its waiting requests.
    pub(super) fn publish(&mut self, node: usize) {
        self.sum_up(node);
        let (now, instant, home) = (self.now, self.instant(), self.region_of(node));
        let names = &self.groups[self.nodes[node].group].names;
        let load = self.nodes[node].own_load(names, self.has_siblings(node));
        self.nodes[node].gossip.machine.set_load(instant, &load);
        for region in (0..self.regions.len()).filter(|&region| region != home) {
            let way = Duration::from_micros((self.seen_rtt_ms(home, region) * 500.0) as u64);
            let node = &mut self.nodes[node];
            let about = (&self.network.regions[region], &self.model);
            let known = node.gossip.report(about, way, instant).map(|(load, age)| {
                let history = &node.forwarded[region].history;
                let (sent, ended) = history.known_to_report(instant, age, way);
                let (age_ms, counts) = (age.as_secs_f32() * 1e3, node.gossip.counts_of(region));
                KnownRegion { load, age_ms, read: now, sent, ended, counts }
            });
            node.gossip.regions[region] = known;
        }
        self.wake(node);
    }

    /// Updates the knowledge of a node just before it decides, if everything is known at once.
    pub(super) fn refresh(&mut self, node: usize) {
        if self.config.news.signals_ms <= 0.0 {
            self.look_at_replicas(node);
            self.sum_up(node);
        }
    }

    fn look_us(&self) -> u64 {
        let signals_ms = self.config.news.signals_ms;
        ((if signals_ms > 0.0 { signals_ms } else { LOOK_MS }) * 1e3) as u64
    }

    fn look_at_replicas(&mut self, node: usize) {
        self.look_for_replicas(node);
        let period_us = self.look_us();
        for at in 0..self.nodes[node].replicas.len() {
            let signals = self.signals(node, at);
            if self.config.news.signals_ms > 0.0 {
                let group = &self.groups[self.nodes[node].group];
                let way_us = self.way_us(group.homes[at], group.region);
                let due = self.now.after_us(period_us + way_us);
                let now = (self.now, self.instant());
                self.nodes[node].look(now, at, (due, signals));
            } else {
                self.nodes[node].replicas[at].signals = signals;
            }
        }
        let instant = self.instant();
        self.nodes[node].add_latencies(instant);
    }

    /// Lets a node notice which of its replicas take connections.
    fn look_for_replicas(&mut self, node: usize) {
        let first = self.groups[self.nodes[node].group].replicas.start;
        for at in 0..self.nodes[node].replicas.len() {
            let is_away = self.is_replica_lost(first + at) || self.is_replica_drained(first + at);
            self.nodes[node].replicas[at].is_away = is_away;
        }
    }

    /// Returns the present report of a node's replica, with the number of requests that the node
    /// had sent by then.
    fn signals(&self, node: usize, at: usize) -> Signals {
        let (node, group) = (&self.nodes[node], &self.groups[self.nodes[node].group]);
        let number = group.replicas.start + at;
        let replica = &self.replicas[number];
        let own = &node.replicas[at];
        let signals = if group.homes[at] == group.region {
            replica.signals(own.in_flight + own.elsewhere, own.started)
        } else {
            // Requests in transit to another region are not in the report.
            replica.signals(replica.requests(), node.arrived[at])
        };
        if self.is_lying(number) { idle(signals) } else { signals }
    }

    fn sum_up(&mut self, node: usize) {
        let instant = self.instant();
        let names = &self.groups[self.nodes[node].group].names;
        self.nodes[node].sum_up(self.now, instant, names);
    }

    /// Returns true if a node knows that a region can't be reached.
    pub(super) fn is_unconnected(&self, node: usize, region: usize) -> bool {
        self.is_broken(self.region_of(node), region)
            && self.nodes[node].gossip.regions[region].is_none()
    }

    /// Lets the group's first node propose the changes in its caches.
    pub(super) fn propose(&mut self, group: usize) {
        let Some(every_ms) = self.config.news.hot_ms else { return };
        let next = self.now.after_us((every_ms * 1e3) as u64);
        let speaker = self.groups[group].nodes.start;
        let is_gone = self.is_region_lost(self.groups[group].region);
        let delta =
            (!is_gone).then(|| self.nodes[speaker].router.hot_delta(self.now.ms())).flatten();
        if let Some(delta) = delta.filter(|delta| !delta.is_empty()) {
            let proposal = self.proposals;
            self.proposals += 1;
            self.deltas.insert(proposal, delta);
            let at = self.now.after_us((self.config.news.agree_ms * 1e3) as u64);
            self.agenda.put(at, WorldEvent::Agreed { group, proposal });
        }
        self.agenda.put(next, WorldEvent::Propose { group });
    }

    /// Applies an agreed proposal; every node learns of it at once.
    pub(super) fn agree(&mut self, group: usize, proposal: usize) {
        let Some(delta) = self.deltas.remove(&proposal) else { return };
        let region = region_name(self.groups[group].region);
        self.trie.apply(&region, &delta, self.now.ms());
        let view = Arc::new(HotView::new(&self.trie));
        for node in &mut self.nodes {
            node.router.hot_changed(&view);
        }
    }
}

/// Returns the report of a replica with nothing to do.
fn idle(signals: Signals) -> Signals {
    let nothing = Reading { value: 0.0, trust: 1.0 };
    Signals { queued: nothing, running: nothing, kv_use: nothing, ..signals }
}
