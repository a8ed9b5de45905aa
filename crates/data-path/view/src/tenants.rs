//! Fair shares of tenants: their requests in flight in a group of replicas, and the slots that
//! tenants with many leave to others.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Instant;

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use spillway_journey::TenantKey;
use spillway_route::{KeptShare, TenantShares, TenantUse};

use crate::group_memory::GroupMemory;

/// Number of counters. Tenants are counted by hash; two that share a counter count as one tenant.
const COUNTERS: usize = 256;
/// Distance between the counters of a tenant's classes.
const CLASS_STEP: u64 = 64;
/// Time without requests after which a tenant is gone and no slots are kept for it, milliseconds.
const GONE_MS: u64 = 10_000;
/// Time between two divisions of the slots, milliseconds.
const JUDGE_EACH_MS: u64 = 100;
/// Length of a period whose peak is kept, milliseconds: a peak counts for one to two periods.
const PEAK_MS: u64 = 5_000;
/// Start of the time that counters are kept in.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Requests of tenants in flight in a group. Counts without a lock; the counters are made when the
/// first tenant comes.
#[derive(Debug, Default)]
pub struct Tenants {
    counters: OnceLock<Box<[Counter]>>,
    /// Time of the last division, milliseconds after [`EPOCH`].
    judged_ms: AtomicU64,
    /// True if a tenant has to leave slots to others; `shares` says which.
    keeps_any: AtomicBool,
    shares: ArcSwap<TenantShares>,
}

/// Counter of one tenant and class.
#[derive(Debug, Default)]
struct Counter {
    class: AtomicU8,
    requests: AtomicU32,
    tokens: AtomicU32,
    /// Time of the last request, milliseconds plus 1; 0 if none came.
    seen_ms: AtomicU64,
    /// Most requests in flight in this period of [`PEAK_MS`] and in the one before, and the
    /// period's number.
    peak: AtomicU32,
    peak_before: AtomicU32,
    period: AtomicU64,
    /// Most requests in flight, as of the last division.
    judged: AtomicU32,
}

/// A tenant's request in flight, counted until this is dropped.
#[derive(Debug)]
pub struct TenantSlot {
    memory: Arc<GroupMemory>,
    tenant: TenantKey,
    tokens: u32,
}

impl Tenants {
    /// Notes a request of a tenant. From time to time redistributes the slots: `size` returns the
    /// number of slots and of their replicas, of which at most `kept_permille_max` are kept for
    /// others.
    pub fn saw(
        &self,
        tenant: TenantKey,
        now: Instant,
        kept_permille_max: u16,
        size: impl FnOnce() -> (u32, u32),
    ) {
        let now_ms = now.saturating_duration_since(*EPOCH).as_millis();
        let now_ms = u64::try_from(now_ms).unwrap_or(u64::MAX);
        let is_new = self.counter(tenant).saw(tenant.class, now_ms);
        let judged_ms = self.judged_ms.load(Ordering::Relaxed);
        // A new tenant is judged with its first request, because requests that come with it would
        // find all slots.
        if now_ms < judged_ms + JUDGE_EACH_MS && !is_new {
            return;
        }
        let order = Ordering::Relaxed;
        // One of several requests divides the slots; the others go on.
        if is_new || self.judged_ms.compare_exchange(judged_ms, now_ms, order, order).is_ok() {
            self.judge(now_ms, size(), kept_permille_max);
        }
    }

    /// Returns true if slots are kept from any tenant.
    pub fn keeps_any(&self) -> bool {
        self.keeps_any.load(Ordering::Relaxed)
    }

    /// Returns the slots that other tenants leave to this one; `None` if none have much, or this
    /// one has.
    pub fn kept_for(&self, tenant: TenantKey) -> Option<KeptShare> {
        // An atomic spares the division in the usual case.
        if !self.keeps_any() {
            return None;
        }
        self.shares.load().kept_for(tenant.class, &self.counter(tenant).used())
    }

    /// Returns the slots that a tenant has to leave to others; `None` if it need not.
    pub fn left_by(&self, tenant: TenantKey) -> Option<KeptShare> {
        if !self.keeps_any() {
            return None;
        }
        self.shares.load().left_by(tenant.class, &self.counter(tenant).used())
    }

    fn judge(&self, now_ms: u64, size: (u32, u32), kept_permille_max: u16) {
        let uses: SmallVec<[(u8, TenantUse); 16]> =
            self.counters().iter().filter_map(|counter| counter.judge(now_ms)).collect();
        let shares = TenantShares::judge(&uses, size.0, size.1, kept_permille_max);
        // Stored only if it changed, which is seldom.
        if shares != **self.shares.load() {
            self.shares.store(Arc::new(shares));
        }
        self.keeps_any.store(shares.keeps_any(), Ordering::Relaxed);
    }

    fn counter(&self, tenant: TenantKey) -> &Counter {
        let counters = self.counters();
        // Each class has its own counter.
        let index = tenant.tenant.wrapping_add(CLASS_STEP * u64::from(tenant.class));
        &counters[index as usize % counters.len()]
    }

    fn counters(&self) -> &[Counter] {
        self.counters.get_or_init(|| (0..COUNTERS).map(|_| Counter::default()).collect())
    }
}

impl Counter {
    /// Notes a request of the tenant. Returns true if none came lately.
    fn saw(&self, class: u8, now_ms: u64) -> bool {
        self.class.store(class, Ordering::Relaxed);
        let is_new = !self.is_there(now_ms);
        if is_new {
            // The counter may have been another tenant's before.
            self.period.store(now_ms / PEAK_MS, Ordering::Relaxed);
            self.peak.store(0, Ordering::Relaxed);
            self.peak_before.store(0, Ordering::Relaxed);
        }
        self.seen_ms.store(now_ms + 1, Ordering::Relaxed);
        is_new
    }

    /// Returns the tenant's use, with the peak of the last division.
    fn used(&self) -> TenantUse {
        let [requests, tokens, requests_max] =
            [&self.requests, &self.tokens, &self.judged].map(|count| count.load(Ordering::Relaxed));
        TenantUse { requests, tokens, requests_max }
    }

    /// Returns the class and use of the tenant, with the peak of the last periods; `None` if it is
    /// gone. For one caller at a time.
    fn judge(&self, now_ms: u64) -> Option<(u8, TenantUse)> {
        let used = self.used();
        if !self.is_there(now_ms) {
            self.judged.store(0, Ordering::Relaxed);
            return None;
        }
        let period = now_ms / PEAK_MS;
        let peak = self.peak.load(Ordering::Relaxed);
        // A new period has begun: the peak of the last one is kept beside it.
        if self.period.swap(period, Ordering::Relaxed) != period {
            self.peak_before.store(peak, Ordering::Relaxed);
            self.peak.store(used.requests, Ordering::Relaxed);
        }
        let before = self.peak_before.load(Ordering::Relaxed);
        let requests_max = peak.max(before).max(used.requests);
        self.judged.store(requests_max, Ordering::Relaxed);
        Some((self.class.load(Ordering::Relaxed), TenantUse { requests_max, ..used }))
    }

    fn is_there(&self, now_ms: u64) -> bool {
        let seen_ms = self.seen_ms.load(Ordering::Relaxed);
        self.requests.load(Ordering::Relaxed) > 0 || (seen_ms > 0 && now_ms < seen_ms + GONE_MS)
    }
}

impl TenantSlot {
    /// Counts a request as in flight.
    pub fn take(memory: &Arc<GroupMemory>, tenant: TenantKey, tokens: u32) -> Self {
        let counter = memory.tenants.counter(tenant);
        let requests = counter.requests.fetch_add(1, Ordering::Relaxed) + 1;
        counter.tokens.fetch_add(tokens, Ordering::Relaxed);
        counter.peak.fetch_max(requests, Ordering::Relaxed);
        Self { memory: Arc::clone(memory), tenant, tokens }
    }
}

impl Drop for TenantSlot {
    fn drop(&mut self) {
        let counter = self.memory.tenants.counter(self.tenant);
        counter.requests.fetch_sub(1, Ordering::Relaxed);
        counter.tokens.fetch_sub(self.tokens, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SIZE: (u32, u32) = (64, 4);

    fn key(tenant: u64) -> TenantKey {
        TenantKey { tenant, class: 2 }
    }

    struct World {
        memory: Arc<GroupMemory>,
        now: Instant,
    }

    impl World {
        fn new() -> Self {
            // Later than where time begins, so that it passes.
            let world = Self { memory: Arc::default(), now: *EPOCH };
            Self { now: world.now + Duration::from_secs(60), ..world }
        }

        fn pass(&mut self, ms: u64) {
            self.now += Duration::from_millis(ms);
        }

        fn saw(&self, tenant: u64) {
            self.memory.tenants.saw(key(tenant), self.now, 250, || SIZE);
        }

        fn take(&self, tenant: u64, count: usize) -> Vec<TenantSlot> {
            self.saw(tenant);
            (0..count).map(|_| TenantSlot::take(&self.memory, key(tenant), 100)).collect()
        }

        fn is_over(&self, tenant: u64) -> bool {
            self.memory.tenants.left_by(key(tenant)).is_some()
        }
    }

    #[test]
    fn who_has_much_leaves_something_while_others_are_there() {
        let mut world = World::new();
        let wild = world.take(1, 50);
        world.pass(100);
        world.saw(1);
        assert!(!world.is_over(1), "it is alone");
        drop(world.take(2, 3));
        assert!(!world.is_over(1), "what another uses at its peak is judged ten times a second");
        world.pass(100);
        world.saw(1);
        assert!(world.is_over(1) && !world.is_over(2));
        // Its peak is known for a while, and then that it was there.
        world.pass(PEAK_MS);
        world.saw(1);
        assert!(world.is_over(1));
        world.pass(GONE_MS - PEAK_MS);
        world.saw(1);
        assert!(!world.is_over(1), "the other is gone");
        drop(world.take(2, 3));
        world.pass(100);
        world.saw(2);
        assert!(world.is_over(1));
        drop(wild);
        assert!(!world.is_over(1), "it has nothing any more, whenever it is judged next");
    }

    #[test]
    fn who_comes_with_a_burst_leaves_something_from_the_first_request_on() {
        let mut world = World::new();
        drop(world.take(2, 4));
        world.pass(100);
        world.saw(2);
        let _wild = world.take(1, 50);
        assert!(world.is_over(1), "nothing was judged since it came");
    }

    #[test]
    fn a_peak_is_known_for_one_period_to_two() {
        let mut world = World::new();
        let _wild = world.take(1, 50);
        let kept =
            |world: &World| world.memory.tenants.left_by(key(1)).map(|room| room.left_of_part(16));
        drop(world.take(2, 4));
        world.pass(100);
        world.saw(2);
        assert_eq!(kept(&world), Some(8), "twice four of sixteen");
        world.pass(2 * PEAK_MS - 300);
        world.saw(2);
        assert_eq!(kept(&world), Some(8));
        world.pass(200);
        world.saw(2);
        assert_eq!(kept(&world), None);
    }

    #[test]
    fn a_tenant_is_counted_by_class() {
        let mut world = World::new();
        let urgent = TenantKey { tenant: 1, class: 0 };
        let tenants = &world.memory.tenants;
        let now = world.now;
        tenants.saw(urgent, now, 250, || SIZE);
        let _wild: Vec<_> = (0..50).map(|_| TenantSlot::take(&world.memory, urgent, 100)).collect();
        drop(world.take(2, 3));
        world.pass(100);
        world.saw(2);
        assert!(world.memory.tenants.left_by(urgent).is_none(), "the other is less urgent");
        assert!(!world.is_over(1) && !world.is_over(2));
    }
}
