//! Driver of requests: carries out what `spillway-journey` decides, and relays replies.
//!
//! One request reads one immutable [`View`] and leaves one outcome in a bounded queue. It waits
//! for its client, its replica and its turn; `spillway-journey` decides what happens to it next.

#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod relay;
mod request;
mod worker;
mod worker_service;

pub use request::{
    Decision, ExplainRequest, ExplainedRegion, ExplainedReplica, Explanation, GuestAnswer,
    GuestError, admits_guest, explain, serve_guest, shed_state_of,
};
pub use spillway_front::access::{
    AccessMode, AccessResult, Authenticator, Grant, KeyTable, TenantTally, TenantTerms,
};
pub use spillway_front::client::{
    Accepted, HandOut, Listener, ListenerSpec, ServerTls, TlsError, TlsIdentity, accept_loop,
    serve_handed,
};
pub use spillway_request::cors::{Cors, OriginError};
pub use spillway_request::gateway::{Counters, Gateway, GatewayConfig};
pub use spillway_upstream::ahead_room::AheadRoom;
pub use spillway_upstream::concurrency::ConcurrencySeen;
pub use spillway_upstream::connection::ReplicaTlsError;
pub use spillway_upstream::continuations::ContinuationSpec;
pub use spillway_upstream::control_age::{ControlAge, ControlState};
pub use spillway_upstream::hedging::{HedgeAfter, HedgeSpec};
pub use spillway_upstream::knowledge::{Knowledge, KnowledgeCounts};
pub use spillway_upstream::learning::{Learning, Replied};
pub use spillway_upstream::locations::Locations;
pub use spillway_upstream::memory::{Memory, Pressure};
pub use spillway_upstream::model_cards::ModelCards;
pub use spillway_upstream::names::NameSpec;
pub use spillway_upstream::pending_guests::{PendingGuest, PendingGuests};
pub use spillway_upstream::queue_spec::{QueueSpec, WaitTotals};
pub use spillway_upstream::region_circuit_breaker::RegionCircuitBreaker;
pub use spillway_upstream::region_steering::RegionSteering;
pub use spillway_upstream::regions::{
    OtherModel, OtherRegion, OwnModel, RegionCounts, RegionTerms, Regions,
};
pub use spillway_upstream::remote::{
    Destination, Forwarded, Forwarding, GuestTerms, RefusedFor, Remote, RemoteError, RemoteReply,
};
pub use spillway_upstream::replica::Replica;
pub use spillway_upstream::replica_loads::ReplicaLoads;
pub use spillway_upstream::replica_spec::{GrpcTarget, ReplicaProtocol, ReplicaSpec, TlsSpec};
pub use spillway_upstream::route_spec::RouteSpec;
pub use spillway_upstream::session::SessionSpec;
pub use spillway_upstream::settings::{Limits, Retry, Timeouts};
pub use spillway_upstream::split::{
    ArmSpec, SplitBy, SplitSpec, StickyCookie, UnknownSplitByError,
};
pub use spillway_upstream::view::{KnownModels, View, ViewParts};
pub use spillway_upstream::wire_body::{BoxError, LinkBody};
pub use worker::Worker;
