//! Settings of a name server.

use std::net::SocketAddr;

use super::limiter::LimiterConfig;
use super::zone::Zone;

/// Settings of this node as a name server.
#[derive(Clone, Debug)]
pub struct DnsConfig {
    /// UDP and TCP address.
    pub listen: SocketAddr,
    /// Zone with all records.
    pub zone: Zone,
    /// Rate limit of answers to one network.
    pub limiter: LimiterConfig,
}
