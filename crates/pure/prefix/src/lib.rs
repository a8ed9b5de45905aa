//! Chained block hashes of prompts, and the replicas and regions that hold these blocks.
//!
//! [`PrefixHasher`] turns a prompt into one keyed hash per full block; each represents the whole
//! prompt up to the end of its block. The same key, scope and bytes give the same hashes on every
//! machine, however the bytes were cut into pieces on arrival; see [`PrefixStream`]. [`FineIndex`]
//! knows which replicas of this region hold which blocks, [`HotTrie`] which regions hold the most
//! requested blocks. [`kv`] updates the index from the reports of engines about their caches.

mod config;
mod descend;
mod hasher;
mod hot;
mod index;
mod knowledge_config;
pub mod kv;
mod request_key;
mod scope;
mod stream;

pub use config::{PrefixConfig, PrefixConfigError};
pub use hasher::PrefixHasher;
pub use hot::{
    HeatConfig, HeatStats, HeatTracker, HotBlock, HotChange, HotDelta, HotEntry, HotStats, HotTrie,
    HotView, HottestBlock, RegionBlocks,
};
pub use index::{FineIndex, IndexConfig, IndexReader, IndexStats, Matches, MatchesIter};
pub use knowledge_config::KnowledgeConfig;
pub use scope::Scope;
pub use stream::PrefixStream;

#[cfg(test)]
mod prefix_test;
