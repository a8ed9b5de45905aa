//! How much somebody may use.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use spillway_quota::{RequestWindow, Scope};
use spillway_types::{ModelName, RegionName};

use crate::{KeyId, TenantName};

/// Set in a record's number of requests if that is by the minute. Wire version 5 had a number by the
/// second alone; the record keeps its form, so that older limits are read and written as before.
const BY_MINUTE: u32 = 1 << 31;
/// The most requests that a limit may count.
pub(crate) const REQUESTS_MAX: u32 = BY_MINUTE - 2;
/// What operators wrote for as many requests a second as they like: no number by the minute.
pub(crate) const REQUESTS_ANY: u32 = u32::MAX;

/// How much somebody may use, in all regions together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "LimitFrame", into = "LimitFrame")]
pub struct Limit {
    /// Requests a second; not beside [`Self::requests_per_min`].
    pub requests_per_s: Option<u32>,
    /// Requests a minute.
    pub requests_per_min: Option<u32>,
    /// Tokens a minute.
    pub tokens_per_min: Option<u64>,
    /// Requests at a time.
    pub concurrency: Option<u32>,
    /// The share that a region has for itself whatever happens, in thousandths. They make 1,000 at
    /// most; what is left is shared.
    pub floors_permille: BTreeMap<RegionName, u16>,
}

impl Limit {
    /// How many requests it allows over which time.
    #[must_use]
    pub fn requests(&self) -> Option<(u32, RequestWindow)> {
        match (self.requests_per_min, self.requests_per_s) {
            (Some(count), _) => Some((count, RequestWindow::Minute)),
            (None, Some(count)) => Some((count, RequestWindow::Second)),
            (None, None) => None,
        }
    }
}

/// A limit on the wire.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct LimitFrame {
    /// With [`BY_MINUTE`].
    requests: Option<u32>,
    tokens_per_min: Option<u64>,
    concurrency: Option<u32>,
    floors_permille: BTreeMap<RegionName, u16>,
}

impl From<Limit> for LimitFrame {
    fn from(limit: Limit) -> Self {
        let requests = limit.requests().map(|(count, window)| match window {
            RequestWindow::Second if count == REQUESTS_ANY => REQUESTS_ANY,
            RequestWindow::Second => count.min(REQUESTS_MAX),
            RequestWindow::Minute => count.min(REQUESTS_MAX) | BY_MINUTE,
        });
        let Limit { tokens_per_min, concurrency, floors_permille, .. } = limit;
        Self { requests, tokens_per_min, concurrency, floors_permille }
    }
}

impl From<LimitFrame> for Limit {
    fn from(frame: LimitFrame) -> Self {
        let LimitFrame { requests, tokens_per_min, concurrency, floors_permille } = frame;
        let is_minute = |count: &u32| *count != REQUESTS_ANY && count & BY_MINUTE != 0;
        Self {
            requests_per_s: requests.filter(|count| !is_minute(count)),
            requests_per_min: requests.filter(is_minute).map(|count| count & !BY_MINUTE),
            tokens_per_min,
            concurrency,
            floors_permille,
        }
    }
}

/// Whose limit it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    /// Everybody's together.
    Global,
    /// One tenant's.
    Tenant(TenantName),
    /// One model's.
    Model(ModelName),
    /// One key's.
    Key(KeyId),
}

impl From<&LimitScope> for Scope {
    fn from(scope: &LimitScope) -> Self {
        match scope {
            LimitScope::Global => Self::Global,
            LimitScope::Tenant(name) => Self::Tenant(name.clone()),
            LimitScope::Model(name) => Self::Model(name.clone()),
            LimitScope::Key(id) => Self::Key(id.as_str().to_owned()),
        }
    }
}

impl From<&Scope> for LimitScope {
    fn from(scope: &Scope) -> Self {
        match scope {
            Scope::Global => Self::Global,
            Scope::Tenant(name) => Self::Tenant(name.clone()),
            Scope::Model(name) => Self::Model(name.clone()),
            Scope::Key(id) => Self::Key(id.as_str().into()),
        }
    }
}

impl fmt::Display for LimitScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Scope::from(self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_by_the_second_is_read_as_one_by_the_minute() {
        let read = |requests_per_s| {
            let limit = Limit { requests_per_s: Some(requests_per_s), ..Limit::default() };
            let limit = Limit::from(LimitFrame::from(limit));
            (limit.requests_per_s, limit.requests_per_min)
        };
        for count in [0, 1, REQUESTS_MAX, REQUESTS_ANY] {
            assert_eq!(read(count), (Some(count), None));
        }
        // No record has these: the rules refuse them.
        for count in [REQUESTS_MAX + 1, BY_MINUTE, BY_MINUTE + 5, u32::MAX - 1] {
            assert_eq!(read(count), (Some(REQUESTS_MAX), None), "{count}");
        }
    }
}
