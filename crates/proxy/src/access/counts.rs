//! How requests for entry ended, by tenant.

use std::sync::atomic::{AtomicU64, Ordering};

/// How a request for entry ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum AccessResult {
    /// Let in.
    Ok,
    /// There was no key.
    Missing,
    /// The key is none of ours.
    Unknown,
    /// The key, or its tenant, lets nobody in any more.
    Revoked,
    /// The key's time is over.
    Expired,
    /// The key is not for that model.
    Model,
    /// The key is not for any region that could serve.
    Region,
}

impl AccessResult {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Ok,
        Self::Missing,
        Self::Unknown,
        Self::Revoked,
        Self::Expired,
        Self::Model,
        Self::Region,
    ];

    /// Name as it stands in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
            Self::Model => "model",
            Self::Region => "region",
        }
    }
}

/// Counts of one tenant.
#[derive(Debug, Default)]
pub(super) struct AccessCounts([AtomicU64; AccessResult::ALL.len()]);

impl AccessCounts {
    pub(super) fn count(&self, result: AccessResult) {
        self.0[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn total(&self, result: AccessResult) -> u64 {
        self.0[result as usize].load(Ordering::Relaxed)
    }
}

/// A tenant's requests for entry since the node knows the tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantTally {
    /// The tenant; empty where a request had no good key, `_other` for those beyond the limit.
    pub tenant: String,
    /// Totals that are not 0.
    pub totals: Vec<(AccessResult, u64)>,
}

impl TenantTally {
    pub(super) fn of(tenant: &str, counts: &AccessCounts) -> Self {
        let totals = AccessResult::ALL.into_iter().map(|result| (result, counts.total(result)));
        let totals = totals.filter(|(_, total)| *total > 0).collect();
        Self { tenant: tenant.to_owned(), totals }
    }
}
