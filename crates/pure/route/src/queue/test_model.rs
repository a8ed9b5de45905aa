//! Reference model of the queue, too simple to be wrong: lists that are searched from end to end.

use std::time::{Duration, Instant};

use super::class::cost;
use super::line::{QUANTUM, SIZE_UNIT};
use super::{CLASSES, WaitEntry, WaitLimit, WaitLimits, order};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct One {
    pub(super) item: u64,
    class: usize,
    tenant: u64,
    turn_by: Instant,
    pub(super) leave_by: Instant,
    pub(super) bytes: usize,
    cost: i64,
    is_newcomer: bool,
    weight: i64,
}

#[derive(Clone, Copy, Debug)]
struct Tenant {
    class: usize,
    name: u64,
    weight: i64,
    credit: i64,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    /// Requests in order of arrival.
    pub(super) waiting: Vec<One>,
    pub(super) lapsed: Vec<One>,
    /// Tenants in the order in which they joined.
    tenants: Vec<Tenant>,
    passed_over: [u32; CLASSES],
}

impl Model {
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.lapsed.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.waiting.iter().chain(&self.lapsed).map(|one| one.bytes).sum()
    }

    /// Lets a request in, and returns the items that had to leave for it.
    pub(super) fn enter(
        &mut self,
        entry: &WaitEntry<u64>,
        limits: &WaitLimits,
        now: Instant,
    ) -> Result<Vec<u64>, WaitLimit> {
        let mut pushed_out: Vec<(usize, One)> = Vec::new();
        let more = usize::from(entry.is_promised) * (limits.count_max / 2).max(32);
        let count_max = limits.count_max + more;
        loop {
            let bytes: usize = self.bytes();
            let limit = if self.len() >= count_max {
                WaitLimit::Count
            } else if bytes + entry.bytes > limits.bytes_max {
                WaitLimit::Bytes
            } else {
                break;
            };
            let victim = self.victim(entry, limits);
            let victim = victim.filter(|_| {
                pushed_out.len() < super::PUSHED_OUT_MAX && entry.bytes <= limits.bytes_max
            });
            if victim.is_none() && self.is_in_need(entry, limits) {
                break;
            }
            let Some(victim) = victim else {
                for (_, one) in pushed_out.into_iter().rev() {
                    self.put_back(one);
                }
                return Err(limit);
            };
            let at = self.waiting.iter().position(|one| *one == victim).unwrap();
            self.take(at);
            pushed_out.push((at, victim));
        }
        let longest = now + Duration::from_millis(limits.wait_ms_max);
        let leave_by = entry.begin_by.into_iter().fold(entry.deadline.at().min(longest), Ord::min);
        let one = One {
            item: entry.item,
            class: usize::from(entry.priority).min(CLASSES - 1),
            tenant: entry.tenant,
            turn_by: match (entry.turn_by, entry.is_promised) {
                (Some(turn_by), _) => turn_by.min(leave_by),
                (None, true) => leave_by.min(now),
                (None, false) => leave_by,
            },
            leave_by,
            bytes: entry.bytes,
            cost: cost(entry.tokens).into(),
            is_newcomer: !entry.is_promised,
            weight: entry.weight.max(1).into(),
        };
        self.insert(one);
        self.tenant(&one).weight = one.weight;
        self.cap(&one);
        Ok(pushed_out.into_iter().map(|(_, one)| one.item).collect())
    }

    pub(super) fn remove(&mut self, item: u64) -> Option<u64> {
        if let Some(at) = self.lapsed.iter().position(|one| one.item == item) {
            return Some(self.lapsed.remove(at).item);
        }
        let at = self.waiting.iter().position(|one| one.item == item)?;
        Some(self.take(at).item)
    }

    pub(super) fn pop_next(&mut self, now: Instant) -> Option<u64> {
        self.lapse(now);
        let waits = |class: usize| self.waiting.iter().any(|one| one.class == class);
        let is_due = |class: usize| self.passed_over[class] + CLASSES as u32 >= order::TURNS_MAX;
        let due = (0..CLASSES).rev().find(|&class| waits(class) && is_due(class));
        let class = due.or_else(|| (0..CLASSES).find(|&class| waits(class)))?;
        let next = loop {
            let pays = |tenant: &&Tenant| {
                tenant.class == class && self.first(tenant).cost <= tenant.credit
            };
            if let Some(tenant) = self.tenants.iter().find(pays) {
                break self.first(tenant);
            }
            for tenant in self.tenants.iter_mut().filter(|tenant| tenant.class == class) {
                tenant.credit += QUANTUM * tenant.weight;
            }
        };
        self.tenant(&next).credit -= next.cost;
        self.passed_over[class] = 0;
        let at = self.waiting.iter().position(|one| *one == next).unwrap();
        self.take(at);
        for other in (0..CLASSES).filter(|&other| other != class) {
            let waits = self.waiting.iter().any(|one| one.class == other);
            self.passed_over[other] += u32::from(waits);
        }
        Some(next.item)
    }

    pub(super) fn expire(&mut self, now: Instant) -> Option<u64> {
        self.lapse(now);
        let first = self.lapsed.iter().min_by_key(|one| (one.leave_by, one.item))?.item;
        self.remove(first)
    }

    pub(super) fn ahead_of(&self, priority: u8) -> usize {
        self.waiting.iter().filter(|one| one.class <= usize::from(priority)).count()
    }

    fn victim(&self, entry: &WaitEntry<u64>, limits: &WaitLimits) -> Option<One> {
        let class = usize::from(entry.priority).min(CLASSES - 1);
        let newcomers = |class: usize| {
            self.waiting.iter().filter(move |one| one.class == class && one.is_newcomer)
        };
        let usual = (limits.bytes_max / limits.count_max.max(1)).max(1) as u64;
        let size_of = |bytes: usize| SIZE_UNIT + bytes as u64 * SIZE_UNIT / usual;
        let size = |tenant: &Tenant, more: u64| {
            let own = newcomers(tenant.class).filter(|one| one.tenant == tenant.name);
            let sum: u64 = own.map(|one| size_of(one.bytes)).sum();
            (sum + more) / tenant.weight as u64
        };
        let largest = |class: usize| {
            let there = self.tenants.iter().filter(|tenant| tenant.class == class);
            there.max_by_key(|tenant| (size(tenant, 0), tenant.name))
        };
        let last = |tenant: &Tenant| {
            let own = newcomers(tenant.class).filter(|one| one.tenant == tenant.name);
            own.max_by_key(|one| (one.turn_by, one.item)).copied()
        };
        let below = (class + 1..CLASSES).rev().find_map(|class| largest(class).and_then(last));
        if below.is_some() {
            return below;
        }
        let largest = largest(class)?;
        let is_own = |tenant: &&Tenant| tenant.class == class && tenant.name == entry.tenant;
        let own = self.tenants.iter().find(is_own);
        let own_size =
            own.map_or_else(|| size_of(entry.bytes), |own| size(own, size_of(entry.bytes)));
        let waits = |name: u64, weight: i64| {
            let own = self.waiting.iter().filter(|one| (one.class, one.tenant) == (class, name));
            own.count() / weight as usize
        };
        let own_waits = own.map_or(0, |own| waits(own.name, own.weight));
        let is_over = match entry.is_promised {
            true => largest.name == entry.tenant || waits(largest.name, largest.weight) > own_waits,
            false => largest.name != entry.tenant && size(largest, 0) > own_size,
        };
        is_over.then(|| last(largest)).flatten()
    }

    fn is_in_need(&self, entry: &WaitEntry<u64>, limits: &WaitLimits) -> bool {
        let class = usize::from(entry.priority).min(CLASSES - 1);
        let is_own = |one: &&One| one.class == class && one.tenant == entry.tenant;
        let own = self.waiting.iter().filter(is_own).count();
        let there = self.tenants.iter().filter(|tenant| tenant.class >= class).count();
        let lines = there + usize::from(own == 0);
        self.len() < limits.count_max + 2 * (limits.count_max / 2).max(32)
            && self.bytes() + entry.bytes <= limits.bytes_max
            && own * lines < limits.count_max
    }

    fn lapse(&mut self, now: Instant) {
        let due = |waiting: &[One]| {
            let due = waiting.iter().enumerate().filter(|(_, one)| one.leave_by <= now);
            due.min_by_key(|(_, one)| (one.leave_by, one.item)).map(|(at, _)| at)
        };
        while let Some(at) = due(&self.waiting) {
            let one = self.take(at);
            self.lapsed.push(one);
        }
    }

    fn take(&mut self, at: usize) -> One {
        let one = self.waiting.remove(at);
        if self.waiting.iter().all(|other| (other.class, other.tenant) != (one.class, one.tenant)) {
            self.tenants.retain(|tenant| (tenant.class, tenant.name) != (one.class, one.tenant));
        } else {
            self.cap(&one);
        }
        if self.waiting.iter().all(|other| other.class != one.class) {
            self.passed_over[one.class] = 0;
        }
        one
    }

    fn put_back(&mut self, one: One) {
        self.insert(one);
        self.cap(&one);
    }

    fn insert(&mut self, one: One) {
        let at = self.waiting.partition_point(|other| other.item < one.item);
        self.waiting.insert(at, one);
        if !self.tenants.iter().any(|tenant| (tenant.class, tenant.name) == (one.class, one.tenant))
        {
            let (class, name) = (one.class, one.tenant);
            self.tenants.push(Tenant { class, name, weight: one.weight, credit: 0 });
        }
    }

    fn cap(&mut self, one: &One) {
        let tenant = *self.tenant(one);
        let first = self.first(&tenant);
        let tenant = self.tenant(one);
        tenant.credit = tenant.credit.min(first.cost + QUANTUM * tenant.weight);
    }

    fn tenant(&mut self, one: &One) -> &mut Tenant {
        let is_own = |tenant: &&mut Tenant| (tenant.class, tenant.name) == (one.class, one.tenant);
        self.tenants.iter_mut().find(is_own).unwrap()
    }

    /// Returns the request of this tenant that is served first.
    fn first(&self, tenant: &Tenant) -> One {
        let own = self
            .waiting
            .iter()
            .filter(|one| (one.class, one.tenant) == (tenant.class, tenant.name));
        *own.min_by_key(|one| (one.turn_by, one.item)).unwrap()
    }
}
