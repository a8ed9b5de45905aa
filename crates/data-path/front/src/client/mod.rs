//! The client's side: sockets, handshakes, protocol detection, and time-outs of connections.

mod accept;
mod client_stream;
mod connection;
mod connection_facts;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod greet;
mod listener;
mod meter;
mod proxy_header;
mod reply_date;
mod serve;
mod server_tls;
mod streams;
mod watch;
mod watchdog;

pub use accept::{Accepted, HandOut, accept_loop, serve_handed};
pub use listener::{Listener, ListenerSpec, TlsError, TlsIdentity};
pub use reply_date::add_date;
pub use serve::{Entrance, ReplyPump, Serve};
pub use server_tls::ServerTls;

pub use connection_facts::ConnectionFacts;
pub use meter::{ConnectionMeter, PieceOut};

pub use crate::body_shares::{BodyHolder, BodyShares};
pub use crate::close_reason::CloseReason;
pub use crate::shares::{Share, Shares};
