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

pub use control::{Answer, BLOCKS_MAX, Command, ControlError, LinkReport, PlaceReport, Stats};
pub use hub::{Block, StrayCounts};
pub use link::LinkCounts;
pub use matrix::MatrixError;
pub use namespace::{Namespace, become_inside, enter};
pub use nat::{Forward, MAPPINGS_MAX, NatPlan};
pub use network::{Handle, Network, StartError};
pub use packet::Protocol;
pub use shape::{
    DELAY_MS_MAX, JITTER_PERIOD_MS_DEFAULT, QUEUE_BYTES_DEFAULT, REORDER_BY_MS_DEFAULT, Shape,
    ShapeError, ShapePatch,
};
pub use sweep::sweep_at_end;
pub use topology::{Isolate, Place, Region, Topology};
