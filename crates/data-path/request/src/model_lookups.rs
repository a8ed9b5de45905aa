//! Readings of the replicas' models on demand, for requests whose model is unknown.
//!
//! Such a request leaves a note and waits for a view that has its model. The keeper has the
//! replicas asked, once for all requests that wait. Notes have a rate, so that clients that ask for
//! random names cost replicas no more than a reading now and then.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use tokio::sync::{Notify, watch};

/// Most requests that wait at the same time.
const WAITING_MAX: u32 = 256;
/// Time in which one more lookup may begin.
const PERIOD_MS: u64 = 1_000;
/// Lookups that may begin at once, after a time without any.
const BURST: u64 = 3;

/// Notes of requests that need a model that no view has, and what became of them.
#[derive(Debug)]
pub struct ModelLookups {
    started: Instant,
    /// True if some replica serves whatever it lists, so that a lookup can find a model.
    is_open: AtomicBool,
    /// Time at which all of [`BURST`] may begin again, in milliseconds since `started`.
    full_at_ms: AtomicU64,
    /// Lookups that requests began.
    begun: AtomicU64,
    waiting: AtomicU32,
    asked: Notify,
    /// Lookups that are over. Sent with each new view, too.
    over: watch::Sender<u64>,
}

/// A lookup that a request waits for.
#[derive(Debug)]
pub(crate) struct ModelLookup<'a> {
    number: u64,
    pub(crate) views: NewViews<'a>,
}

/// A request that waits for new views.
#[derive(Debug)]
pub(crate) struct NewViews<'a> {
    waiting: &'a AtomicU32,
    /// Changes with each new view.
    pub(crate) over: watch::Receiver<u64>,
}

impl ModelLookups {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            started: now,
            is_open: AtomicBool::new(false),
            full_at_ms: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            asked: Notify::new(),
            over: watch::Sender::new(0),
        }
    }

    /// Allows lookups, or refuses them because no replica's own list of models counts.
    pub fn set_open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Relaxed);
    }

    /// Returns true if a lookup can find a model.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Returns the number of the newest lookup, once a request has begun one. For one task, which then
    /// has the replicas asked.
    pub async fn asked(&self) -> u64 {
        self.asked.notified().await;
        self.begun.load(Ordering::Acquire)
    }

    /// Lets waiting requests look at the new view.
    pub fn announce(&self) {
        self.over.send_modify(|_| {});
    }

    /// Ends all lookups up to this number: the view has what the replicas answered.
    pub fn finish(&self, number: u64) {
        self.over.send_modify(|over| *over = number.max(*over));
    }

    /// Begins a lookup, or joins one that is under way; `None` if none may begin now.
    pub(crate) fn begin(&self, now: Instant) -> Option<ModelLookup<'_>> {
        if !self.is_open() {
            return None;
        }
        let views = self.new_views()?;
        let begun = self.begun.load(Ordering::Acquire);
        let mut lookup = ModelLookup { number: begun, views };
        if begun > *lookup.views.over.borrow() {
            return Some(lookup);
        }
        if !self.take_turn(now) {
            return None;
        }
        lookup.number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        self.asked.notify_one();
        Some(lookup)
    }

    /// Lets a request wait for new views; `None` if too many wait.
    pub(crate) fn new_views(&self) -> Option<NewViews<'_>> {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        let views = NewViews { waiting: &self.waiting, over: self.over.subscribe() };
        (waiting < WAITING_MAX).then_some(views)
    }

    /// Takes one of the lookups that may begin. Returns false if there is none.
    fn take_turn(&self, now: Instant) -> bool {
        let now_ms = now.saturating_duration_since(self.started).as_millis();
        let now_ms = u64::try_from(now_ms).unwrap_or(u64::MAX);
        let order = Ordering::Relaxed;
        let taken = self.full_at_ms.fetch_update(order, order, |full_at_ms| {
            let next_ms = full_at_ms.max(now_ms).saturating_add(PERIOD_MS);
            (next_ms <= now_ms.saturating_add(BURST * PERIOD_MS)).then_some(next_ms)
        });
        taken.is_ok()
    }
}

impl ModelLookup<'_> {
    /// Returns true if the lookup is over. Later changes are new ones.
    pub(crate) fn is_over(&mut self) -> bool {
        *self.views.over.borrow_and_update() >= self.number
    }
}

impl Drop for NewViews<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn lookups(now: Instant) -> ModelLookups {
        let lookups = ModelLookups::new(now);
        lookups.set_open(true);
        lookups
    }

    #[test]
    fn a_lookup_under_way_is_joined_and_costs_no_turn() {
        let now = Instant::now();
        let lookups = lookups(now);
        let numbers: Vec<u64> = (0..9).filter_map(|_| Some(lookups.begin(now)?.number)).collect();
        assert_eq!(numbers, [1; 9]);
        lookups.finish(1);
        assert_eq!(lookups.begin(now).map(|lookup| lookup.number), Some(2));
    }

    #[test]
    fn lookups_have_a_rate() {
        let start = Instant::now();
        let lookups = lookups(start);
        let begun = |at_ms: u64| {
            let lookup = lookups.begin(start + Duration::from_millis(at_ms));
            let number = lookup.as_ref().map_or(0, |lookup| lookup.number);
            lookups.finish(number);
            lookup.is_some()
        };
        assert_eq!([0, 1, 2, 3, 999].map(begun), [true, true, true, false, false]);
        assert_eq!([1_000, 1_001, 2_000].map(begun), [true, false, true]);
        assert_eq!([9_000, 9_000, 9_000, 9_000].map(begun), [true, true, true, false]);
    }

    #[test]
    fn few_requests_wait_at_a_time_and_none_where_no_list_counts() {
        let now = Instant::now();
        let lookups = lookups(now);
        let most: Vec<_> = (0..WAITING_MAX).filter_map(|_| lookups.begin(now)).collect();
        assert_eq!(most.len(), WAITING_MAX as usize);
        assert!(lookups.begin(now).is_none());
        drop(most);
        assert!(lookups.begin(now).is_some());
        assert_eq!(lookups.waiting.load(Ordering::Relaxed), 0);
        lookups.set_open(false);
        assert!(lookups.begin(now).is_none());
    }
}
