//! Wide-area networks on one machine, made of network namespaces.

pub mod config;
mod control;
mod forward;
mod hub;
mod jitter;
mod link;
mod matrix;
mod namespace;
mod nat;
mod netlink;
mod network;
mod packet;
pub mod probe;
pub mod server;
mod shape;
mod sweep;
mod topology;

pub use control::{
    BLOCKS_MAX, ControlAnswer, ControlCommand, ControlError, LinkReport, NodeReport, WanStats,
};
pub use hub::{HubBlock, StrayCounts};
pub use link::LinkCounts;
pub use matrix::MatrixError;
pub use namespace::{Namespace, become_inside, enter};
pub use nat::{Forward, MAPPINGS_MAX, NatPlan};
pub use network::{Handle, NetworkStartError, WanNetwork};
pub use packet::PacketProtocol;
pub use shape::{
    DELAY_MS_MAX, JITTER_PERIOD_MS_DEFAULT, QUEUE_BYTES_DEFAULT, REORDER_BY_MS_DEFAULT, Shape,
    ShapeError, ShapePatch,
};
pub use sweep::sweep_at_end;
pub use topology::{Isolate, NamespaceConfig, Topology, TopologyRegion};
