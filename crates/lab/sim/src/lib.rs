//! Discrete-event simulation of regions, gateways, replicas and clients, in virtual time.
//!
//! Nodes drive the journeys of `journey`, wait in the queue of `route` and know caches by the index
//! of `prefix`, as gateways do. Loads travel by the gossip of `machine`. Replicas are engines of
//! `engine`. Equal seeds give equal runs. [`World`] runs a [`WorldConfig`] with the
//! [`Session`]s of a workload. Each node decides by a [`Router`]; [`SpillwayRouter`] is the
//! gateway's. A [`Cell`] is a world with a workload, in which ways of routing are compared.

mod agenda;
mod capacity;
mod cell;
mod contest;
mod quantiles;
mod router;
mod scenario;
mod setup;
mod text;
mod workload;
mod world;

pub use agenda::{Agenda, Time};
pub use capacity::{DayCurve, Objective, PlannedRegion, Sizing, Trial, TrialFigures, Work};
pub use cell::{Cell, CellError, Conditions, Traces};
pub use contest::{
    Better, Contender, ContenderError, CrowdScore, Entry, Fates, FaultScore, Role, Row, Score,
    SpecError, Spread, Standing, Windows,
};
pub use quantiles::Quantiles;
pub use router::{
    Ask, Baseline, CacheNews, CacheReport, Ended, Forwarded, Knowledge, NodePosition, OwnReplica,
    Queue, RemoteRegion, Replied, Router, RouterConfig, RouterVerdict, Sent, Slots, SpillwayRouter,
    Stage, Truth, WorldView, Written, region_name,
};
pub use scenario::{Scale, Scenario};
pub use setup::{Hearing, Setup};
pub use text::{BYTES_PER_TOKEN, ENGINE_BLOCK_TOKENS, Piece, Text, router_chain};
pub use workload::{
    Demand, Session, TraceError, TraceOptions, Turn, WorkloadKind, read_azure_trace, read_trace,
};
pub use world::{
    Fate, Fault, FaultKind, Figures, News, Operator, Record, RegionConfig, RegionFigures, Slo,
    StreamRecord, Tenant, World, WorldConfig,
};
