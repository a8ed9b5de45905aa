//! Scope of a replica's 429: the tenant that got it, or all tenants.

use std::time::{Duration, Instant};

/// Tenants refused within [`WINDOW`] from which the replica itself may have no room.
const TENANTS_MIN: usize = 3;
/// Age of a refusal at which it no longer counts.
const WINDOW: Duration = Duration::from_secs(10);
/// Most tenants that are remembered; of more, the one whose pause ends first is dropped.
const TENANTS_MAX: usize = 64;

/// Tenants that a replica refused with 429, and the moment until which each has to pause.
///
/// A 429 means that a client has used up its rate limit. For a replica that knows several keys this
/// says nothing about other clients, so only that tenant pauses. If three tenants or more were
/// refused within ten seconds, and more tenants than requests were answered in that time, the
/// replica itself has no room.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    refused: Vec<Refused>,
}

/// Scope of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalScope {
    /// The tenant: other tenants are sent there as before.
    Tenant,
    /// The replica: no request is sent there for now.
    Replica,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    tenant: u64,
    at: Instant,
    until: Instant,
    /// Requests that the replica had answered by then.
    answered: u32,
}

impl Refusals {
    /// Returns the state after `tenant` was refused at `now` and has to pause until `until`, and
    /// the scope of that refusal. `answered` counts the requests that the replica answered well; it
    /// may wrap.
    #[must_use]
    pub fn with(
        &self,
        tenant: u64,
        now: Instant,
        until: Instant,
        answered: u32,
    ) -> (Self, RefusalScope) {
        let is_kept = |known: &&Refused| {
            known.tenant != tenant && (known.until > now || known.is_recent(now))
        };
        let mut refused: Vec<Refused> = self.refused.iter().filter(is_kept).copied().collect();
        if refused.len() >= TENANTS_MAX {
            // The shortest remaining pause is the smallest loss.
            let first = (0..refused.len()).min_by_key(|&index| refused[index].until);
            first.map(|index| refused.swap_remove(index));
        }
        let before = self.refused.iter().find(|known| known.tenant == tenant);
        // A further refusal never shortens a pause.
        let until = before.map_or(until, |before| before.until.max(until));
        refused.push(Refused { tenant, at: now, until, answered });
        let scope = scope(&refused, now, answered);
        (Self { refused }, scope)
    }

    /// Returns the moment until which a tenant's requests are kept from the replica; `None` if they
    /// are not.
    #[must_use]
    pub fn until(&self, tenant: u64, now: Instant) -> Option<Instant> {
        let known = self.refused.iter().find(|known| known.tenant == tenant)?;
        Some(known.until).filter(|&until| until > now)
    }
}

impl Refused {
    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) <= WINDOW
    }
}

fn scope(refused: &[Refused], now: Instant, answered: u32) -> RefusalScope {
    let recent = || refused.iter().filter(|refused| refused.is_recent(now));
    let tenants = recent().count();
    let answers = recent().map(|refused| answered.wrapping_sub(refused.answered)).max();
    // Answers in between show that the replica has room for others.
    let is_about_replica = tenants >= TENANTS_MIN && tenants > answers.unwrap_or(0) as usize;
    if is_about_replica { RefusalScope::Replica } else { RefusalScope::Tenant }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_world::NOW;

    struct Replica {
        refusals: Refusals,
        start: Instant,
        answered: u32,
    }

    impl Replica {
        fn new() -> Self {
            Self { refusals: Refusals::default(), start: *NOW, answered: u32::MAX - 1 }
        }

        fn at(&self, second: u64) -> Instant {
            self.start + Duration::from_secs(second)
        }

        fn refuses(&mut self, tenant: u64, second: u64, rest_s: u64) -> RefusalScope {
            let (now, until) = (self.at(second), self.at(second + rest_s));
            let (next, scope) = self.refusals.with(tenant, now, until, self.answered);
            self.refusals = next;
            scope
        }

        fn answers(&mut self, requests: u32) {
            self.answered = self.answered.wrapping_add(requests);
        }

        fn rests_for(&self, tenant: u64, second: u64) -> bool {
            self.refusals.until(tenant, self.at(second)).is_some()
        }
    }

    #[test]
    fn one_tenant_s_refusals_are_its_own_however_many_they_are() {
        let mut replica = Replica::new();
        for second in 0..100 {
            assert_eq!(replica.refuses(1, second, 31), RefusalScope::Tenant);
        }
        assert!(replica.rests_for(1, 129) && !replica.rests_for(1, 130));
        assert!(!replica.rests_for(2, 50));
    }

    #[test]
    fn a_replica_that_refuses_everybody_has_no_room() {
        let mut replica = Replica::new();
        assert_eq!(replica.refuses(1, 0, 5), RefusalScope::Tenant);
        assert_eq!(replica.refuses(2, 0, 5), RefusalScope::Tenant);
        assert_eq!(replica.refuses(3, 1, 5), RefusalScope::Replica);
        assert_eq!(replica.refuses(1, 9, 5), RefusalScope::Replica);
    }

    #[test]
    fn tenants_over_their_limits_close_nothing_to_those_that_are_served() {
        let mut replica = Replica::new();
        for tenant in 0..50 {
            assert_eq!(replica.refuses(tenant, tenant / 10, 60), RefusalScope::Tenant);
            replica.answers(2);
        }
    }

    #[test]
    fn refusals_of_long_ago_say_nothing_about_now() {
        let mut replica = Replica::new();
        replica.refuses(1, 0, 60);
        replica.refuses(2, 0, 60);
        assert_eq!(replica.refuses(3, 11, 60), RefusalScope::Tenant);
        assert!(replica.rests_for(1, 59));
    }

    #[test]
    fn a_shorter_rest_does_not_end_a_longer_one() {
        let mut replica = Replica::new();
        replica.refuses(1, 0, 30);
        replica.refuses(1, 1, 1);
        assert!(replica.rests_for(1, 29));
    }

    #[test]
    fn so_many_tenants_are_remembered_and_no_more() {
        let mut replica = Replica::new();
        for tenant in 0..1_000 {
            replica.answers(1_000);
            replica.refuses(tenant, 0, tenant + 1);
        }
        assert_eq!(replica.refusals.refused.len(), TENANTS_MAX);
        assert!(
            replica.rests_for(999, 0) && replica.rests_for(936, 0) && !replica.rests_for(935, 0)
        );
    }
}
