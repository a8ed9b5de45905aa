//! Rests of single tenants at a replica that refused them, readable without a lock.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use spillway_route::{RefusalScope, Refusals};
use spillway_transport::coarse_clock;

/// Rest of a tenant at a replica that named no time.
const REST: Duration = Duration::from_secs(1);
/// Longest rest, whatever the replica asks for: after that it is tried again.
const REST_MAX: Duration = Duration::from_secs(60);
/// Time after the last refusal for which answers are counted.
const COUNTED: Duration = Duration::from_secs(60);
/// Origin of the times that atomics hold.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Refusals of tenants by one replica.
#[derive(Debug, Default)]
pub struct TenantRests {
    refusals: ArcSwap<Refusals>,
    /// End of the time in which refusals matter, in milliseconds after [`EPOCH`]; 0 if nothing was
    /// ever refused. Most replicas stay at 0, and cost a request one load.
    until_ms: AtomicU64,
    /// Requests that the replica has answered well in that time.
    answered: AtomicU32,
}

impl TenantRests {
    /// Notes that the replica refused a request of this tenant, with the rest that it asked for.
    /// Returns the scope of the refusal: the tenant alone, or the whole replica.
    pub fn refused(&self, tenant: u64, now: Instant, asked: Option<Duration>) -> RefusalScope {
        let until = now + asked.unwrap_or(REST).min(REST_MAX);
        let answered = self.answered.load(Ordering::Relaxed);
        let mut scope = RefusalScope::Tenant;
        self.refusals.rcu(|refusals| {
            let (next, about) = refusals.with(tenant, now, until, answered);
            scope = about;
            next
        });
        self.until_ms.fetch_max(since_epoch_ms(now + COUNTED), Ordering::Relaxed);
        scope
    }

    /// Notes that the replica answered a request well.
    pub fn answered(&self, now: Instant) {
        if self.is_in_use(now) {
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the end of the tenant's rest; `None` if the replica may be asked.
    pub fn until(&self, tenant: u64) -> Option<Instant> {
        // Most replicas never refused a tenant, and cost no look at the clock.
        if self.until_ms.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let now = coarse_clock::now();
        if self.is_in_use(now) { self.refusals.load().until(tenant, now) } else { None }
    }

    /// Returns true if the replica refused any tenant lately.
    pub fn is_any(&self) -> bool {
        self.until_ms.load(Ordering::Relaxed) > 0 && self.is_in_use(coarse_clock::now())
    }

    fn is_in_use(&self, now: Instant) -> bool {
        let until_ms = self.until_ms.load(Ordering::Relaxed);
        until_ms > 0 && since_epoch_ms(now) < until_ms
    }
}

fn since_epoch_ms(at: Instant) -> u64 {
    let passed = at.saturating_duration_since(*EPOCH).as_millis();
    // At least 1, since 0 means that nothing was refused.
    u64::try_from(passed).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_rests_for_as_long_as_it_is_told_and_no_longer_than_a_minute() {
        let rests = TenantRests::default();
        let now = Instant::now();
        assert_eq!(rests.until(1), None);
        assert_eq!(rests.refused(1, now, Some(Duration::from_secs(31))), RefusalScope::Tenant);
        assert_eq!(rests.refused(2, now, Some(Duration::from_secs(3_600))), RefusalScope::Tenant);
        assert_eq!(rests.until(1), Some(now + Duration::from_secs(31)));
        assert_eq!(rests.until(2), Some(now + Duration::from_secs(60)));
        assert_eq!(rests.until(3), None);
    }

    #[test]
    fn who_answers_others_refuses_only_those_that_it_refuses() {
        let rests = TenantRests::default();
        let now = Instant::now();
        let refuse = |tenant| rests.refused(tenant, now, None);
        assert_eq!((refuse(1), refuse(2)), (RefusalScope::Tenant, RefusalScope::Tenant));
        for _ in 0..10 {
            rests.answered(now);
        }
        assert_eq!(refuse(3), RefusalScope::Tenant);
        let rests = TenantRests::default();
        let refuse = |tenant| rests.refused(tenant, now, None);
        assert_eq!(
            (refuse(1), refuse(2), refuse(3)),
            (RefusalScope::Tenant, RefusalScope::Tenant, RefusalScope::Replica)
        );
    }
}
