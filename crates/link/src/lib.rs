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
mod rpc;
mod serve;
mod shared;
mod tls;
mod transport;
mod window;

#[cfg(test)]
mod link_test;

pub use code::StreamCode;
pub use config::{CertificateFiles, Config, Congestion, Limits, PeerConfig, Transport};
pub use counters::Totals;
pub use endpoint::StartFault;
#[cfg(any(test, fuzzing))]
pub use forward::fuzz;
pub use forward::{
    Answer, BodyFault, BodyPlan, BoxBody, BoxError, Deciding, ForwardBody, ForwardError,
    ForwardHead, Handler, PieceFault, Refused, RefusedReason, Room, Serving, Stage,
};
pub use identity::{Identity, NameError};
pub use join::{Gate, KnockFault};
pub use kind::Kind;
pub use link::{DatagramFault, Link, LinkStatus, ReloadFault};
pub use peer::{ConnectionStatus, DialStatus, PeerStatus};
pub use rpc::{OpenFault, Served, StreamFault, StreamHandler, StreamReceiver, StreamSender};
pub use tls::{CertificateFault, Refusal, TlsFault, UsedCertificates};
