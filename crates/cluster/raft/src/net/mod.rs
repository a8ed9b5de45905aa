//! Raft between nodes: one stream for the entries of each follower, short ones for all else, and
//! snapshots on the data connection.

mod client;
mod compare;
mod comparison;
mod context;
mod elections;
mod guard;
mod leader_contact;
mod parcels;
mod pipeline;
mod proof;
mod read_index;
mod versions;

pub(crate) use client::PeerNetwork;
pub(crate) use compare::compare_all;
pub(crate) use comparison::Comparison;
pub(crate) use context::{Context, Parts, send};
pub(crate) use leader_contact::LeaderContact;
pub(crate) use parcels::Parcels;
pub(crate) use read_index::read_index;
pub(crate) use versions::ask_all;
