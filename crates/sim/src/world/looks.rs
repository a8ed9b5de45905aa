//! Periodic news: nodes learn of their region and of other regions.

use std::sync::Arc;

use spillway_prefix::HotView;

use crate::Time;
use crate::router::region_name;
use crate::world::node::Elsewhere;
use crate::world::{World, WorldEvent};

/// Milliseconds between looks where everything is known at once: waiting requests are called.
const LOOK_MS: f64 = 100.0;

impl World {
    /// Lets the nodes of a region look at its replicas, report to the other regions, and call their
    /// waiting requests.
    pub(super) fn look(&mut self, region: usize) {
        for node in self.regions[region].nodes.clone() {
            self.look_at_replicas(node);
            self.sum_up(node);
        }
        self.report(region);
        self.count_kv(region);
        for node in self.regions[region].nodes.clone() {
            self.wake(node);
        }
        let signals_ms = self.config.news.signals_ms;
        let period_ms = if signals_ms > 0.0 { signals_ms } else { LOOK_MS };
        let next = self.now.after_us((period_ms * 1e3) as u64);
        self.agenda.put(next, WorldEvent::Look { region });
    }

    /// Updates the knowledge of a node just before it decides, if everything is known at once.
    pub(super) fn refresh(&mut self, node: usize) {
        if self.config.news.signals_ms <= 0.0 {
            self.look_at_replicas(node);
            self.sum_up(node);
        }
    }

    fn look_at_replicas(&mut self, node: usize) {
        let region = &self.regions[self.nodes[node].region];
        let replicas = &self.replicas[region.replicas.clone()];
        let signals = |at: usize, own: &crate::router::ReplicaSight| {
            replicas[at].signals(own.in_flight + own.elsewhere, own.started)
        };
        if self.config.news.signals_ms > 0.0 {
            self.nodes[node].look(signals);
        } else {
            self.nodes[node].look_now(signals);
        }
    }

    fn sum_up(&mut self, node: usize) {
        let region = &self.regions[self.nodes[node].region];
        let others: Vec<usize> = region.nodes.clone().filter(|&other| other != node).collect();
        let elsewhere: Vec<Elsewhere> = (0..region.replicas.len())
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
        let names = &self.regions[self.nodes[node].region].names;
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

    /// Sends the report of the region's first node to the other regions.
    fn report(&mut self, region: usize) {
        let speaker = &self.nodes[self.regions[region].nodes.start];
        let (load, made) = (speaker.report.load, self.now);
        for to in (0..self.regions.len()).filter(|&to| to != region) {
            let at = self.now.after_us(self.way_us(region, to));
            self.agenda.put(at, WorldEvent::Report { from: region, to, load, made });
        }
    }

    /// Lets the region's first node propose the changes in its caches.
    pub(super) fn propose(&mut self, region: usize) {
        let Some(every_ms) = self.config.news.hot_ms else { return };
        let speaker = self.regions[region].nodes.start;
        let delta = self.nodes[speaker].router.hot_delta(self.now.ms());
        if let Some(delta) = delta.filter(|delta| !delta.is_empty()) {
            let proposal = self.proposals;
            self.proposals += 1;
            self.deltas.insert(proposal, delta);
            let at = self.now.after_us((self.config.news.agree_ms * 1e3) as u64);
            self.agenda.put(at, WorldEvent::Agreed { region, proposal });
        }
        let next = self.now.after_us((every_ms * 1e3) as u64);
        self.agenda.put(next, WorldEvent::Propose { region });
    }

    /// Applies an agreed proposal; every node learns of it at once.
    pub(super) fn agree(&mut self, region: usize, proposal: usize) {
        let Some(delta) = self.deltas.remove(&proposal) else { return };
        self.trie.apply(&region_name(region), &delta, self.now.ms());
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
