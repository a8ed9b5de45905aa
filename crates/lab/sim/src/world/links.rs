//! Links between regions where streams are continued: bytes sent over a path that is cut arrive
//! once the path is restored, unless the node that waits for it has given the region up by then.

use std::time::Duration;

use spillway_journey::{Event as Outcome, RegionFailure, SOURCE_LOOK};

use super::request::RequestState;
use super::{World, WorldEvent};
use crate::Time;

/// Silence after which a region that is out of reach has lost the requests that were forwarded to
/// it.
const REGION_SILENCE: Duration = Duration::from_secs(1);

impl World {
    /// Returns the moment at which an event can get through between two regions; `None` if nothing
    /// holds it up.
    pub(super) fn held_until(&self, event: &WorldEvent) -> Option<Time> {
        if !self.continues_streams() {
            return None;
        }
        let (home, away) = self.ends_of(event).filter(|(home, away)| home != away)?;
        let way_us = self.way_us(home, away);
        let holds = |fault: &&super::Fault| {
            let is_cut = fault.kind.cuts(home, away) || fault.kind.cuts(away, home);
            is_cut && fault.begin() <= self.now && self.now < fault.end().after_us(way_us)
        };
        let ends = self.config.faults.iter().filter(holds).map(super::Fault::end);
        ends.max().map(|end| end.after_us(way_us))
    }

    /// Returns the regions between which an event travels.
    fn ends_of(&self, event: &WorldEvent) -> Option<(usize, usize)> {
        let home = |request: usize| self.region_of(self.requests[request].entry);
        match *event {
            WorldEvent::Guest { request, region, .. }
            | WorldEvent::Refused { request, region, .. } => Some((home(request), region)),
            WorldEvent::Answered { request, .. }
            | WorldEvent::BroughtBack { request, .. }
            | WorldEvent::Token { request, .. }
            | WorldEvent::SourceBroke { request, .. } => {
                Some((home(request), self.region_of(self.requests[request].node)))
            }
            _ => None,
        }
    }

    /// Lets the node that forwards a request look after the other region.
    pub(super) fn watch(&mut self, request: usize) {
        if self.continues_streams() {
            let at = self.now.after_us(REGION_SILENCE.as_micros() as u64);
            self.agenda.put(at, WorldEvent::Watched { request });
        }
    }

    /// Takes a request back whose reply has not begun, if its region is out of reach.
    pub(super) fn watched(&mut self, request: usize) {
        let asked = &self.requests[request];
        let (entry, is_over) = (asked.entry, asked.state == RequestState::Over);
        let Some(region) = asked.forwarded_to.filter(|_| !is_over && !asked.is_answered) else {
            return;
        };
        if self.is_reachable(entry, region) {
            let at = self.now.after_us(SOURCE_LOOK.as_micros() as u64);
            return self.agenda.put(at, WorldEvent::Watched { request });
        }
        self.withdraw(request);
        self.come_home(request);
        self.requests[request].first_token_ms = None;
        let failure = RegionFailure::Lost;
        self.tell(request, entry, Outcome::RegionFailed { failure, can_repeat: true });
        self.drive(request);
    }

    /// Ends what guests had in a region that is gone. Their own nodes notice by its silence.
    pub(super) fn strand_guests(&mut self, region: usize) {
        for request in 0..self.requests.len() {
            let asked = &self.requests[request];
            if asked.forwarded_to == Some(region) && asked.state != RequestState::Over {
                self.withdraw(request);
            }
        }
    }
}
