//! Promised slots: requests that were asked to retry, the time of each, and which of them came.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::queue::{CLASSES, QueueLoad};

/// Slots promised to clients whose requests were refused.
///
/// A promise is kept by fingerprint; each request with that fingerprint has its own. It can be
/// redeemed from a little before its moment until some seconds after. It counts as a taken slot
/// until shortly after its moment. The share of clients that come is learned, so that more slots
/// are promised in proportion to the clients that stay away.
#[derive(Clone, Debug)]
pub struct Promises {
    /// Promises by fingerprint, moment and number.
    promises: BTreeMap<(u64, Instant, u64), Promise>,
    /// Moment, number and fingerprint of promises that count as taken slots.
    counted: BTreeSet<(Instant, u64, u64)>,
    /// Moment, number and fingerprint of promises that are late already.
    overdue: BTreeSet<(Instant, u64, u64)>,
    taken: [Taken; CLASSES],
    /// Promises that fell due and that were redeemed, by slice of time.
    cohorts: BTreeMap<u64, Cohort>,
    made: u64,
    show_share: f32,
    /// Start of the first slice.
    origin: Option<Instant>,
}

/// Holder of a promised slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Class of the request, below [`CLASSES`].
    pub class: usize,
    /// Tenant of the request.
    pub tenant: u64,
    /// Tokens that the request takes of the tenant's share.
    pub cost: u32,
}

/// Slots of one class that count as taken.
#[derive(Clone, Debug, Default)]
struct Taken {
    all: usize,
    by_tenant: BTreeMap<u64, QueueLoad>,
}

/// Promises that fall due together. Their outcome is learned when the last can no longer be
/// redeemed: clients that come are known sooner than clients that stay away, and would count too
/// much.
#[derive(Clone, Copy, Debug, Default)]
struct Cohort {
    made: u32,
    redeemed: u32,
}

impl Default for Promises {
    fn default() -> Self {
        Self {
            promises: BTreeMap::new(),
            counted: BTreeSet::new(),
            overdue: BTreeSet::new(),
            taken: Default::default(),
            cohorts: BTreeMap::new(),
            made: 0,
            show_share: 1.0,
            origin: None,
        }
    }
}

impl Promises {
    /// Most promises at a time, about 10 MB: enough for a thousand requests a second and a minute.
    pub const COUNT_MAX: usize = 65_536;

    /// Promises a slot at `due`. Returns false if there are too many promises already.
    #[must_use]
    pub fn make(&mut self, fingerprint: u64, promise: Promise, due: Instant) -> bool {
        if self.promises.len() >= Self::COUNT_MAX {
            return false;
        }
        self.made += 1;
        self.promises.insert((fingerprint, due, self.made), promise);
        self.counted.insert((due, self.made, fingerprint));
        let slice = self.slice(due);
        self.cohorts.entry(slice).or_default().made += 1;
        let taken = &mut self.taken[promise.class];
        taken.all += 1;
        let load = taken.by_tenant.entry(promise.tenant).or_default();
        *load = load.plus(QueueLoad { requests: 1, cost: promise.cost.into() });
        true
    }

    /// Returns true if a request with this fingerprint comes as promised, and uses the promise up.
    #[must_use]
    pub fn redeem(&mut self, fingerprint: u64, now: Instant) -> bool {
        self.expire(now);
        // From the oldest promise to those that are due a little later: the oldest is redeemed
        // first.
        let all =
            (fingerprint, self.origin.unwrap_or(now), 0)..=(fingerprint, now + EARLY, u64::MAX);
        let Some((&key, &promise)) = self.promises.range(all).next() else { return false };
        self.promises.remove(&key);
        let (_, due, number) = key;
        if self.counted.remove(&(due, number, fingerprint)) {
            self.count_out(promise);
        } else {
            self.overdue.remove(&(due, number, fingerprint));
        }
        if let Some(cohort) = self.cohorts.get_mut(&self.slice_of(due)) {
            cohort.redeemed += 1;
        }
        true
    }

    /// Drops promises that were not redeemed in time. Cheap if there are none; call it now and
    /// then.
    pub fn expire(&mut self, now: Instant) {
        // A slot stops counting as taken soon after its moment, while the promise still holds.
        while let Some(&(due, number, fingerprint)) = self.counted.first() {
            if due + COUNTED_LATE > now {
                break;
            }
            self.counted.remove(&(due, number, fingerprint));
            self.overdue.insert((due, number, fingerprint));
            if let Some(&promise) = self.promises.get(&(fingerprint, due, number)) {
                self.count_out(promise);
            }
        }
        // A late client can redeem its promise until the time of grace is over.
        while let Some(&(due, number, fingerprint)) = self.overdue.first() {
            if due + GRACE > now {
                break;
            }
            self.overdue.remove(&(due, number, fingerprint));
            self.promises.remove(&(fingerprint, due, number));
        }
        self.learn(now);
    }

    /// Returns the number of promises that can be redeemed now or later.
    #[must_use]
    pub fn len(&self) -> usize {
        self.promises.len()
    }

    /// Returns true if there are no promises.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.promises.is_empty()
    }

    /// Returns the recent share of promises that were redeemed, 0 to 1; 1 before any was due.
    #[must_use]
    pub fn show_share(&self) -> f32 {
        self.show_share
    }

    /// Returns the slots of this class that count as taken.
    pub(crate) fn taken(&self, class: usize) -> usize {
        self.taken[class].all
    }

    /// Returns the slots of this class that count as taken, by tenant.
    pub(crate) fn by_tenant(&self, class: usize) -> impl Iterator<Item = (u64, QueueLoad)> + '_ {
        self.taken[class].by_tenant.iter().map(|(&tenant, &load)| (tenant, load))
    }

    /// Returns the slots of this class and tenant that count as taken.
    pub(crate) fn of_tenant(&self, class: usize, tenant: u64) -> QueueLoad {
        self.taken[class].by_tenant.get(&tenant).copied().unwrap_or_default()
    }

    fn count_out(&mut self, promise: Promise) {
        let taken = &mut self.taken[promise.class];
        taken.all -= 1;
        if let Some(load) = taken.by_tenant.get_mut(&promise.tenant) {
            load.requests -= 1;
            load.cost -= u64::from(promise.cost);
            if load.requests == 0 {
                taken.by_tenant.remove(&promise.tenant);
            }
        }
    }

    /// Learns the share of redeemed promises from the cohorts that are over.
    fn learn(&mut self, now: Instant) {
        // Until then the last promise of a cohort can still be redeemed.
        let Some(past) = now.checked_sub(GRACE).map(|past| self.slice_of(past)) else { return };
        while let Some(cohort) = self.cohorts.first_entry().filter(|first| *first.key() < past) {
            let Cohort { made, redeemed } = cohort.remove();
            let share = redeemed as f32 / made as f32;
            // A cohort weighs as much as its promises one by one.
            let kept = (1.0 - LEARNED_EACH).powi(i32::try_from(made).unwrap_or(i32::MAX));
            self.show_share += (share - self.show_share) * (1.0 - kept);
        }
    }

    fn slice(&mut self, at: Instant) -> u64 {
        self.origin.get_or_insert_with(|| at.checked_sub(RETRY_SPAN).unwrap_or(at));
        self.slice_of(at)
    }

    fn slice_of(&self, at: Instant) -> u64 {
        let since =
            self.origin.map_or(Duration::ZERO, |origin| at.saturating_duration_since(origin));
        u64::try_from(since.as_millis() / SLICE_MS).unwrap_or(u64::MAX)
    }
}

/// Time by which a request may come too early: client clocks run differently, and the network path
/// may have become shorter.
const EARLY: Duration = Duration::from_millis(500);

/// Time after its moment for which a slot still counts as taken: the round trip to the client, and
/// delays that clients add.
const COUNTED_LATE: Duration = Duration::from_millis(1_500);

/// Time after its moment for which a promise is kept: many clients add a quarter of the time as
/// jitter.
const GRACE: Duration = Duration::from_secs(15);

/// Weight of one more promise in the learned share: some dozens decide.
const LEARNED_EACH: f32 = 1.0 / 64.0;

/// Length of a slice of time; the promises that fall due within one are a cohort.
const SLICE_MS: u128 = 250;

/// Longer than the longest time that a client is asked to wait, so that no moment is before the
/// first slice.
const RETRY_SPAN: Duration = Duration::from_secs(120);

#[cfg(test)]
#[path = "promises_test.rs"]
mod promises_test;
