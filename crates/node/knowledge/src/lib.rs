//! Knowledge of caches and speeds that this node learns, off the data path.
//!
//! One thread owns the prefix index, the heat of prompts and the latency models. It receives news
//! from the workers, reports of pages and health on restarts and sizes, and datagrams of the
//! region's other nodes. It publishes numbers of replicas, speeds, and the hot blocks of regions.
//! Requests only read.

mod address_book;
mod cache_events;
mod cache_pages;
mod cache_watch;
mod caches;
mod context;
mod epoch;
mod forwards;
mod handle;
mod hot;
mod kv_followers;
mod published;
mod saved;
mod speeds;
mod task;

pub use context::KnowledgeContext;
pub use handle::{KnowledgeEvent, KnowledgeHandle};
pub use published::{KnowledgeFigures, KvFigures, Proposals, Published};
pub use task::KnowledgeTask;

#[cfg(test)]
mod caches_test;
