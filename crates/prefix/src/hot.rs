//! Hot prefixes: what one region tells the others about what its replicas hold.
//!
//! A node's [`HeatTracker`] sees which blocks are asked for and says as a [`HotDelta`] which of
//! them became hot or cold. The replicated [`HotTrie`] holds all regions' hot blocks, equal on all
//! nodes; a [`HotView`] made from it answers for one prompt how deep each region holds it.

mod block;
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
