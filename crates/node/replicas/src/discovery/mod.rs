//! Discovery of replicas: sources that are watched and send each change of the set.
//!
//! A source that can't be read keeps its last set: a DNS server that is down, or a file that is
//! gone, proves nothing about replicas.

mod dns;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod known;
mod lookup;
mod source_state;

use std::net::IpAddr;

pub use dns::{DnsQuestion, DnsSource};
pub use file::FileSource;
pub use known::EmptyGrace;
pub use source_state::{Findings, SourcePhase, SourceState};

/// Address at which a replica answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiscoveredEndpoint {
    /// Host name: the name that was looked up, or the target of an SRV record. A TLS certificate
    /// must have this name.
    pub host: String,
    /// Address of the host if DNS included it; `None` if the name must be looked up.
    pub address: Option<IpAddr>,
    /// Port of the replica.
    pub port: u16,
    /// Share of the work relative to its peers, at least 1: the weight of an SRV record, up to
    /// 65,535.
    pub weight: u32,
}
