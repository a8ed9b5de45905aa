//! Raft between nodes: one stream for the entries of each follower, short ones for all else, and
//! snapshots on the data connection.

mod client;
mod context;
mod parcels;
mod pipeline;
mod server;

pub(crate) use client::Network;
pub(crate) use context::{Context, NetFault};
pub(crate) use server::{Heard, Server, Service, read_index};
