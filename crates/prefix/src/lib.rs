//! Prompt to chained block hashes.
//!
//! [`PrefixHasher`] turns a prompt into one keyed hash per full block, each standing for the whole
//! prompt up to the end of its block. The same key, scope and bytes give the same hashes on every
//! machine and however the bytes were cut into pieces on arrival; see [`PrefixStream`].

mod config;
mod hasher;
mod request_key;
mod scope;
mod stream;

pub use config::{PrefixConfig, PrefixConfigError};
pub use hasher::PrefixHasher;
pub use scope::Scope;
pub use stream::PrefixStream;

#[cfg(test)]
mod prefix_test;
