//! Streams of other parts of the node: short talks on the control connection, bulk on the data
//! connection. The link carries them; what they say is their owners' affair.

mod open;
mod server;
mod stream;

pub(crate) use open::{open_bulk, open_control};
pub(crate) use server::Serving;
pub use server::{Served, StreamHandler};
pub use stream::{StreamFault, StreamReceiver, StreamSender};

/// Streams that a peer may have open on a control connection at a time: one that carries the log,
/// a heartbeat, votes, and proposals that a node forwards for its clients.
pub(crate) const CONTROL_STREAMS_MAX: u32 = 256;

/// Bulk streams of one direction that a peer may have open at a time; the hello is one of them.
pub(crate) const BULK_STREAMS_MAX: u32 = 4;

/// Why no stream could be opened. Nothing was sent, so another try does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenFault {
    /// There is no such peer, or no connection to it now.
    #[error("not connected")]
    NotConnected,
    /// As many streams as the peer allows are open.
    #[error("the peer allows no more streams at a time")]
    Saturated,
}
