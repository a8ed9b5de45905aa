//! Join connections: the only access for nodes that are not peers but have a certificate of this
//! cluster's CA.
//!
//! A join connection has a protocol of its own, one stream, one question and one answer. The link
//! does not know the content of questions. A joining node gets nothing else: no datagrams, no
//! requests and no streams of peers, and only a few such nodes are served at a time.

mod client;
mod handler;
mod permits;
mod server;

pub use client::JoinError;
pub(crate) use client::{ask_to_join, shown_by};
pub use handler::JoinHandler;
pub(crate) use permits::JoinPermits;
pub(crate) use server::{Guest, serve};

/// Name of the join protocol, besides those of [`Kind`](crate::Kind).
pub(crate) const PROTOCOL: &[u8] = b"spillway-join/1";

/// Joining nodes served at a time. Joining is rare, and each may have a write to the log under way.
pub(crate) const STRANGERS_MAX: usize = 8;
