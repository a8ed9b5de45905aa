//! Knowledge of nodes about regions: the present state of their own, the last report of others.

use spillway_types::{ModelLoad, RAMP_FULL};

use super::{
    COUNT_EVERY, Event, MS, RATE_WINDOW, REPORT_EVERY, Region, Request, SECOND, SLOTS, World,
};
use crate::spill::{
    Access, CountHistory, OwnRegion, RegionCandidate, RegionReport, Waiting, shed_state,
};

/// Knowledge of a node about another region.
#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    pub(super) sent: u64,
    pub(super) ended: u64,
    sent_history: CountHistory,
    ended_history: CountHistory,
    report: Option<Report>,
}

#[derive(Clone, Copy, Debug)]
struct Report {
    made: u64,
    load: ModelLoad,
    /// Counters as of the moment that the report can know.
    sent: u64,
    ended: u64,
}

impl World<'_> {
    pub(super) fn own(&mut self, region: usize, node: usize, waiting: Waiting) -> OwnRegion {
        let mut load = self.load(region);
        load.queued -= self.regions[region].nodes[node].queue.len() as f32;
        OwnRegion {
            replicas: if self.slots(region) > 0 { 5 } else { 0 },
            report: RegionReport { load, ..RegionReport::default() },
            slots: Some((self.slots(region) - self.regions[region].running) as u32),
            waiting,
            guests: self.regions[region].guests,
            nodes: if self.scenario.knows_siblings { self.scenario.nodes as u32 } else { 1 },
            prefill_ms: 0.0,
            stall_ms: 0.0,
            price_ms: 0.0,
            weight_permille: RAMP_FULL,
            first_token_ms_max: None,
            rest_ms: 0.0,
            late_ms: None,
        }
    }

    fn slots(&self, region: usize) -> usize {
        if region < self.scenario.edges { 0 } else { SLOTS }
    }

    /// Returns the true load of a region.
    pub(super) fn load(&mut self, region: usize) -> ModelLoad {
        let (now, slots) = (self.now, self.slots(region));
        let Region { running, ends, nodes, .. } = &mut self.regions[region];
        while ends.front().is_some_and(|&at| at + RATE_WINDOW < now) {
            ends.pop_front();
        }
        let queued: usize = nodes.iter().map(|node| node.queue.len()).sum();
        let rate_per_s = ends.len() as f32 / (RATE_WINDOW.min(now.max(1)) as f32 / SECOND as f32);
        ModelLoad {
            queued: queued as f32,
            running: *running as f32,
            capacity: Some(slots as f32),
            rate_per_s: (rate_per_s > 0.0).then_some(rate_per_s),
            ..ModelLoad::default()
        }
    }

    pub(super) fn others(&self, request: &Request) -> Vec<RegionCandidate> {
        if !self.scenario.does_spill {
            return Vec::new();
        }
        let node = &self.regions[request.region].nodes[request.node];
        let candidate = |(to, link): (usize, &Link)| {
            let report = link.report.map(|report| RegionReport {
                load: report.load,
                age_ms: (self.now - report.made) as f32 / MS as f32,
                sent: (link.sent - report.sent) as u32,
                ended: (link.ended - report.ended) as u32,
            });
            let access = match report {
                None => Access::Unreachable,
                Some(_) if request.refused_by & 1 << to != 0 => Access::Refused,
                Some(_) => Access::Ready,
            };
            RegionCandidate {
                access,
                report: report.unwrap_or_default(),
                rtt_ms: self.scenario.rtt_ms[request.region][to] as f32,
                prefill_ms: 0.0,
                stall_ms: 0.0,
                pending_ms: 0.0,
                rest_ms: 0.0,
                is_shared: false,
                price_ms: 0.0,
                weight_permille: RAMP_FULL,
                ramp_permille: RAMP_FULL,
                is_home: false,
                home_ms: 0.0,
            }
        };
        let others = node.links.iter().enumerate().filter(|&(to, _)| to != request.region);
        others.map(candidate).collect()
    }

    pub(super) fn report(&mut self, region: usize) {
        if self.is_over() {
            return;
        }
        self.schedule(REPORT_EVERY, Event::Report { region });
        let mut load = self.load(region);
        let own = OwnRegion {
            report: RegionReport { load, ..RegionReport::default() },
            ..self.own(region, 0, Waiting { ahead: 0, wait_ms: None, all: 0, has_room: true })
        };
        load.shed = shed_state(&own, &self.scenario.terms);
        let report = self.reports.len();
        self.reports.push((self.now, load));
        for by in (0..self.regions.len()).filter(|&by| by != region) {
            self.schedule(self.one_way(region, by), Event::Heard { by, from: region, report });
        }
    }

    pub(super) fn hear(&mut self, by: usize, from: usize, report: usize) {
        let (made, load) = self.reports[report];
        let one_way = self.one_way(from, by);
        for node in &mut self.regions[by].nodes {
            let link = &mut node.links[from];
            let sent = link.sent_history.at(Self::instant(made.saturating_sub(one_way)));
            let ended = link.ended_history.at(Self::instant(made + one_way));
            link.report = Some(Report { made, load, sent, ended });
        }
        if self.scenario.decides_again {
            (0..self.scenario.nodes).for_each(|node| self.decide_again(by, node, from));
        }
    }

    pub(super) fn count(&mut self) {
        if self.is_over() {
            return;
        }
        self.schedule(COUNT_EVERY, Event::Count);
        let now = Self::instant(self.now);
        for node in self.regions.iter_mut().flat_map(|region| &mut region.nodes) {
            for link in &mut node.links {
                link.sent_history.record(now, link.sent);
                link.ended_history.record(now, link.ended);
            }
        }
    }
}
