//! Discrete-event simulation of regions, gateways, replicas and clients, in virtual time.
//!
//! Nodes drive the journeys of `journey`, wait in the queue of `route` and know caches by the index of
//! `prefix`, as gateways do. Replicas are engines of `engine`, and news between them is as late as in
//! a cluster. Equal seeds give equal runs. [`World`] runs a [`WorldConfig`] with the [`Session`]s of a
//! workload. Each node decides by a [`Router`]; [`SpillwayRouter`] is the gateway's.

mod agenda;
mod capacity;
mod quantiles;
mod router;
mod scenario;
mod setup;
mod text;
mod workload;
mod world;

pub use agenda::{Agenda, Time};
pub use capacity::{DayCurve, Objective, PlannedRegion, Sizing, Trial, TrialFigures, Work};
pub use quantiles::Quantiles;
pub use router::{
    Ask, Ended, Knowledge, Queue, RegionSight, ReplicaSight, Replied, Router, RouterConfig,
    RouterVerdict, Sent, Sight, SpillwayRouter, Truth, region_name,
};
pub use scenario::{Scale, Scenario};
pub use setup::{Hearing, Setup};
pub use text::{BYTES_PER_TOKEN, ENGINE_BLOCK_TOKENS, Piece, Text, router_chain};
pub use workload::{
    Demand, Session, TraceError, TraceOptions, Turn, UnknownWorkloadError, WorkloadKind, read_trace,
};
pub use world::{Figures, News, RegionConfig, RegionFigures, World, WorldConfig};
