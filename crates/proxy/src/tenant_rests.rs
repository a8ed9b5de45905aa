//! Which tenants a replica has asked to leave it alone, read without a lock.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use spillway_route::{RefusalScope, Refusals};

/// How long a tenant is kept from a replica that did not say for how long.
const REST: Duration = Duration::from_secs(1);
/// The same at most, whatever the replica says: it is asked again then.
const REST_MAX: Duration = Duration::from_secs(60);
/// How long answers are counted after the last refusal.
const COUNTED: Duration = Duration::from_secs(60);
/// The moment that times in atomics count from.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What one replica has refused to tenants.
#[derive(Debug, Default)]
pub(crate) struct TenantRests {
    refusals: ArcSwap<Refusals>,
    /// Milliseconds after [`EPOCH`] until which there may be anything to look at; 0 if nothing was ever
    /// refused. Most replicas stay at that, and cost a request one load.
    until_ms: AtomicU64,
    /// Requests that the replica has answered well while that lasts.
    answered: AtomicU32,
}

impl TenantRests {
    /// The replica refused a request of this tenant, and asked to be left alone for so long. Returns
    /// whom that is about.
    pub(crate) fn refused(
        &self,
        tenant: u64,
        now: Instant,
        asked: Option<Duration>,
    ) -> RefusalScope {
        let until = now + asked.unwrap_or(REST).min(REST_MAX);
        let answered = self.answered.load(Ordering::Relaxed);
        let mut scope = RefusalScope::Tenant;
        self.refusals.rcu(|refusals| {
            let (next, about) = refusals.with(tenant, (now, until), answered);
            scope = about;
            next
        });
        self.until_ms.fetch_max(since_epoch_ms(now + COUNTED), Ordering::Relaxed);
        scope
    }

    /// The replica answered a request well.
    pub(crate) fn answered(&self, now: Instant) {
        if self.is_in_use(now) {
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Until when it gets nothing of this tenant; `None` if it may be asked.
    pub(crate) fn until(&self, tenant: u64) -> Option<Instant> {
        if self.until_ms.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let now = Instant::now();
        if self.is_in_use(now) { self.refusals.load().until(tenant, now) } else { None }
    }

    /// Whether anything was refused to a tenant of late.
    pub(crate) fn is_any(&self) -> bool {
        self.until_ms.load(Ordering::Relaxed) > 0 && self.is_in_use(Instant::now())
    }

    fn is_in_use(&self, now: Instant) -> bool {
        let until_ms = self.until_ms.load(Ordering::Relaxed);
        until_ms > 0 && since_epoch_ms(now) < until_ms
    }
}

fn since_epoch_ms(at: Instant) -> u64 {
    let passed = at.saturating_duration_since(*EPOCH).as_millis();
    // 0 says that there was nothing.
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
