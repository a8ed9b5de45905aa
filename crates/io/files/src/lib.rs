//! Files of a node: private to its user, and written as a whole or not at all.

pub mod private;
mod saved;

pub use saved::{SaveError, load, save, save_unsynced};
