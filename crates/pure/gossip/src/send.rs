//! Datagrams that go out.

use std::time::Instant;

use spillway_codec::encode;
use spillway_types::NodeName;

use crate::GossipMachine;
use crate::datagram::{Body, Datagram, ENVELOPE_BYTES_MAX, Echo, Report};
use crate::entry::{ModelEntry, ReportEntry, SiblingEntry};
use crate::ledger::{Ledger, Portion, parts};
use crate::time::ms_since;

impl GossipMachine {
    /// Returns when the next report to the own region is due; `None` without other nodes in it.
    pub(crate) fn siblings_due(&self) -> Option<Instant> {
        let due = || self.sibling_cadence.due(&self.config, self.sibling_ledger.change());
        (!self.siblings.is_empty()).then(due)
    }

    /// Returns when the next report to other regions is due; `None` if this node does not speak, or
    /// there are none.
    pub(crate) fn regions_due(&self) -> Option<Instant> {
        let due = || self.region_cadence.due(&self.config, self.region_ledger.change());
        (self.is_speaker() && !self.foreigners.is_empty()).then(due)
    }

    pub(crate) fn is_speaker(&self) -> bool {
        self.speaker == self.me.node
    }

    pub(crate) fn send_siblings(&mut self, now: Instant) {
        let portion = self.sibling_ledger.publish(self.ignored(), self.portion_bytes_max());
        for (id, claim) in self.claims.entries().collect::<Vec<_>>() {
            if let Some(SiblingEntry::Replica(told)) = self.sibling_ledger.sent(id)
                // The line may not have found room in this report.
                && told.claim.proposed == claim.proposed
            {
                self.claims.sent(id, claim, self.sibling_ledger.version());
            }
        }
        let reports = self.reports(&self.sibling_ledger, portion, now);
        for node in self.siblings.keys().cloned().collect::<Vec<_>>() {
            self.send_to_sibling(&node, &reports, now);
        }
        self.sibling_cadence.sent(&self.config, now, &mut self.rng);
    }

    pub(crate) fn send_regions(&mut self, now: Instant) {
        let portion = self.region_ledger.publish(self.ignored(), self.portion_bytes_max());
        let reports = self.reports(&self.region_ledger, portion, now);
        for node in self.foreigners.keys().cloned().collect::<Vec<_>>() {
            self.send_to_foreigner(&node, &reports, now);
        }
        self.region_cadence.sent(&self.config, now, &mut self.rng);
    }

    /// Sends `node` what it lacks of our incarnation, of which it has version `have` whole.
    pub(crate) fn answer(&mut self, node: &NodeName, have: u64, now: Instant) {
        if self.siblings.contains_key(node) {
            let portion = self.sibling_ledger.since(have);
            let reports = self.reports(&self.sibling_ledger, portion, now);
            self.send_to_sibling(node, &reports, now);
        // Another node may have become the speaker since; its own report counts then.
        } else if self.is_speaker() {
            let portion = self.region_ledger.since(have);
            let reports = self.reports(&self.region_ledger, portion, now);
            self.send_to_foreigner(node, &reports, now);
        }
    }

    /// Asks `node` for what is missing of its report.
    pub(crate) fn ask(&mut self, node: &NodeName, incarnation: u64, have: u64, now: Instant) {
        self.counters.asked += 1;
        let heard = if let Some(sibling) = self.siblings.get(node) {
            sibling.detector.heard_code(now)
        } else {
            self.heard_region_of(node, now)
        };
        self.send(node, heard, Body::Ask { incarnation, have });
    }

    fn send_to_sibling(&mut self, node: &NodeName, reports: &[Report<SiblingEntry>], now: Instant) {
        let Some(sibling) = self.siblings.get(node) else { return };
        let heard = sibling.detector.heard_code(now);
        let incarnation = sibling.detector.incarnation().unwrap_or_default();
        let echo = Echo::new(incarnation, sibling.mirror.version());
        for report in reports {
            self.send(node, heard, Body::Sibling { echo, report: report.clone() });
        }
    }

    fn send_to_foreigner(&mut self, node: &NodeName, reports: &[Report<ModelEntry>], now: Instant) {
        let heard = self.heard_region_of(node, now);
        for report in reports {
            self.send(node, heard, Body::Region(report.clone()));
        }
    }

    fn heard_region_of(&self, node: &NodeName, now: Instant) -> u32 {
        let region = self.foreigners.get(node).and_then(|f| self.regions.get(&f.region));
        region.map_or(0, |region| region.heard_code(now))
    }

    fn send(&mut self, node: &NodeName, heard: u32, body: Body) {
        self.seq += 1;
        let (origin, incarnation, seq) = (self.id, self.incarnation, self.seq);
        let datagram = Datagram { origin, incarnation, seq, heard, body };
        // The number of entries is bounded, so that the datagram fits; one that does not counts as
        // lost.
        let Ok(bytes) = encode(&datagram) else {
            self.counters.transmits_dropped += 1;
            return;
        };
        if self.transmits.len() >= self.config.transmit_max {
            self.transmits.pop_front();
            self.counters.transmits_dropped += 1;
        }
        self.transmits.push_back((node.clone(), bytes));
    }

    /// Splits a portion into reports that fit into a datagram each.
    fn reports<E: ReportEntry>(
        &self,
        ledger: &Ledger<E>,
        portion: Portion<E>,
        now: Instant,
    ) -> Vec<Report<E>> {
        let parts = parts(portion.entries, self.entry_bytes_max());
        let count = parts.len();
        parts
            .into_iter()
            .enumerate()
            .map(|(index, entries)| Report {
                age_ms: self.load_at.map_or(0, |at| ms_since(at, now)),
                version: ledger.version(),
                digest: ledger.digest(),
                whole: portion.whole && index == 0,
                more: index + 1 < count,
                entries,
            })
            .collect()
    }

    fn ignored(&self) -> f32 {
        self.config.ignored_permille as f32 / 1_000.0
    }

    fn entry_bytes_max(&self) -> usize {
        self.config.datagram_bytes_max.saturating_sub(ENVELOPE_BYTES_MAX)
    }

    fn portion_bytes_max(&self) -> usize {
        self.entry_bytes_max() * self.config.parts_max
    }
}
