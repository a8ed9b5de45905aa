//! Periodic news: nodes learn of their region and of other regions.

use std::sync::Arc;

use spillway_prefix::HotView;
use spillway_types::{Reading, Signals};

use crate::Time;
use crate::router::{ReplicaSight, region_name};
use crate::world::heard::{Report, silence_us};
use crate::world::node::{Elsewhere, RegionNews};
use crate::world::{World, WorldEvent};

/// Milliseconds between looks where everything is known at once: waiting requests are called.
const LOOK_MS: f64 = 100.0;

impl World {
    /// Lets the nodes of a group look at their replicas, report to the other regions, and call
    /// their waiting requests.
    pub(super) fn look(&mut self, group: usize) {
        let next = self.now.after_us(self.look_us());
        self.agenda.put(next, WorldEvent::Look { group });
        if self.is_region_lost(self.groups[group].region) {
            return;
        }
        for node in self.groups[group].nodes.clone() {
            self.look_at_replicas(node);
            self.sum_up(node);
        }
        self.report(group);
        for served in 0..self.groups[group].served.len() {
            self.count_kv(self.groups[group].served[served]);
        }
        for node in self.groups[group].nodes.clone() {
            self.wake(node);
        }
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
                self.nodes[node].look(self.now, at, (due, signals));
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
            let is_away = self.is_replica_lost(first + at);
            self.nodes[node].replicas[at].is_away = is_away;
        }
    }

    /// Returns the present report of a node's replica, with what the node had sent by then.
    fn signals(&self, node: usize, at: usize) -> Signals {
        let (node, group) = (&self.nodes[node], &self.groups[self.nodes[node].group]);
        let number = group.replicas.start + at;
        let replica = &self.replicas[number];
        let own = &node.replicas[at];
        let signals = if group.homes[at] == group.region {
            replica.signals(own.in_flight + own.elsewhere, own.started)
        } else {
            // What is still on its way to another region is not in the report.
            replica.signals(replica.requests(), node.arrived[at])
        };
        if self.is_lying(number) { idle(signals) } else { signals }
    }

    fn sum_up(&mut self, node: usize) {
        let group = &self.groups[self.nodes[node].group];
        let others: Vec<usize> = group.nodes.clone().filter(|&other| other != node).collect();
        let elsewhere: Vec<Elsewhere> = (0..group.replicas.len())
            .map(|at| {
                let told = others.iter().map(|&other| &self.nodes[other].replicas[at]);
                told.fold(Elsewhere::default(), |sum, told| Elsewhere {
                    in_flight: sum.in_flight + told.in_flight,
                    pending_tokens: sum.pending_tokens + told.pending_tokens,
                })
            })
            .collect();
        let told: Vec<(u32, Option<f32>)> = others
            .iter()
            .map(|&other| {
                let other = &self.nodes[other];
                let waits = u32::try_from(other.queue.len()).unwrap_or(u32::MAX);
                (waits, other.report.own_rate_per_s)
            })
            .collect();
        let instant = self.instant();
        let names = &self.groups[self.nodes[node].group].names;
        self.nodes[node].sum_up((self.now, instant), names, &elsewhere, &told);
    }

    fn count_kv(&mut self, region: usize) {
        if self.counts(self.now) {
            let replicas = self.regions[region].replicas.clone();
            let held: f32 = replicas.map(|at| self.replicas[at].signals(0, 0).kv_use.value).sum();
            let region = &mut self.regions[region];
            region.kv_use.add(f64::from(held) / region.replicas.len().max(1) as f64);
        }
    }

    /// Sends the report of the group's first node to the other regions.
    fn report(&mut self, group: usize) {
        let (news, made) = (self.news(group), self.now);
        let from = self.groups[group].region;
        let silence_us = self.silence_us();
        for to in (0..self.groups.len()).filter(|&to| to != group) {
            let region = self.groups[to].region;
            if !self.is_lost() && !self.is_cut(from, region) {
                let arrives = self.now.after_us(self.way_us(from, region));
                // Before the first report of all there is nobody who could be missed.
                let heard = &self.groups[group].heard[region];
                let hears = heard.last(made).is_none() || heard.is_heard(made, silence_us);
                let report = Report { news, made, arrives, hears };
                self.groups[to].heard[from].send(report, made);
            }
        }
    }

    /// Returns the microseconds after which a silent region is asked no more.
    pub(super) fn silence_us(&self) -> u64 {
        silence_us(self.look_us() as f64 / 1e3)
    }

    /// Returns true if a node knows that a region can't be reached.
    pub(super) fn is_unconnected(&self, node: usize, region: usize) -> bool {
        let heard = &self.groups[self.nodes[node].group].heard[region];
        self.is_broken(self.region_of(node), region)
            && heard.reached(self.now, self.silence_us()).is_none()
    }

    fn news(&self, group: usize) -> RegionNews {
        let nodes = &self.nodes[self.groups[group].nodes.clone()];
        // A region without nodes has nothing to say.
        let Some(speaker) = nodes.first() else { return RegionNews::default() };
        let here = || speaker.replicas.iter().filter(|replica| !replica.is_away);
        let queued = |replica: &ReplicaSight| replica.signals.queued.value;
        let held: f32 = here().map(|replica| replica.signals.kv_use.value).sum();
        let waits: usize = nodes.iter().map(|node| node.queue.len()).sum();
        RegionNews {
            load: speaker.report.load,
            available: here().filter(|replica| queued(replica) < 1.0).count() as u32,
            waiting: waits as u32 + here().map(queued).sum::<f32>() as u32,
            kv_use: held / here().count().max(1) as f32,
        }
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

    /// Returns the milliseconds since a report was made.
    pub(super) fn age_ms(&self, made: Time) -> f32 {
        self.now.ms_since(made) as f32
    }
}

/// Returns the report of a replica with nothing to do.
fn idle(signals: Signals) -> Signals {
    let nothing = Reading { value: 0.0, trust: 1.0 };
    Signals { queued: nothing, running: nothing, kv_use: nothing, ..signals }
}
