//! Where replicas are: sources that are watched, and tell whenever the set changes.
//!
//! A source never takes back what it told because it can't be read: a DNS server that is down, or
//! a file that is gone, says nothing about replicas.

mod dns;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod known;
mod lookup;

use std::net::IpAddr;

pub use dns::{DnsQuestion, DnsSource};
pub use file::FileSource;

/// One place where a replica answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The name: that which was asked for, or the target of an SRV record. What a certificate
    /// there is for.
    pub host: String,
    /// Its address, where DNS told it; else the name is to be looked up.
    pub address: Option<IpAddr>,
    /// Its port.
    pub port: u16,
    /// Share of the work against its peers, at least 1: an SRV record's weight, up to 65,535.
    pub weight: u32,
}
