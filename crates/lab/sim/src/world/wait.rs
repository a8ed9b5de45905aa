//! Requests that wait in a node's queue.

use std::time::{Duration, Instant};

use spillway_journey::{Claim, Event as Outcome, WaitTerms};
use spillway_route::{Asker, Refusal, ShedReason, WaitEntry};
use spillway_types::Deadline;

use super::request::RequestState;
use super::{World, WorldEvent};

impl World {
    /// Lets a request wait in its node's queue, or go on waiting there. Returns false if the queue
    /// takes no more.
    pub(super) fn wait(&mut self, request: usize, terms: WaitTerms, claim: Claim) -> bool {
        if self.requests[request].ticket.is_none() && !self.enter(request, terms, claim) {
            return false;
        }
        self.requests[request].waited = true;
        self.pause(request, terms.pause);
        true
    }

    /// Lets a request pause before its node decides again.
    pub(super) fn pause(&mut self, request: usize, pause: Duration) {
        let asked = &mut self.requests[request];
        asked.state = RequestState::Waiting;
        asked.pauses += 1;
        let number = asked.pauses;
        let pause_us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        self.agenda.put(self.now.after_us(pause_us), WorldEvent::Paused { request, pause: number });
    }

    fn enter(&mut self, request: usize, terms: WaitTerms, claim: Claim) -> bool {
        let now = self.instant();
        let asked = &self.requests[request];
        let node = asked.node;
        let asker = self.asking(request, node, |_, ask, _, _| ask.asker(claim));
        let Asker { priority, tenant, weight, tokens, bytes, fingerprint, is_promised } = asker;
        let deadline = Deadline::after(now, terms.until.saturating_duration_since(now));
        let entry = WaitEntry {
            priority,
            tenant,
            weight,
            tokens,
            bytes,
            fingerprint,
            is_promised,
            begin_by: terms.begin_by,
            turn_by: terms.turn_by,
            ..WaitEntry::new(request, deadline)
        };
        let Ok((entered, turn_by)) = self.nodes[node].queue.enter(entry, now) else {
            return false;
        };
        let asked = &mut self.requests[request];
        (asked.ticket, asked.turn_by) = (Some(entered.ticket), turn_by);
        for (_, victim) in entered.pushed_out {
            self.send_away(node, &victim, ShedReason::PushedOut);
        }
        true
    }

    /// Takes a request out of its node's queue, if it is there.
    pub(super) fn leave_queue(&mut self, request: usize) {
        let now = self.instant();
        let asked = &mut self.requests[request];
        if let Some(ticket) = asked.ticket.take() {
            self.nodes[asked.node].queue.remove(ticket, now);
        }
    }

    /// Decides again about a request whose pause is over.
    pub(super) fn pause_over(&mut self, request: usize, pause: u32) {
        let asked = &self.requests[request];
        // An earlier pause may end while the request is somewhere else by now.
        if asked.state == RequestState::Waiting && asked.pauses == pause {
            self.tell(request, asked.node, Outcome::Paused);
            self.drive(request);
        }
    }

    /// Calls the first of the requests that wait in a node, since a slot may have come free; and the
    /// next ones, as long as they find slots.
    pub(super) fn wake(&mut self, node: usize) {
        let now = self.instant();
        self.expire(node);
        while let Some(entry) = self.nodes[node].queue.take_next(now) {
            let request = entry.item;
            let asked = &mut self.requests[request];
            asked.ticket = None;
            // Called early, it is due from now on. Called late, it is due since its turn.
            let due = asked.turn_by.map_or(now, |turn_by: Instant| turn_by.min(now));
            self.tell(request, node, Outcome::Turn { due });
            self.drive(request);
            // The first in the queue found no slot, so the next ones would not either.
            if !matches!(self.requests[request].state, RequestState::Assigned(_)) {
                return;
            }
        }
    }

    /// Sends those requests away that waited for as long as they may.
    fn expire(&mut self, node: usize) {
        let now = self.instant();
        while let Some((entry, reason)) = self.nodes[node].queue.expire(now) {
            self.send_away(node, &entry, reason);
        }
    }

    /// Ends a request's wait, and gives it the time at which to retry.
    fn send_away(&mut self, node: usize, entry: &WaitEntry<usize>, reason: ShedReason) {
        let (now, request) = (self.instant(), entry.item);
        let asker = entry.asker();
        // Seeded by the request alone, so that this draw changes no other random number of the run.
        let mut rng = fastrand::Rng::with_seed(asker.fingerprint);
        let refusal = Refusal::new(reason, 0.0);
        let retry_after = self.nodes[node].queue.shed(&asker, (refusal, |_| None), now, &mut rng);
        self.requests[request].ticket = None;
        self.tell(request, node, Outcome::SentAway { reason, retry_after });
        self.drive(request);
    }
}
