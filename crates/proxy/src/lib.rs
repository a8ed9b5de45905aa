//! The data path: front door, connections to replicas, streaming.
//!
//! One request reads one immutable [`View`] and leaves one outcome in a bounded queue. It waits
//! for its client, its replica and its turn; `spillway-journey` decides what happens to it next.

mod access;
mod affinity_moves;
mod body_budget;
mod client;
mod concurrency;
mod continuations;
mod control_age;
mod conversations;
mod cors;
mod executor;
mod frame_budget;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gateway;
mod hedging;
mod hold_times;
mod knowledge;
mod learning;
mod live_loads;
mod locations;
mod memory;
mod model_cards;
mod names;
mod pending_guests;
mod place;
mod queue_spec;
mod region_circuit_breaker;
mod region_steering;
mod regions;
mod relay;
mod remote;
mod replica;
mod replica_loads;
mod request;
mod route_group;
mod session;
mod settings;
mod split;
mod steering_answer;
mod stored_responses;
mod stream;
mod tenant_rests;
mod tenants;
mod tls;
mod upstream;
mod versions;
mod view;
mod wait_queues;
mod wire_body;
mod worker;

pub use access::{
    AccessMode, AccessResult, Authenticator, Grant, KeyTable, TenantTally, TenantTerms,
};
pub use client::{
    Accepted, HandOut, Listener, ListenerSpec, ServerTls, TlsError, TlsIdentity, accept_loop,
    serve_handed,
};
pub use concurrency::ConcurrencySeen;
pub use continuations::ContinuationSpec;
pub use control_age::{ControlAge, ControlState};
pub use cors::{Cors, OriginError};
pub use gateway::{Counters, Gateway, GatewayConfig};
pub use hedging::{HedgeAfter, HedgeSpec};
pub use knowledge::{Knowledge, KnowledgeCounts};
pub use learning::{Learning, Replied};
pub use locations::Locations;
pub use memory::{Memory, Pressure};
pub use model_cards::ModelCards;
pub use names::NameSpec;
pub use pending_guests::{PendingGuest, PendingGuests};
pub use queue_spec::{QueueSpec, WaitTotals};
pub use region_circuit_breaker::RegionCircuitBreaker;
pub use region_steering::RegionSteering;
pub use regions::{OtherModel, OtherRegion, OwnModel, RegionCounts, RegionTerms, Regions};
pub use relay::AheadRoom;
pub use remote::{
    Destination, Forwarded, Forwarding, GuestTerms, RefusedFor, Remote, RemoteError, RemoteReply,
};
pub use replica::{GrpcTarget, Replica, ReplicaProtocol, ReplicaSpec, TlsSpec};
pub use replica_loads::ReplicaLoads;
pub use request::{
    Decision, ExplainRequest, ExplainedRegion, ExplainedReplica, Explanation, GuestAnswer,
    GuestError, admits_guest, explain, serve_guest, shed_state_of,
};
pub use session::SessionSpec;
pub use settings::{Limits, Retry, Timeouts};
pub use split::{ArmSpec, SplitBy, SplitSpec, StickyCookie, UnknownSplitByError};
pub use upstream::ReplicaTlsError;
pub use view::{KnownModels, RouteSpec, View, ViewParts};
pub use wire_body::{BoxError, LinkBody};
pub use worker::Worker;
