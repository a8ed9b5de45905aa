//! `[prefix]`: the prefix index, and the speeds learned of replicas.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_prefix::{IndexConfig, KnowledgeConfig, PrefixConfig, PrefixHasher};
use toml::Spanned;

use crate::error::ConfigErrors;
use crate::source::Source;

/// Least memory with which an index is of any use, in bytes.
const INDEX_BYTES_MIN: usize = 1 << 20;
/// Maximum number of blocks of one cache: 64 GiB of prompts in blocks of 256 bytes.
const HOLDER_BLOCKS_MAX: u32 = 1 << 28;

/// `[prefix]`: the index of cached prompts, by which requests go where their prompts are cached.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PrefixSection {
    /// Bytes of prompt in one block, a multiple of 32; equal on all nodes of a cluster. Prompts
    /// share whole blocks: smaller blocks match shorter common prefixes, and take more memory.
    #[schemars(with = "usize")]
    pub(crate) block_bytes: Spanned<usize>,
    /// Maximum memory of the index of cached prompts, in bytes: 48 for each record of a block at a
    /// replica; a prompt of 128 KiB has 160 records. The least recently used blocks are evicted
    /// first.
    #[schemars(with = "usize")]
    pub(crate) index_bytes_max: Spanned<usize>,
    /// Assumed capacity of a replica's cache in blocks, if the replica does not report it.
    #[schemars(with = "u32")]
    pub(crate) replica_blocks: Spanned<u32>,
    /// True to share between the nodes of a region which prompts they sent to which replicas.
    /// Otherwise each node knows only its own.
    pub(crate) share: bool,
    /// True to save the learned speeds of replicas in the cluster's data folder across restarts.
    pub(crate) keep_speeds: bool,
}

impl Default for PrefixSection {
    fn default() -> Self {
        let (index, prefix) = (IndexConfig::default(), PrefixConfig::default());
        Self {
            block_bytes: Spanned::new(0..0, prefix.block_bytes),
            index_bytes_max: Spanned::new(0..0, index.bytes_max),
            replica_blocks: Spanned::new(0..0, index.holder_blocks_default),
            share: true,
            keep_speeds: true,
        }
    }
}

impl PrefixSection {
    /// Checks the section.
    ///
    /// # Errors
    /// Returns all faults, with their lines.
    pub(crate) fn lower(&self, source: &Source) -> Result<KnowledgeConfig, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let block_bytes = *self.block_bytes.get_ref();
        let prefix = PrefixConfig { block_bytes, ..PrefixConfig::default() };
        // The key plays no part in the possible errors here.
        errors.keep(PrefixHasher::new([0; 4], prefix).map_err(|error| {
            let remedy = "use a multiple of 32 from 32 to 65536; 256 suits most";
            source.fault(self.block_bytes.span(), error.to_string(), remedy)
        }));
        let bytes_max = *self.index_bytes_max.get_ref();
        if bytes_max < INDEX_BYTES_MIN {
            let message = "too little memory to know anything";
            let remedy = "use 1048576 bytes or more; 134217728 by default";
            errors.add(source.fault(self.index_bytes_max.span(), message, remedy));
        }
        let blocks = *self.replica_blocks.get_ref();
        if !(1..=HOLDER_BLOCKS_MAX).contains(&blocks) {
            let message = "no cache holds so many blocks";
            let remedy = "use 1 to 268435456: the tokens that a cache holds, divided by 64";
            errors.add(source.fault(self.replica_blocks.span(), message, remedy));
        }
        let index = IndexConfig { bytes_max, holder_blocks_default: blocks };
        errors.or(KnowledgeConfig {
            prefix,
            index,
            is_shared: self.share,
            is_kept: self.keep_speeds,
        })
    }
}
