//! The client's side: sockets, handshakes, protocol detection, and time-outs of connections.

mod accept;
mod body_shares;
mod client_stream;
mod connection;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod greet;
mod listener;
mod meter;
mod proxy_header;
mod shares;
mod streams;
mod watchdog;

pub use accept::accept_loop;
pub use listener::{Listener, ListenerSpec, TlsError, TlsIdentity};

pub(crate) use body_shares::{BodyHolder, BodyShares};
pub(crate) use connection::Client;
pub(crate) use meter::PieceOut;
pub(crate) use shares::{Share, Shares};
pub(crate) use watchdog::CloseReason;
