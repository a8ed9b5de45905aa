//! Who was told to come again, when, and who came.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::waiting::{CLASSES, Load};

/// The places that clients were promised who were turned away.
///
/// A promise is kept by fingerprint: of requests with the same one each has its own. It can be redeemed
/// from a little before its moment until some seconds after. It counts as a place that is taken until
/// shortly after its moment; who does not come is learned, so that places are promised to as many
/// more as usually stay away.
#[derive(Clone, Debug)]
pub struct Promises {
    /// By fingerprint, moment and number.
    promises: BTreeMap<(u64, Instant, u64), Promise>,
    /// Moment, number and fingerprint of those that count as taken places.
    counted: BTreeSet<(Instant, u64, u64)>,
    /// The same of those that are late already.
    overdue: BTreeSet<(Instant, u64, u64)>,
    taken: [Taken; CLASSES],
    /// By slice of time: how many promises fell due, and how many of them were redeemed.
    cohorts: BTreeMap<u64, Cohort>,
    made: u64,
    show_share: f32,
    /// The start of the first slice.
    origin: Option<Instant>,
}

/// Whom a place is promised to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Its class, below [`CLASSES`].
    pub class: usize,
    /// Its tenant.
    pub tenant: u64,
    /// Tokens that it takes of the tenant's share.
    pub cost: u32,
}

/// Places of a class that count as taken.
#[derive(Clone, Debug, Default)]
struct Taken {
    all: usize,
    by_tenant: BTreeMap<u64, Load>,
}

/// Promises that fall due together. What became of them is learned when the last can't be redeemed any
/// more: those who come are known sooner than those who don't, and would count too much.
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
    /// Most promises at a time, about 10 MB: what a thousand requests a second need for a minute.
    pub const COUNT_MAX: usize = 65_536;

    /// Promises a place at `due`. `false` if there are too many promises already.
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
        *load = load.plus(Load { requests: 1, cost: promise.cost.into() });
        true
    }

    /// Whether a request with this fingerprint comes as promised. If so the promise is used up.
    #[must_use]
    pub fn redeem(&mut self, fingerprint: u64, now: Instant) -> bool {
        self.expire(now);
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

    /// Lets go of promises that nobody came for. Cheap if there are none; call it now and then.
    pub fn expire(&mut self, now: Instant) {
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
        while let Some(&(due, number, fingerprint)) = self.overdue.first() {
            if due + GRACE > now {
                break;
            }
            self.overdue.remove(&(due, number, fingerprint));
            self.promises.remove(&(fingerprint, due, number));
        }
        self.learn(now);
    }

    /// Promises that may be redeemed, now or later.
    #[must_use]
    pub fn len(&self) -> usize {
        self.promises.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.promises.is_empty()
    }

    /// The share of promises that are redeemed, as lately seen; 1 before any was due.
    #[must_use]
    pub fn show_share(&self) -> f32 {
        self.show_share
    }

    /// Places of this class that count as taken.
    pub(crate) fn taken(&self, class: usize) -> usize {
        self.taken[class].all
    }

    /// Places of this class that count as taken, by tenant.
    pub(crate) fn by_tenant(&self, class: usize) -> impl Iterator<Item = (u64, Load)> + '_ {
        self.taken[class].by_tenant.iter().map(|(&tenant, &load)| (tenant, load))
    }

    /// What of them is this tenant's.
    pub(crate) fn of_tenant(&self, class: usize, tenant: u64) -> Load {
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

    /// Learns from the cohorts that are over.
    fn learn(&mut self, now: Instant) {
        let Some(past) = now.checked_sub(GRACE).map(|past| self.slice_of(past)) else { return };
        while let Some(cohort) = self.cohorts.first_entry().filter(|first| *first.key() < past) {
            let Cohort { made, redeemed } = cohort.remove();
            let share = redeemed as f32 / made as f32;
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

/// How much too early a request may come: clocks of clients run by their own, and the way may have
/// become shorter.
const EARLY: Duration = Duration::from_millis(500);

/// How long after its moment a place counts as taken still: the way to the client and back, and what
/// clients add.
const COUNTED_LATE: Duration = Duration::from_millis(1_500);

/// How long after its moment a promise is kept: many clients add a quarter of the time as jitter.
const GRACE: Duration = Duration::from_secs(15);

/// What one more promise tells about the next: some dozens decide.
const LEARNED_EACH: f32 = 1.0 / 64.0;

/// What falls due within one slice of time is a cohort.
const SLICE_MS: u128 = 250;

/// More than the longest time that a client is told to wait, so that the first moment asked about is
/// not before the first slice.
const RETRY_SPAN: Duration = Duration::from_secs(120);

#[cfg(test)]
#[path = "promises_test.rs"]
mod promises_test;
