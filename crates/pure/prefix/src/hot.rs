//! Hot prefixes: the blocks that one region announces to the others because many requests share
//! them.
//!
//! A node's [`HeatTracker`] counts requests per block and reports as a [`HotDelta`] which blocks
//! became hot or cold. The replicated [`HotTrie`] holds the hot blocks of all regions, equal on all
//! nodes. A [`HotView`] made from it returns for a prompt how many leading blocks each region
//! holds.

mod block;
mod block_map;
mod config;
mod gate;
mod region_blocks;
mod tracker;
mod trie;
mod view;

pub use block::{HotBlock, HotDelta};
pub use config::HeatConfig;
pub use region_blocks::{HotChange, HotEntry, RegionBlocks};
pub use tracker::{HeatStats, HeatTracker};
pub use trie::{HotStats, HotTrie, HottestBlock};
pub use view::HotView;

#[cfg(test)]
mod hot_test;
#[cfg(test)]
mod tracker_test;
