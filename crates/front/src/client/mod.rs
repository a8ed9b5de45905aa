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
mod server_tls;
mod shares;
mod streams;
mod watchdog;

pub use accept::{Accepted, HandOut, accept_loop, serve_handed};
pub use listener::{Listener, ListenerSpec, TlsError, TlsIdentity};
pub use server_tls::ServerTls;

pub(crate) use body_shares::{BodyHolder, BodyShares};
pub(crate) use connection::ConnectionFacts;
pub(crate) use meter::PieceOut;
pub(crate) use shares::{Share, Shares};
pub(crate) use watchdog::CloseReason;
