//! What tenants have in flight in a group of replicas, and what those leave to others that have much.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Instant;

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use spillway_route::{Candidate, KeptRoom, TenantRooms, TenantUse};
use spillway_types::ReplicaSlot;

use crate::route_group::GroupMemory;

/// Tenants are counted by their hash in so many counters; two that share one count as one tenant.
const COUNTERS: usize = 256;
/// How far the counters of a tenant's classes are apart.
const CLASS_STEP: u64 = 64;
/// A tenant that has sent nothing for so long is gone, and nothing is kept for it.
const GONE_MS: u64 = 10_000;
/// How often it is judged who leaves how much.
const JUDGE_EACH_MS: u64 = 100;
/// How long the most that a tenant had in flight is known: between this and twice as long.
const PEAK_MS: u64 = 5_000;
/// Where time begins.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What tenants have in flight in a group. Counts without a lock; the counters are made when the first
/// tenant comes.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    counters: OnceLock<Box<[Counter]>>,
    /// Milliseconds after [`EPOCH`] at which it was judged last.
    judged_ms: AtomicU64,
    /// Whether anybody leaves anything; what exactly is in `rooms`.
    keeps_any: AtomicBool,
    rooms: ArcSwap<TenantRooms>,
}

/// By which a tenant's requests of one class are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TenantKey {
    /// Its keyed hash.
    pub(crate) tenant: u64,
    pub(crate) class: u8,
}

/// What one tenant has of one class.
#[derive(Debug, Default)]
struct Counter {
    class: AtomicU8,
    requests: AtomicU32,
    tokens: AtomicU32,
    /// When its last request came, in milliseconds and one more; 0 if none did.
    seen_ms: AtomicU64,
    /// The most requests in flight in this period of [`PEAK_MS`] and the one before, and which it is.
    peak: AtomicU32,
    peak_before: AtomicU32,
    period: AtomicU64,
    /// The most as it was counted when all were judged.
    judged: AtomicU32,
}

/// A tenant's request in flight, until it is dropped.
#[derive(Debug)]
pub(crate) struct TenantPlace {
    memory: Arc<GroupMemory>,
    tenant: TenantKey,
    tokens: u32,
}

/// The places of a group that are kept from a tenant which has much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    room: KeptRoom,
    /// The last replica of which it may use something.
    last: ReplicaSlot,
}

impl Kept {
    /// Candidates are in the order of their slots.
    pub(crate) fn of(room: KeptRoom, candidates: &[Candidate]) -> Option<Self> {
        let last = candidates.len().checked_sub(room.whole() + 1)?;
        Some(Self { room, last: candidates[last].slot })
    }

    /// The first of the replicas that are kept as a whole or in part.
    pub(crate) fn first(room: &KeptRoom, candidates: &[Candidate]) -> Option<ReplicaSlot> {
        let first = candidates.len().checked_sub(room.touched())?;
        candidates.get(first).map(|candidate| candidate.slot)
    }

    /// How many of so many places the tenant may use there.
    pub(crate) fn places_left(&self, slot: ReplicaSlot, places: u32) -> u32 {
        match slot.cmp(&self.last) {
            std::cmp::Ordering::Less => places,
            std::cmp::Ordering::Equal => self.room.left_of_part(places),
            std::cmp::Ordering::Greater => 0,
        }
    }
}

impl Tenants {
    /// A request of a tenant is there. Judges anew, from time to time, what is left to others of the
    /// places that `size` tells, which are those of so many replicas, and of which so many
    /// thousandths are kept at most.
    pub(crate) fn saw(
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
        // A new one is judged with its first request: all that come with that would find places.
        if now_ms < judged_ms + JUDGE_EACH_MS && !is_new {
            return;
        }
        let order = Ordering::Relaxed;
        if is_new || self.judged_ms.compare_exchange(judged_ms, now_ms, order, order).is_ok() {
            self.judge(now_ms, size(), kept_permille_max);
        }
    }

    /// Whether anything is kept from anybody.
    pub(crate) fn keeps_any(&self) -> bool {
        self.keeps_any.load(Ordering::Relaxed)
    }

    /// What a tenant is to be sent to first, as others have much; `None` if nobody has, or it has itself.
    pub(crate) fn kept_for(&self, tenant: TenantKey) -> Option<KeptRoom> {
        if !self.keeps_any() {
            return None;
        }
        self.rooms.load().kept_for(tenant.class, &self.counter(tenant).used())
    }

    /// What a tenant has to leave to others; `None` if nothing.
    pub(crate) fn left_by(&self, tenant: TenantKey) -> Option<KeptRoom> {
        if !self.keeps_any() {
            return None;
        }
        self.rooms.load().left_by(tenant.class, &self.counter(tenant).used())
    }

    fn judge(&self, now_ms: u64, size: (u32, u32), kept_permille_max: u16) {
        let uses: SmallVec<[(u8, TenantUse); 16]> =
            self.counters().iter().filter_map(|counter| counter.judge(now_ms)).collect();
        let rooms = TenantRooms::judge(&uses, size, kept_permille_max);
        if rooms != **self.rooms.load() {
            self.rooms.store(Arc::new(rooms));
        }
        self.keeps_any.store(rooms.keeps_any(), Ordering::Relaxed);
    }

    fn counter(&self, tenant: TenantKey) -> &Counter {
        let counters = self.counters();
        // Each class has its own.
        let index = tenant.tenant.wrapping_add(CLASS_STEP * u64::from(tenant.class));
        &counters[index as usize % counters.len()]
    }

    fn counters(&self) -> &[Counter] {
        self.counters.get_or_init(|| (0..COUNTERS).map(|_| Counter::default()).collect())
    }
}

impl Counter {
    /// A request of the tenant is there; says whether none was lately.
    fn saw(&self, class: u8, now_ms: u64) -> bool {
        self.class.store(class, Ordering::Relaxed);
        let is_new = !self.is_there(now_ms);
        if is_new {
            // Whoever it was before.
            self.period.store(now_ms / PEAK_MS, Ordering::Relaxed);
            self.peak.store(0, Ordering::Relaxed);
            self.peak_before.store(0, Ordering::Relaxed);
        }
        self.seen_ms.store(now_ms + 1, Ordering::Relaxed);
        is_new
    }

    /// What it has, with the most that was counted when all were judged.
    fn used(&self) -> TenantUse {
        let [requests, tokens, requests_max] =
            [&self.requests, &self.tokens, &self.judged].map(|count| count.load(Ordering::Relaxed));
        TenantUse { requests, tokens, requests_max }
    }

    /// What it has, with the most of the last periods. By one caller at a time.
    fn judge(&self, now_ms: u64) -> Option<(u8, TenantUse)> {
        let used = self.used();
        if !self.is_there(now_ms) {
            self.judged.store(0, Ordering::Relaxed);
            return None;
        }
        let period = now_ms / PEAK_MS;
        let peak = self.peak.load(Ordering::Relaxed);
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

impl TenantPlace {
    /// Counts a request in flight.
    pub(crate) fn take(memory: &Arc<GroupMemory>, tenant: TenantKey, tokens: u32) -> Self {
        let counter = memory.tenants.counter(tenant);
        let requests = counter.requests.fetch_add(1, Ordering::Relaxed) + 1;
        counter.tokens.fetch_add(tokens, Ordering::Relaxed);
        counter.peak.fetch_max(requests, Ordering::Relaxed);
        Self { memory: Arc::clone(memory), tenant, tokens }
    }
}

impl Drop for TenantPlace {
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

        fn take(&self, tenant: u64, count: usize) -> Vec<TenantPlace> {
            self.saw(tenant);
            (0..count).map(|_| TenantPlace::take(&self.memory, key(tenant), 100)).collect()
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
    fn the_last_replicas_are_kept() {
        let uses =
            [100, 10].map(|requests| TenantUse { requests, tokens: 0, requests_max: requests });
        let uses = uses.map(|used| (2, used));
        let rooms = TenantRooms::judge(&uses, (160, 10), 250);
        let room = rooms.left_by(2, &uses[0].1).unwrap();
        let candidate = |slot| Candidate {
            slot: ReplicaSlot(slot),
            identity: 0,
            weight: 1,
            ramp_permille: 1_000,
            in_flight_max: 16,
        };
        // 20 places of 16 each: one replica and a quarter of another.
        let candidates: Vec<_> = [1, 3, 4, 6, 7, 9, 10, 11, 15, 20].map(candidate).into();
        let kept = Kept::of(room, &candidates).unwrap();
        let left = [1, 11, 15, 20].map(|slot| kept.places_left(ReplicaSlot(slot), 16));
        assert_eq!(left, [16, 16, 12, 0]);
        assert!(Kept::of(room, &candidates[..1]).is_none(), "with one left it may use that");
    }

    #[test]
    fn a_tenant_is_counted_by_class() {
        let mut world = World::new();
        let urgent = TenantKey { tenant: 1, class: 0 };
        let tenants = &world.memory.tenants;
        let now = world.now;
        tenants.saw(urgent, now, 250, || SIZE);
        let _wild: Vec<_> =
            (0..50).map(|_| TenantPlace::take(&world.memory, urgent, 100)).collect();
        drop(world.take(2, 3));
        world.pass(100);
        world.saw(2);
        assert!(world.memory.tenants.left_by(urgent).is_none(), "the other is less urgent");
        assert!(!world.is_over(1) && !world.is_over(2));
    }
}
