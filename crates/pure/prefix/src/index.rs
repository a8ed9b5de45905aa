//! Fine index: which replica of this region holds which blocks.
//!
//! [`FineIndex`] has one writer; any number of [`IndexReader`]s look up while it writes. The known
//! blocks of each holder are closed under prefixes: with a block, all blocks before it are known.
//! Far from the beginning of a prompt only some blocks have a record, which represents those before
//! it.

mod blocks;
mod config;
mod expectations;
mod fine;
mod holder_set_words;
mod holder_sets;
mod holders;
mod kept;
mod matches;
mod pair_map;
mod pairs;
mod payload;
mod reader;
mod replies;
mod shared;
mod stats;
mod table;

pub(crate) use kept::is_kept;

pub use config::IndexConfig;
pub use fine::FineIndex;
pub use matches::{Matches, MatchesIter};
pub use reader::IndexReader;
pub use stats::IndexStats;

#[cfg(test)]
mod index_test;
#[cfg(test)]
mod replies_test;
#[cfg(test)]
mod stress_test;
