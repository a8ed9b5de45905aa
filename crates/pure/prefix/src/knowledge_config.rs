//! Settings of the prefix index and of learned speeds.

use crate::config::PrefixConfig;
use crate::index::IndexConfig;

/// Settings of the prefix index and of learned speeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnowledgeConfig {
    /// Settings of cutting prompts into blocks.
    pub prefix: PrefixConfig,
    /// Limits of the prefix index.
    pub index: IndexConfig,
    /// True if nodes of a region inform each other where they sent prompts.
    pub is_shared: bool,
    /// True if speeds are kept over a restart.
    pub is_kept: bool,
}
