//! `[prefix]`: the prefix index, and the speeds learned of replicas.

use spillway_prefix::{IndexConfig, KnowledgeConfig, PrefixConfig};
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
