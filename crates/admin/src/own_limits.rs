//! What the node adds to the API: the limits of its config file.

use std::fmt::Debug;

use spillway_quota::{LimitTerms, Usage};

/// Lists limits that the node enforces by itself.
pub trait OwnLimits: Debug + Send + Sync {
    /// The first `most` limits of the node's config file in the order of their names, with how each
    /// stands. One whose place a limit of the cluster takes has no usage.
    fn own_limits(&self, most: usize) -> Vec<(LimitTerms, Option<Usage>)>;
}
