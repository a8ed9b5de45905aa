//! The data path: front door, connections to replicas, streaming.
//!
//! One request reads one immutable [`View`] and leaves one outcome in a bounded queue. It waits
//! for its client, its replica and its turn; `spillway-journey` decides what happens to it next.

mod access;
mod board;
mod body_room;
mod client;
mod coming_guests;
mod continuations;
mod control_age;
mod conversations;
mod cors;
mod crowd;
mod executor;
mod frame_budget;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gateway;
mod hedging;
mod held;
mod knowledge;
mod learning;
mod live_loads;
mod locations;
mod memory;
mod model_cards;
mod moves;
mod names;
mod place;
mod queue_spec;
mod region_gate;
mod region_steering;
mod regions;
mod relay;
mod remote;
mod replica;
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
mod waiting;
mod wire_body;
mod worker;

pub use access::{AccessMode, AccessResult, Doorkeeper, Grant, KeyTable, TenantTally, TenantTerms};
pub use board::Board;
pub use client::{
    Accepted, HandOut, Listener, ListenerSpec, ServerTls, TlsError, TlsIdentity, accept_loop,
    serve_handed,
};
pub use coming_guests::{ComingGuest, ComingGuests};
pub use continuations::ContinuationSpec;
pub use control_age::{ControlAge, ControlState};
pub use cors::{BadOrigin, Cors};
pub use crowd::CrowdSeen;
pub use gateway::{Counters, Gateway, GatewayConfig};
pub use hedging::{HedgeAfter, HedgeSpec};
pub use knowledge::{Knowledge, KnowledgeCounts};
pub use learning::{Learning, Replied};
pub use locations::Locations;
pub use memory::{Memory, Pressure};
pub use model_cards::ModelCards;
pub use names::NameSpec;
pub use queue_spec::{QueueSpec, WaitTotals};
pub use region_gate::RegionGate;
pub use region_steering::RegionSteering;
pub use regions::{OtherModel, OtherRegion, OwnModel, RegionCounts, RegionTerms, Regions};
pub use relay::AheadRoom;
pub use remote::{
    Destination, Forwarded, Forwarding, GuestTerms, RefusedFor, Remote, RemoteFailure, RemoteReply,
};
pub use replica::{GrpcTarget, Replica, ReplicaProtocol, ReplicaSpec, TlsSpec};
pub use request::{
    Decision, ExplainRequest, ExplainedRegion, ExplainedReplica, Explanation, GuestAnswer,
    GuestRefusal, admits_guest, explain, serve_guest, shed_state_of,
};
pub use session::SessionSpec;
pub use settings::{Limits, Retry, Timeouts};
pub use split::{ArmSpec, SplitBy, SplitSpec, StickyCookie, UnknownSplitBy};
pub use upstream::ReplicaTlsError;
pub use view::{KnownModels, RouteSpec, View, ViewParts};
pub use wire_body::{BoxError, LinkBody};
pub use worker::Worker;
