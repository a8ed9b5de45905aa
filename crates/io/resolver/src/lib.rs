//! Addresses of names, in one cache per node, and connections to them.
//!
//! A [`Resolver`] reads the hosts file and asks the system's name servers, in tasks of its own: no
//! thread ever waits for a name. An [`HostPort`] is a port of a host; it holds the addresses that are
//! known and connects to one of them, in the order that [`race`] decides (RFC 8305). Requests, checks,
//! discovery and links between nodes all use them.

mod client;
mod connection_address;
mod error;
mod forbidden;
mod host;
mod host_port;
mod hosts_file;
mod name;
pub mod race;
mod resolver;
mod search_list;
mod system;

pub use client::DnsClient;
pub use connection_address::ConnectionAddress;
pub use error::{ConnectError, LookupError};
pub use host::Host;
pub use host_port::HostPort;
pub use name::{NameError, check_name, dns_name};
pub use resolver::Resolver;
pub use system::{NameServers, SystemFiles};
