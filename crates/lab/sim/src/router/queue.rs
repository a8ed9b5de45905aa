//! Queue of a node: the gateway's admission, with its promises.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use spillway_route::{
    Admission, Asker, BUSY_AFTER_SHED, Entered, Full, Refusal, ShedReason, WaitEntry, WaitLimits,
    WaitTicket, Waiting,
};

/// Requests that wait in a node, by their numbers. One model is served, so there is one queue.
#[derive(Debug)]
pub struct Queue {
    // In a cell because decisions read it, and a read may set the expected rate.
    admission: RefCell<Admission<usize>>,
    limits: WaitLimits,
    shed_at: Cell<Option<Instant>>,
}

impl Queue {
    /// Returns an empty queue.
    #[must_use]
    pub fn new(limits: WaitLimits) -> Self {
        let admission = RefCell::new(Admission::new(limits));
        Self { admission, limits, shed_at: Cell::new(None) }
    }

    /// Returns the bounds of the queue.
    #[must_use]
    pub fn limits(&self) -> &WaitLimits {
        &self.limits
    }

    /// Returns the number of requests that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.admission.borrow().len()
    }

    /// Returns true if no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of slots promised to requests that were shed.
    #[must_use]
    pub fn promised(&self) -> usize {
        self.admission.borrow().promised()
    }

    /// Returns true if no request waits and no slot is promised.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.is_empty() && self.promised() == 0
    }

    /// Returns true if starts are to be counted: requests wait, or were shed lately.
    #[must_use]
    pub fn is_busy(&self, now: Instant) -> bool {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < BUSY_AFTER_SHED;
        !self.is_empty() || self.shed_at.get().is_some_and(is_recent)
    }

    /// Returns the queue before a request that is not in it. `rate` returns the requests a
    /// second, of so many tokens on average, that are served for certain.
    pub fn before(
        &self,
        asker: &Asker,
        now: Instant,
        rate: impl FnOnce(f32) -> Option<f32>,
    ) -> Waiting {
        if self.is_quiet() {
            // The usual case needs no forecast.
            let has_room = self.limits.count_max > 0;
            return Waiting { ahead: 0, wait_ms: None, all: 0, has_room };
        }
        let mut admission = self.admission.borrow_mut();
        admission.expect(asker, now, rate);
        admission.waiting(asker, now)
    }

    /// Returns the queue before a request that waits.
    #[must_use]
    pub fn waiting_of(&self, ticket: WaitTicket, now: Instant) -> Waiting {
        // Its turn has come, or its time is over: no request is ahead of it any more.
        let gone = Waiting { ahead: 0, wait_ms: None, all: 0, has_room: true };
        self.admission.borrow().waiting_of(ticket, now).unwrap_or(gone)
    }

    /// Redeems the promise of a slot. Returns true if one was due.
    pub fn redeem(&self, fingerprint: u64, now: Instant) -> bool {
        self.admission.borrow_mut().redeem(fingerprint, now)
    }

    /// Sheds a request, and promises a slot where one can be foreseen. Returns the time after
    /// which to retry. `rate` as in [`Queue::before`].
    pub fn shed(
        &self,
        asker: &Asker,
        (refusal, rate): (Refusal, impl FnOnce(f32) -> Option<f32>),
        now: Instant,
        rng: &mut fastrand::Rng,
    ) -> Duration {
        self.shed_at.set(Some(now));
        // The request has used up an earlier promise.
        let asker = Asker { is_promised: false, ..*asker };
        let mut admission = self.admission.borrow_mut();
        admission.expect(&asker, now, rate);
        Duration::from_secs(admission.shed(&asker, refusal, now, rng).seconds.into())
    }

    /// Sheds a request that no replica in reach can serve. Returns the time after which to retry.
    pub fn turn_away(&self, now: Instant, rng: &mut fastrand::Rng) -> Duration {
        self.shed_at.set(Some(now));
        Duration::from_secs(self.admission.borrow_mut().turn_away(now, rng).into())
    }

    /// Notes that a request has a slot: such starts give the rate at which others follow.
    pub fn began(&self, asker: &Asker, now: Instant) {
        self.admission.borrow_mut().began(asker, now);
    }

    /// Lets a request wait. Returns its ticket, the moment at which its turn is predicted, and the
    /// requests that have to leave for it.
    ///
    /// # Errors
    ///
    /// Returns the request if there is no room.
    pub(crate) fn enter(
        &self,
        entry: WaitEntry<usize>,
        now: Instant,
    ) -> Result<(Entered<usize>, Option<Instant>), Full<usize>> {
        let mut admission = self.admission.borrow_mut();
        let entered = admission.enter(entry, now)?;
        let turn_by = admission.queue().get(entered.ticket).and_then(|entry| entry.turn_by);
        Ok((entered, turn_by))
    }

    /// Removes the request whose turn it is.
    pub(crate) fn take_next(&self, now: Instant) -> Option<WaitEntry<usize>> {
        self.admission.borrow_mut().pop_next(now).map(|(_, entry)| entry)
    }

    /// Removes a request whose time has passed, and returns it with the reason for shedding it.
    pub(crate) fn expire(&self, now: Instant) -> Option<(WaitEntry<usize>, ShedReason)> {
        let (_, entry) = self.admission.borrow_mut().expire(now)?;
        let reason = entry.lapse(now);
        Some((entry, reason))
    }

    /// Removes a request that found a slot elsewhere, or whose client has left.
    pub(crate) fn remove(&self, ticket: WaitTicket, now: Instant) {
        let _entry = self.admission.borrow_mut().remove(ticket, now);
    }
}
