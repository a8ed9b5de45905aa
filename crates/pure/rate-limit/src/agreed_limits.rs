//! Input of a [`Holder`](crate::Holder): the limits and nodes agreed on, and the process before.

use std::collections::{BTreeMap, BTreeSet};

use spillway_types::NodeName;

use crate::{PoolTerms, RequestWindow, Scope, Units};

/// The limits and nodes that the cluster has agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgreedLimits {
    /// Terms by which each limit is divided.
    pub terms: BTreeMap<Scope, PoolTerms>,
    /// Registered nodes.
    pub members: BTreeSet<NodeName>,
    /// Registered nodes of this node's region, itself included.
    pub siblings: BTreeSet<NodeName>,
    /// Longest time that a request may run, in milliseconds. Other nodes take over the concurrency
    /// slots of a silent node only after this time.
    pub place_ms: u64,
    /// Length of leases, in milliseconds. A node that is gone keeps what it had for this long and
    /// for the window; shorter leases cost more entries of the log.
    pub lease_ms: u32,
}

impl AgreedLimits {
    /// Returns the longest window over which any limit counts requests.
    pub(crate) fn requests_longest(&self) -> RequestWindow {
        self.terms.values().map(|terms| terms.requests).max().unwrap_or_default()
    }
}

/// Knowledge about the process of this node that ran before this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// This process is the first one of its node.
    Nothing,
    /// [`crate::Quotas::assume`] counts what that process charged in the last minute. The map has
    /// what it kept of floors.
    Counted(BTreeMap<Scope, Units>),
    /// The process may have charged all that it held until just now. The map has what it kept of
    /// floors.
    Unknown(BTreeMap<Scope, Units>),
}
