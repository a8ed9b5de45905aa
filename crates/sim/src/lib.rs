//! A discrete-event world of regions, gateways, replicas and clients, in virtual time.
//!
//! The gateways run `route`, `prefix` and `health` unchanged, the replicas are `engine`s, and all
//! that travels between them is as late as it would be. A run is the same each time for the same
//! seed. [`World`] runs a [`WorldConfig`] with a workload's [`Session`]s; each node decides by a
//! [`Router`], of which [`SpillwayRouter`] is the real thing.

mod agenda;
mod quantiles;
mod router;
mod scenario;
mod setup;
mod text;
mod workload;
mod world;

pub use agenda::{Agenda, Time};
pub use quantiles::Quantiles;
pub use router::{
    Ask, Ended, Knowledge, RegionSight, ReplicaSight, Replied, Router, RouterConfig, Sent, Sight,
    SpillwayRouter, Truth, Verdict, region_name,
};
pub use scenario::{Scale, Scenario};
pub use setup::{Hearing, Setup};
pub use text::{BYTES_PER_TOKEN, ENGINE_BLOCK_TOKENS, Piece, Text, router_chain};
pub use workload::{
    Demand, Session, TraceError, TraceOptions, Turn, UnknownWorkload, WorkloadKind, read_trace,
};
pub use world::{Figures, News, RegionConfig, RegionFigures, World, WorldConfig};
