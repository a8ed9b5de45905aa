//! QUIC between nodes: mutual TLS, warm connections, datagrams and forwarded requests.
//!
//! A [`Link`] is one UDP port that dials and accepts. It keeps two connections to each configured
//! peer: one for datagrams, one for forwarded requests, a stream each. The certificate names the
//! peer and is checked before anything else of the peer is read. [`certs`] makes certificates,
//! [`delayed`] simulates distance between nodes of one machine.

mod accept;
pub mod certs;
mod code;
mod config;
mod counters;
pub mod delayed;
mod endpoint;
mod forward;
mod hello;
mod identity;
mod join;
mod kind;
mod link;
mod peer;
mod revoked;
mod rpc;
mod serve;
mod shared;
mod tls;
mod transport;
mod window;

#[cfg(test)]
mod link_test;

pub use code::StreamCode;
pub use config::{CertificateFiles, Congestion, LinkConfig, LinkLimits, PeerConfig, Transport};
pub use counters::Totals;
pub use endpoint::LinkStartError;
#[cfg(any(test, fuzzing))]
pub use forward::fuzz;
pub use forward::{
    BodyError, BodyPlan, BoxBody, BoxError, Deciding, ForwardAnswer, ForwardBody, ForwardError,
    ForwardHead, ForwardStage, Handler, PeerRoom, PieceError, Refused, RefusedReason, Serving,
};
pub use identity::{Identity, NameError};
pub use join::{JoinError, JoinHandler};
pub use kind::Kind;
pub use link::{DatagramError, Link, LinkStatus, ReloadError};
pub use peer::{ConnectionStatus, DialStatus, PeerStatus};
pub use rpc::{OpenError, Served, StreamError, StreamHandler, StreamReceiver, StreamSender};
pub use tls::{
    CredentialError, HandshakeError, TlsSetupError, Untimely, UsedCertificates, check_certificates,
};
