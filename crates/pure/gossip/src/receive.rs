//! Datagrams that come in.

use std::time::Instant;

use spillway_codec::decode;
use spillway_types::{NodeName, RegionName};

use crate::datagram::{Body, Datagram, Echo, Report};
use crate::entry::{ModelEntry, SiblingEntry};
use crate::mirror::{Mirror, Taken};
use crate::window::Arrival;
use crate::{GossipError, GossipMachine};

/// Least time between two answers to one node, milliseconds: a node that asks more often has not
/// got the last answer yet.
const ANSWER_EVERY_MS: u32 = 20;

impl GossipMachine {
    /// Handles a datagram of `from`, the node that a verified certificate names.
    ///
    /// # Errors
    /// A datagram that is refused changes nothing but [`crate::GossipCounters`].
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        from: &NodeName,
        from_region: &RegionName,
        bytes: &[u8],
    ) -> Result<(), GossipError> {
        let result = self.take(now, from, from_region, bytes);
        match &result {
            Ok(()) => self.counters.taken += 1,
            Err(refusal) => self.counters.refused(refusal),
        }
        result
    }

    fn take(
        &mut self,
        now: Instant,
        from: &NodeName,
        from_region: &RegionName,
        bytes: &[u8],
    ) -> Result<(), GossipError> {
        let is_sibling = *from_region == self.me.region;
        let detector = if is_sibling {
            self.siblings.get(from).map(|sibling| &sibling.detector)
        } else {
            let foreigner = self.foreigners.get(from);
            foreigner.filter(|known| known.region == *from_region).map(|known| &known.detector)
        };
        let Some(detector) = detector else {
            return Err(GossipError::Stranger(from.clone()));
        };
        // Decoded only now, so that strangers cost little.
        let datagram: Datagram = decode(bytes)?;
        if datagram.origin != detector.id {
            return Err(GossipError::Origin(from.clone()));
        }
        if is_sibling {
            self.take_from_sibling(now, from, datagram)
        } else {
            self.take_from_foreigner(now, from, from_region, datagram)
        }
    }

    fn take_from_sibling(
        &mut self,
        now: Instant,
        from: &NodeName,
        datagram: Datagram,
    ) -> Result<(), GossipError> {
        if matches!(datagram.body, Body::Region(_)) {
            return Err(GossipError::Misplaced(from.clone()));
        }
        let deaf_ms = self.deaf_ms();
        let Some(sibling) = self.siblings.get_mut(from) else {
            return Err(GossipError::Stranger(from.clone()));
        };
        let before = sibling.bearing(deaf_ms);
        let tells = match &datagram.body {
            Body::Sibling { report, .. } => report.whole || !report.entries.is_empty(),
            Body::Region(_) | Body::Ask { .. } => false,
        };
        let arrival = sibling.detector.receive(now, &datagram);
        // After a restart of the node, none of its earlier reports holds.
        if arrival == Arrival::Reborn {
            sibling.start_over(&self.config);
        }
        match (arrival, datagram.body) {
            (Arrival::Late, Body::Sibling { report, .. }) => {
                // Only the report may have gaps to fill; the other fields of a late datagram are
                // outdated.
                sibling.mirror.take(now, report);
            }
            (Arrival::Old | Arrival::Late, _) => return Err(GossipError::Old(from.clone())),
            (_, Body::Sibling { echo, report }) => {
                self.take_sibling_report(now, from, echo, report);
            }
            (_, Body::Ask { incarnation, have }) => {
                self.take_question(now, from, incarnation, have);
            }
            // Refused above.
            (_, Body::Region(_)) => {}
        }
        self.settle_sibling(from, now);
        self.settle_speaker();
        let after = self.siblings.get(from).map(|sibling| sibling.bearing(deaf_ms));
        // Most datagrams only report that nothing changed.
        if tells || arrival == Arrival::Reborn || after != Some(before) {
            self.settle_claims(now);
        }
        Ok(())
    }

    fn take_sibling_report(
        &mut self,
        now: Instant,
        from: &NodeName,
        echo: Echo,
        report: Report<SiblingEntry>,
    ) {
        let Some(sibling) = self.siblings.get_mut(from) else { return };
        let proposes = report.entries.iter().any(|entry| match entry {
            SiblingEntry::Replica(replica) => replica.claim.proposed > replica.claim.usable,
            SiblingEntry::Share(_) => false,
        });
        match sibling.mirror.take(now, report) {
            Taken::Whole => {
                sibling.detector.complete();
                sibling.echoed = echo.version_of(self.incarnation);
            }
            Taken::Lacking => {
                let (have, every_ms) = (sibling.mirror.version(), self.config.ask_sibling_ms);
                if let Some(have) = sibling.detector.question(now, have, every_ms) {
                    let incarnation = sibling.detector.incarnation().unwrap_or_default();
                    self.ask(from, incarnation, have, now);
                }
            }
            // The other parts follow at once.
            Taken::Awaiting => {}
        }
        if proposes {
            // The node cannot use what it proposes before we have echoed it.
            self.sibling_cadence.hurry();
        }
    }

    fn take_from_foreigner(
        &mut self,
        now: Instant,
        from: &NodeName,
        from_region: &RegionName,
        datagram: Datagram,
    ) -> Result<(), GossipError> {
        if matches!(datagram.body, Body::Sibling { .. }) {
            return Err(GossipError::Misplaced(from.clone()));
        }
        let Some(foreigner) = self.foreigners.get_mut(from) else {
            return Err(GossipError::Stranger(from.clone()));
        };
        let arrival = foreigner.detector.receive(now, &datagram);
        match (arrival, &datagram.body) {
            // A late part fills gaps of the report, but its field about our contact is outdated.
            (Arrival::Late, Body::Region(report)) => {
                foreigner.mirror.take(now, report.clone());
                return Ok(());
            }
            (Arrival::Old | Arrival::Late, _) => return Err(GossipError::Old(from.clone())),
            // A restarted node reports all its entries again.
            (Arrival::Reborn, _) => foreigner.mirror = Mirror::new(self.config.entries_max),
            (Arrival::Newest, _) => {}
        }
        if let Some(region) = self.regions.get_mut(from_region) {
            region.receive(now, datagram.heard.checked_sub(1));
        }
        self.settle_region(from_region, now);
        match datagram.body {
            Body::Region(report) => self.take_region_report(now, from, report),
            Body::Ask { incarnation, have } => self.take_question(now, from, incarnation, have),
            // Refused above.
            Body::Sibling { .. } => {}
        }
        Ok(())
    }

    fn take_region_report(&mut self, now: Instant, from: &NodeName, report: Report<ModelEntry>) {
        let Some(foreigner) = self.foreigners.get_mut(from) else { return };
        match foreigner.mirror.take(now, report) {
            Taken::Whole => foreigner.detector.complete(),
            Taken::Lacking => {
                let (have, every_ms) = (foreigner.mirror.version(), self.config.ask_region_ms);
                if let Some(have) = foreigner.detector.question(now, have, every_ms) {
                    let incarnation = foreigner.detector.incarnation().unwrap_or_default();
                    self.ask(from, incarnation, have, now);
                }
            }
            // The other parts follow at once.
            Taken::Awaiting => {}
        }
    }

    fn take_question(&mut self, now: Instant, from: &NodeName, incarnation: u64, have: u64) {
        let detector = match (self.siblings.get_mut(from), self.foreigners.get_mut(from)) {
            (Some(sibling), _) => &mut sibling.detector,
            (None, Some(foreigner)) => &mut foreigner.detector,
            (None, None) => return,
        };
        if detector.may_answer(now, ANSWER_EVERY_MS) {
            self.counters.answered += 1;
            // A version of an earlier incarnation means nothing, so everything is sent.
            let have = if incarnation == self.incarnation { have } else { 0 };
            self.answer(from, have, now);
        }
    }
}
