//! Caps of an overflow replica at this node.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use spillway_route::{RetryBudget, RetryBudgetConfig};
use spillway_types::{ReplicaName, TenantName};

use crate::replica_spec::OverflowSpec;

/// Requests that may go to an overflow replica whatever its share, so that a quiet node uses it.
const IN_HAND: u32 = 10;

/// Cap that kept a request from an overflow replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverflowCap {
    /// The share of requests.
    Share,
    /// The money of a day.
    Day,
    /// The money of a month.
    Month,
}

/// Caps of one overflow replica, and requests that they kept from it.
#[derive(Debug)]
pub struct OverflowCaps {
    /// `None` without a cap on the share.
    share: Option<RetryBudget>,
    kept: [AtomicU64; 3],
}

impl OverflowCap {
    /// All caps.
    pub const ALL: [Self; 3] = [Self::Share, Self::Day, Self::Month];

    /// Returns the name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

impl OverflowCaps {
    /// Returns the caps at `now`, with nothing used.
    #[must_use]
    pub fn new(spec: &OverflowSpec, now: Instant) -> Self {
        let share_percent = spec.share_percent_max;
        let config = RetryBudgetConfig { share_percent, in_hand: IN_HAND, per_second_min: 0 };
        let share = (share_percent < 100).then(|| RetryBudget::new(config, now));
        Self { share, kept: Default::default() }
    }

    /// Counts a request that the replica could serve, whichever replica serves it.
    pub fn on_request(&self) {
        if let Some(share) = &self.share {
            share.on_request();
        }
    }

    /// Takes one request from the share. Returns false if the cap is reached.
    #[must_use]
    pub fn take_share(&self, now: Instant) -> bool {
        self.share.as_ref().is_none_or(|share| share.try_retry(now))
    }

    /// Counts a request that a cap kept from the replica.
    pub fn keep(&self, cap: OverflowCap) {
        self.kept[cap as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the requests that each cap has kept from the replica.
    #[must_use]
    pub fn kept(&self) -> [(OverflowCap, u64); 3] {
        OverflowCap::ALL.map(|cap| (cap, self.kept[cap as usize].load(Ordering::Relaxed)))
    }
}

/// Returns the account under which the money for an overflow replica is kept, beside those of tenants.
/// No tenant's name has a line break.
#[must_use]
pub fn overflow_account(replica: &ReplicaName) -> TenantName {
    TenantName::from(format!("overflow\n{replica}").as_str())
}

/// Returns the overflow replica of an account; `None` for a tenant.
#[must_use]
pub fn replica_of_account(account: &TenantName) -> Option<ReplicaName> {
    account.as_str().strip_prefix("overflow\n").map(ReplicaName::from)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_share_holds_over_time_and_ten_requests_are_in_hand() {
        let spec = |share_percent_max| OverflowSpec {
            names: Default::default(),
            country: None,
            after: Duration::ZERO,
            share_percent_max,
        };
        let start = Instant::now();
        let caps = OverflowCaps::new(&spec(20), start);
        let mut sent = 0;
        for number in 0..1_000 {
            caps.on_request();
            sent += u32::from(caps.take_share(start + Duration::from_millis(10) * number));
        }
        assert!((205..=210).contains(&sent), "{sent}");
        let uncapped = OverflowCaps::new(&spec(100), start);
        assert!((0..1_000).all(|_| uncapped.take_share(start)));
    }

    #[test]
    fn an_account_leads_back_to_its_replica_and_a_tenant_to_none() {
        let account = overflow_account(&"hosted".into());
        assert_eq!(replica_of_account(&account), Some("hosted".into()));
        assert_eq!(replica_of_account(&"overflow hosted".into()), None);
    }
}
