//! Usage of clients, kept by day in the data folder.
//!
//! A day is a file of its own, so that only the file of today is written again and again, and older
//! files are read only for a query. Files are written whole or not at all.

mod saved;
mod spending;
mod store;

pub use store::{StoreConfig, UsageStore};
