//! The view that requests read: routes, replicas and regions, with the state that requests share.
//!
//! A [`View`] is never changed: each change makes a new one. Counters beside it are atomic, so that no
//! request waits for another one.

mod affinity_moves;
mod concurrency;
mod continuations;
mod control_age;
mod conversations;
mod fair_table;
mod group_memory;
mod hedging;
mod held_slot;
mod hold_times;
mod home_news;
mod knowledge;
mod kv_session;
mod learning;
mod live_loads;
mod loaded_adapters;
mod locations;
mod model_cards;
mod names;
mod overflow;
mod pending_guests;
mod queue_spec;
mod region_steering;
mod regions;
mod remote;
mod replica;
mod replica_loads;
mod replica_spec;
mod retry;
mod route_group;
mod route_spec;
mod session;
mod session_homes;
mod shared_region_circuit_breaker;
mod split;
mod stored_responses;
mod tenant_rests;
mod tenants;
mod usage_reports;
mod versions;
mod view;
mod wait_queues;

pub use affinity_moves::{AffinityMove, AffinityMoves};
pub use concurrency::{ConcurrencyLimiter, ConcurrencySeen};
pub use continuations::{Continuation, ContinuationSpec, Continuations};
pub use control_age::{ControlAge, ControlState};
pub use conversations::{Conversations, ServedIn};
pub use group_memory::GroupMemory;
pub use hedging::{FirstByte, HedgeAfter, HedgeSpec, Hedges};
pub use held_slot::{HeldSlot, RegionSlot};
pub use hold_times::HoldTimes;
pub use home_news::{HomeNews, HomeOutbox};
pub use knowledge::{Cached, CachedElsewhere, ForwardedPrompt, Knowledge, KnowledgeCounts};
pub use kv_session::{KV_SESSION, kv_session};
pub use learning::{BegunStream, ForwardReplied, Learning, Replied};
pub use live_loads::{LiveLoads, TrafficSlots};
pub use loaded_adapters::LoadedAdapters;
pub use locations::{CountryCounts, Locations};
pub use model_cards::ModelCards;
pub use names::{AskedName, NameSpec, Names, Resolved, Unresolved};
pub use overflow::{OverflowCap, OverflowCaps, overflow_account, replica_of_account};
pub use pending_guests::{PendingGuest, PendingGuests};
pub use queue_spec::{QueueSpec, WaitTotals};
pub use region_steering::RegionSteering;
pub use regions::{
    OtherModel, OtherRegion, OwnModel, RegionCount, RegionCounts, RegionTerms, Regions,
};
pub use remote::{
    Destination, FindingResponse, Forwarded, Forwarding, GuestTerms, RefusedFor, Remote,
    RemoteError, RemoteReply,
};
pub use replica::{HeldContext, Lease, PromptReading, REST_MAX, Replica, ReplicaServer};
pub use replica_loads::ReplicaLoads;
pub use replica_spec::{OverflowSpec, ReplicaSpec};
pub use retry::Retry;
pub use route_group::{Entrant, GroupMembers, RouteGroup};
pub use route_spec::RouteSpec;
pub use session::{
    NewCookie, Session, SessionChange, SessionSpec, SessionTarget, Sessions, region_identity,
};
pub use session_homes::{SessionHome, SessionKey};
pub use shared_region_circuit_breaker::SharedRegionCircuitBreaker;
pub use split::{ArmSources, ArmSpec, ChosenArm, SplitSpec, StickyCookie};
pub use stored_responses::{Home, NotKept, StoredResponse, StoredResponses};
pub use tenant_rests::TenantRests;
pub use tenants::{TenantSlot, Tenants};
pub use usage_reports::{InjectUsage, UsageReports, WantedUsage};
pub use versions::{NoVersion, Pin, VersionMembers, VersionTable, VersionTelling};
pub use view::{KnownModels, Route, View, ViewParts};
pub use wait_queues::{
    Asking, Foreseen, Patience, QueueMessage, QueueTurn, QueuedEnd, QueuedRequest, WaitKey,
    WaitQueues,
};
