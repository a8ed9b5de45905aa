//! Load gossip between nodes, as a state machine without sockets or clock.
//!
//! [`GossipMachine`] takes one input at a time and returns datagrams and events. Inside a region
//! every node reports its requests in flight to every other node. One *speaker* of a region reports
//! the load of its region to all nodes elsewhere. Clocks of different machines are never compared:
//! datagrams contain only durations.

mod cadence;
mod claim;
mod claims;
mod config;
mod content;
mod counters;
mod datagram;
#[cfg(test)]
mod datagram_older;
mod entry;
mod event;
mod failure_detector;
mod fair;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod ledger;
mod machine;
mod member;
mod mirror;
mod name_id;
mod node;
mod own_load;
mod reading;
mod receive;
mod region;
mod reported_models;
mod revocations;
mod scale;
mod send;
mod sharing;
mod speeds;
mod start_up;
mod steering;
mod time;
mod view;
mod window;

pub use config::GossipConfig;
pub use content::Content;
pub use counters::{GossipCounters, GossipError};
pub use event::GossipEvent;
pub use machine::GossipMachine;
pub use member::GossipMember;
pub use name_id::NameId;
pub use own_load::{ModelShare, OwnLoad, ReplicaCounts, ReplicaLoad, ReplicaSignals};
pub use region::Reach;
pub use reported_models::ReportedModels;
pub use revocations::RevocationGossip;
pub use sharing::{ShareError, Sharing, SharingConfig, SharingCounters, SiblingNews, To};
pub use speeds::Speeds;
pub use start_up::StartUp;
pub use steering::{SteeringGossip, steering_of_region};
pub use view::{Elsewhere, ModelReport, PeerView, RegionView, ReplicaReport, WHOLE_REGION};
