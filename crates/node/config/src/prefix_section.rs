//! `[prefix]`: the prefix index, and the speeds learned of replicas.

use spillway_prefix::{IndexConfig, PrefixConfig};
use spillway_types::settings;

settings! {
    /// `[prefix]`: the index of cached prompts, by which requests go where their prompts are cached.
    pub(crate) struct PrefixSection {
        /// Maximum memory of the index of cached prompts, in bytes: 48 for each record of a block at a
        /// replica; a prompt of 128 KiB has 160 records. The least recently used blocks are evicted
        /// first.
        #[schemars(range(min = 1_048_576))]
        index_bytes_max: usize = IndexConfig::default().bytes_max,
    }
}

/// Settings of the prefix index and of learned speeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnowledgeConfig {
    /// Settings of cutting prompts into blocks; equal on all nodes of a cluster.
    pub prefix: PrefixConfig,
    /// Limits of the prefix index.
    pub index: IndexConfig,
    /// True if nodes of a region inform each other where they sent prompts.
    pub is_shared: bool,
    /// True if speeds are kept over a restart, in the cluster's data folder.
    pub is_kept: bool,
}

impl PrefixSection {
    /// Returns the settings with all that is not configurable.
    pub(crate) fn config(&self) -> KnowledgeConfig {
        KnowledgeConfig {
            prefix: PrefixConfig::default(),
            index: IndexConfig { bytes_max: self.index_bytes_max, ..IndexConfig::default() },
            is_shared: true,
            is_kept: true,
        }
    }
}
