//! The one door for nodes that are no peers: strangers with a certificate of this cluster's CA.
//!
//! A knock is a connection with a protocol of its own, one stream, one question and one answer. What
//! is asked is its owners' affair. A stranger gets nothing else: neither datagrams nor requests nor
//! the streams of peers, and only a few are served at a time.

mod gate;
mod knock;

pub use gate::Gate;
pub(crate) use gate::{Guest, Places, serve};
pub use knock::KnockFault;
pub(crate) use knock::knock;

/// The protocol of a knock, besides those of [`Kind`](crate::Kind).
pub(crate) const PROTOCOL: &[u8] = b"spillway-join/1";

/// Strangers served at a time. Joining is rare, and each may have a write to the log under way.
pub(crate) const STRANGERS_MAX: usize = 8;
