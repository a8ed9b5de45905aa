//! I/O about the own region's model servers: active and deep checks, load, discovery.
//!
//! The crate decides nothing about health. Each replica has one task ([`Monitors`]) that asks the
//! replica and sends its observations as [`Fact`]s into a bounded channel; the receiver decides.
//! The set of replicas comes from [`discovery`]. [`FileWatch`] also serves the
//! files of a node's own config.

mod builtin_mappings;
pub mod discovery;
mod fact;
mod file_watch;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod health_check;
mod http;
mod identity;
mod kind;
mod kv_events;
mod monitor;
mod pause;
mod read_room;
mod scrape;
mod target;
mod warm_up;

pub use fact::{Fact, FactHold, FactKind, FactSender};
pub use file_watch::FileWatch;
pub use health_check::{
    ActiveCheck, CheckKind, CheckResult, DeepCheck, DeepRequest, Expectation, NoticeCheck, Probe,
};
pub use http::{HttpProtocol, RequestError, TlsTarget};
pub use identity::{Engine, IdentityCheck};
pub use kind::{ServerKind, UnknownKindError};
pub use kv_events::{KvDelivery, KvNews, KvQueue, KvSource, follow_kv_events};
pub use monitor::{Monitor, Monitors, Reconciled};
pub use scrape::{
    AdapterMapping, AdapterReport, CacheReport, Combine, FieldMapping, Mapping, MetricsPage,
    Scrape, Selector, SelectorError,
};
pub use target::ReplicaTarget;
pub use warm_up::{WarmUpError, warm_up};
