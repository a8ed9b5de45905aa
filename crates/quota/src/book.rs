//! What a node's part in dividing limits begins with and goes by.

use std::collections::{BTreeMap, BTreeSet};

use spillway_types::NodeName;

use crate::{PoolTerms, RequestWindow, Scope, Units};

/// The limits and nodes that the cluster has agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Book {
    /// How each limit should be divided.
    pub terms: BTreeMap<Scope, PoolTerms>,
    /// The nodes that are registered.
    pub members: BTreeSet<NodeName>,
    /// Those of this node's region, itself included.
    pub siblings: BTreeSet<NodeName>,
    /// The longest that a request may run, milliseconds: others take over the places of a node that
    /// is not heard of only after so long.
    pub place_ms: u64,
    /// How long leases last, milliseconds. A node that is gone keeps what it had for so long and for
    /// the window; shorter costs more entries of the log.
    pub lease_ms: u32,
    /// Whether this process takes over what earlier processes of its node had, as soon as it knows
    /// what they charged. Every node has to understand that.
    pub has_heirs: bool,
}

impl Book {
    /// The longest time over which any limit counts requests.
    pub(crate) fn requests_longest(&self) -> RequestWindow {
        self.terms.values().map(|terms| terms.requests).max().unwrap_or_default()
    }
}

/// What is known of the process of this node before this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// There was none.
    Nothing,
    /// What it charged in the last minute is counted by [`crate::Quotas::assume`]; of floors it kept
    /// this.
    Counted(BTreeMap<Scope, Units>),
    /// It may have charged all that it had until just now; of floors it kept this.
    Unknown(BTreeMap<Scope, Units>),
}
