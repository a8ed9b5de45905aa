//! Interface to the limits of a node's config file.

use std::fmt::Debug;

use crate::{LimitTerms, LimitUsage};

/// Limits that the node enforces by itself.
pub trait OwnLimits: Debug + Send + Sync {
    /// Returns the first `most` limits of the node's config file in the order of their names, with
    /// their usage. A limit that is replaced by one of the cluster has no usage.
    fn own_limits(&self, most: usize) -> Vec<(LimitTerms, Option<LimitUsage>)>;
}
