//! Addresses that no connection is made to.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;

use arc_swap::ArcSwap;
use spillway_types::is_link_local;

/// Addresses that no connection of a resolver's endpoints is made to: those of this node that trust
/// the node itself, and those that only the machine or its cloud answers. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forbidden(Arc<ArcSwap<Vec<SocketAddr>>>);

impl Forbidden {
    /// Replaces the addresses of this node.
    pub(crate) fn set(&self, own: Vec<SocketAddr>) {
        self.0.store(Arc::new(own));
    }

    /// Returns true if no connection may be made to the address.
    pub(crate) fn has(&self, address: SocketAddr) -> bool {
        let is_own = |own: &SocketAddr| own.port() == address.port() && is_same(*own, address.ip());
        is_link_local(address.ip()) || self.0.load().iter().any(is_own)
    }
}

/// Returns true if a connection to `ip` reaches the listener at `own`, whose port is the same.
fn is_same(own: SocketAddr, ip: IpAddr) -> bool {
    let (own, ip) = (own.ip().to_canonical(), ip.to_canonical());
    if own == ip {
        return true;
    }
    // A listener on all addresses is behind each address of this machine, and only an own address
    // can be bound. This is asked for replicas with the port of the admin listener alone.
    own.is_unspecified() && TcpListener::bind((ip, 0)).is_ok()
        // A connection to 0.0.0.0 goes to this machine.
        || ip.is_unspecified() && own.is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forbidden(own: &str, address: &str) -> bool {
        let forbidden = Forbidden::default();
        forbidden.set(vec![own.parse().unwrap()]);
        forbidden.has(address.parse().unwrap())
    }

    #[test]
    fn the_own_listener_is_found_behind_each_of_its_addresses() {
        assert!(forbidden("127.0.0.1:23001", "127.0.0.1:23001"));
        assert!(forbidden("127.0.0.1:23001", "[::ffff:127.0.0.1]:23001"));
        assert!(forbidden("127.0.0.1:23001", "0.0.0.0:23001"));
        assert!(forbidden("0.0.0.0:23001", "127.0.0.1:23001"));
        assert!(!forbidden("0.0.0.0:23001", "192.0.2.1:23001"), "another machine");
        assert!(!forbidden("127.0.0.1:23001", "127.0.0.1:23002"));
        assert!(!forbidden("127.0.0.1:23001", "10.0.0.7:23001"));
    }

    #[test]
    fn metadata_services_are_forbidden_on_each_port() {
        for address in ["169.254.169.254:80", "[fd00:ec2::254]:8000", "169.254.170.23:1"] {
            assert!(forbidden("127.0.0.1:1", address), "{address}");
        }
    }
}
