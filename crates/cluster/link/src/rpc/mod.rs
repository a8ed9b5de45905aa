//! Streams of other parts of the node: short exchanges on the control connection, bulk on the data
//! connection. The link does not know the content of their messages.

mod handler;
mod open;
mod server;
mod stream;

pub use handler::{Served, StreamHandler};
pub(crate) use open::{open_bulk, open_control};
pub(crate) use server::Serving;
pub use stream::{StreamError, StreamReceiver, StreamSender};

/// Streams that a peer may have open on a control connection at a time: one for the log, a
/// heartbeat, votes, and proposals that a node forwards for its clients.
pub(crate) const CONTROL_STREAMS_MAX: u32 = 256;

/// Bulk streams of one direction that a peer may have open at a time; the hello is one of them.
pub(crate) const BULK_STREAMS_MAX: u32 = 4;

/// Reason for which no stream could be opened. Nothing was sent, so another try does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The peer is unknown, or there is no connection to it now.
    #[error("not connected")]
    NotConnected,
    /// The peer's limit of open streams is reached.
    #[error("the peer allows no more streams at a time")]
    Saturated,
}
