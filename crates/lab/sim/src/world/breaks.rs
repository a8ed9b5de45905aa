//! Effects of faults on requests under way, and the ways in which nodes notice.

use std::ops::Range;

use spillway_journey::{Event as Outcome, RegionFailure, RetrySafety};

use super::fault::{Fault, FaultKind};
use super::record::Fate;
use super::request::{Assignment, RequestState};
use super::{World, WorldEvent};
use crate::Time;

impl World {
    /// Begins a fault.
    pub(super) fn break_down(&mut self, fault: usize) {
        let fault = self.config.faults[fault];
        self.faults.push(fault);
        match fault.kind {
            // Where streams are continued, a cut is survived if it is short.
            FaultKind::Cut { .. } | FaultKind::OneWay { .. } if self.continues_streams() => {}
            FaultKind::Cut { .. } | FaultKind::OneWay { .. } => self.break_links(),
            FaultKind::ReplicaLost { replica } => self.lose_replicas(replica..replica + 1),
            FaultKind::RegionLost { region, .. } => self.lose_region(region),
            FaultKind::ReplicaDrained { replica } => self.drain_replica(replica),
            FaultKind::RegionDrained { region } => self.drain_region(region),
            FaultKind::Slow { .. } | FaultKind::Lying { .. } | FaultKind::Poison { .. } => {}
        }
    }

    /// Ends a fault.
    pub(super) fn repair(&mut self, fault: usize) {
        let fault = self.config.faults[fault];
        if let Some(at) = self.faults.iter().position(|active| *active == fault) {
            self.faults.remove(at);
        }
        if let FaultKind::RegionDrained { region } = fault.kind {
            self.drain_region(region);
        }
    }

    /// Returns true if nothing gets from one region to the other now.
    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.faults.iter().any(|fault| fault.kind.cuts(from, to))
    }

    /// Returns true if requests and their replies don't get through between two regions now.
    pub(super) fn is_broken(&self, a: usize, b: usize) -> bool {
        self.is_cut(a, b) || self.is_cut(b, a)
    }

    /// Returns true if the replicas and nodes of a region are gone now.
    pub(super) fn is_region_lost(&self, region: usize) -> bool {
        self.region_loss(region).is_some()
    }

    fn region_loss(&self, region: usize) -> Option<&Fault> {
        self.faults.iter().find(|fault| {
            matches!(fault.kind, FaultKind::RegionLost { region: lost, .. } if lost == region)
        })
    }

    /// Returns true if connections to a replica are refused now.
    pub(super) fn is_replica_lost(&self, replica: usize) -> bool {
        self.faults.iter().any(|fault| match fault.kind {
            FaultKind::ReplicaLost { replica: lost } => lost == replica,
            FaultKind::RegionLost { region, .. } => {
                self.regions[region].replicas.contains(&replica)
            }
            _ => false,
        })
    }

    /// Returns true if a replica reports that it has nothing to do.
    pub(super) fn is_lying(&self, replica: usize) -> bool {
        self.faults.iter().any(|fault| fault.kind == FaultKind::Lying { replica })
    }

    /// Returns the region whose nodes the clients of a region ask now; `None` if no node answers
    /// them.
    pub(super) fn asked_region(&self, region: usize) -> Option<usize> {
        let Some(Fault { kind: FaultKind::RegionLost { moved_after_s, .. }, begin_s, .. }) =
            self.region_loss(region)
        else {
            return Some(region);
        };
        let others = (0..self.regions.len()).filter(|&other| {
            !self.is_region_lost(other) && !self.groups[self.entry_group(other)].nodes.is_empty()
        });
        let is_moved = self.now >= Time::from_s(begin_s + moved_after_s);
        others.min_by_key(|&other| self.way_us(region, other)).filter(|_| is_moved)
    }

    /// Breaks the links over paths that are cut, with all requests on them.
    fn break_links(&mut self) {
        for request in 0..self.requests.len() {
            let asked = &self.requests[request];
            let Some(region) = asked.forwarded_to.filter(|_| asked.state != RequestState::Over)
            else {
                continue;
            };
            let home = self.region_of(asked.entry);
            if self.is_broken(home, region) {
                self.withdraw(request);
                let asked = &mut self.requests[request];
                (asked.node, asked.inquiry.hop) = (asked.entry, 0);
                self.break_link(request, self.way_us(home, region));
            }
        }
    }

    /// Lets the node that forwarded a request see in so many microseconds that the link broke.
    pub(super) fn break_link(&mut self, request: usize, seen_us: u64) {
        let attempt = self.requests[request].attempt;
        let seen = self.now.after_us(seen_us);
        self.agenda.put(seen, WorldEvent::LinkBroken { request, attempt });
    }

    /// Takes a request back whose link to another region broke.
    pub(super) fn link_broken(&mut self, request: usize) {
        let instant = self.instant();
        let asked = &mut self.requests[request];
        let entry = asked.entry;
        if let Some(region) = asked.forwarded_to.take() {
            self.nodes[entry].count_forwarded(region, 0, 1, instant);
        }
        let asked = &mut self.requests[request];
        if asked.state == RequestState::Over {
            return;
        }
        // A client that has a part of a reply gets no other one.
        if asked.is_answered {
            return self.over(request, Fate::Failed, 0);
        }
        asked.first_token_ms = None;
        // The other region may have seen the request, and nodes don't know the effect of a
        // repetition.
        let failure = RegionFailure::Broken { safety: RetrySafety::Never };
        self.tell(request, entry, Outcome::RegionFailed { failure, can_repeat: true });
        self.drive(request);
    }

    /// Takes a request out of the node and the replica where it is.
    pub(super) fn withdraw(&mut self, request: usize) {
        self.leave_queue(request);
        let node = self.requests[request].node;
        if let RequestState::Assigned(assignment) = self.requests[request].state {
            self.replicas[assignment.replica].abort(request);
            self.vacate(request, &assignment);
            self.schedule(assignment.replica);
        }
        if node != self.requests[request].entry {
            self.nodes[node].router.left(request);
        }
        let asked = &mut self.requests[request];
        asked.state = RequestState::Moving;
        // Whatever else was to happen with the attempt does not.
        asked.attempt += 1;
    }

    /// Breaks the connections to replicas, and empties their caches.
    pub(super) fn lose_replicas(&mut self, lost: Range<usize>) {
        let mut broken = Vec::new();
        for request in 0..self.requests.len() {
            match self.requests[request].state {
                RequestState::Assigned(assignment) if lost.contains(&assignment.replica) => {
                    self.replicas[assignment.replica].abort(request);
                    broken.push((request, assignment));
                }
                _ => {}
            }
        }
        for replica in lost {
            self.replicas[replica].restart(self.config.engine);
            self.break_kv_events(replica);
            self.schedule(replica);
        }
        for (request, assignment) in broken {
            // A part of a stream may have been dropped with another one.
            if self.requests[request].state == RequestState::Assigned(assignment) {
                self.connection_failed(request, &assignment, RetrySafety::Reset);
            }
        }
    }

    /// Reports to a node that a replica refused the connection.
    pub(super) fn unconnected(&mut self, request: usize) {
        let RequestState::Assigned(assignment) = self.requests[request].state else { return };
        let node = self.requests[request].node;
        self.connection_failed(request, &assignment, RetrySafety::Unsent);
        self.wake(node);
    }

    /// Takes a request back whose connection to a replica failed; its node asks that one no more.
    fn connection_failed(&mut self, request: usize, assignment: &Assignment, safety: RetrySafety) {
        let node = self.requests[request].node;
        let first = self.groups[self.nodes[node].group].replicas.start;
        self.nodes[node].replicas[assignment.replica - first].is_away = true;
        self.vacate(request, assignment);
        if assignment.first_token.is_some() && self.continues_streams() {
            return self.part_broke(request);
        }
        let asked = &mut self.requests[request];
        asked.attempt += 1;
        if assignment.first_token.is_some() {
            return self.over(request, Fate::Failed, 0);
        }
        asked.state = RequestState::Moving;
        asked.generated = 0;
        let failed = Outcome::Failed {
            safety,
            is_fault: true,
            was_kept: false,
            can_repeat: true,
            is_death: self.continues_streams() && safety == RetrySafety::Reset,
        };
        self.tell(request, node, failed);
        self.drive(request);
    }

    /// Ends all work in a region that is gone.
    fn lose_region(&mut self, region: usize) {
        let own = self.groups.iter().position(|group| group.region == region);
        for request in 0..self.requests.len() {
            let asked = &self.requests[request];
            let is_here = self.region_of(asked.entry) == region;
            if asked.state == RequestState::Over || !is_here || asked.part_of.is_some() {
                // Parts of a stream end with it.
            } else if self.streams.contains_key(&request) {
                self.client_gone(request);
            } else {
                self.withdraw(request);
                let instant = self.instant();
                let asked = &mut self.requests[request];
                (asked.node, asked.inquiry.hop) = (asked.entry, 0);
                if let Some(other) = asked.forwarded_to.take() {
                    self.nodes[asked.entry].count_forwarded(other, 0, 1, instant);
                }
                self.over(request, Fate::Failed, 0);
            }
        }
        if self.continues_streams() {
            self.strand_guests(region);
        } else {
            self.break_links();
        }
        self.lose_replicas(self.regions[region].replicas.clone());
        for node in own.map_or(0..0, |group| self.groups[group].nodes.clone()) {
            self.nodes[node].replicas.iter_mut().for_each(|replica| replica.is_away = true);
        }
    }
}
