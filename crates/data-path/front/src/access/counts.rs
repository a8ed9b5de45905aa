//! Counts of authentication results, by tenant.

use std::sync::atomic::{AtomicU64, Ordering};

/// Result of authenticating and authorizing one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum AccessResult {
    /// The request was admitted.
    Ok,
    /// The request had no key.
    Missing,
    /// The key is not in the table.
    Unknown,
    /// The key is revoked or its tenant is suspended.
    Revoked,
    /// The key has expired.
    Expired,
    /// The key is the cluster's, which this node can't follow.
    Unsure,
    /// The key does not allow the model.
    Model,
    /// The key allows none of the regions that could serve.
    Region,
}

impl AccessResult {
    /// All results.
    pub const ALL: [Self; 8] = [
        Self::Ok,
        Self::Missing,
        Self::Unknown,
        Self::Revoked,
        Self::Expired,
        Self::Unsure,
        Self::Model,
        Self::Region,
    ];

    /// Returns the name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
            Self::Unsure => "unsure",
            Self::Model => "model",
            Self::Region => "region",
        }
    }
}

/// Counts of one tenant.
#[derive(Debug, Default)]
pub(crate) struct AccessCounts([AtomicU64; AccessResult::ALL.len()]);

impl AccessCounts {
    pub(crate) fn count(&self, result: AccessResult) {
        self.0[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn total(&self, result: AccessResult) -> u64 {
        self.0[result as usize].load(Ordering::Relaxed)
    }
}

/// Authentication results of one tenant since the node knows the tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantTally {
    /// The tenant; empty for requests without a valid key, `_other` for all tenants beyond the
    /// limit.
    pub tenant: String,
    /// Totals that are not 0.
    pub totals: Vec<(AccessResult, u64)>,
}

impl TenantTally {
    /// Returns the totals of `counts` under the name `tenant`.
    pub(crate) fn of(tenant: &str, counts: &AccessCounts) -> Self {
        let totals = AccessResult::ALL.into_iter().map(|result| (result, counts.total(result)));
        let totals = totals.filter(|(_, total)| *total > 0).collect();
        Self { tenant: tenant.to_owned(), totals }
    }
}
