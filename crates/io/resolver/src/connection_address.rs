//! Address that a connection leads to.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::host::Host;

/// Address that a connection leads to. Shows whether the host's name still has that address.
#[derive(Debug)]
pub struct ConnectionAddress {
    host: Arc<Host>,
    address: IpAddr,
    /// Number of the host's removals that this address has outlived.
    outlived: AtomicU32,
}

impl ConnectionAddress {
    /// `removals` was read before the addresses that the connection was chosen from.
    pub(crate) fn new(host: Arc<Host>, address: IpAddr, removals: u32) -> Self {
        Self { host, address, outlived: AtomicU32::new(removals) }
    }

    /// Returns the address.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.address
    }

    /// Returns false once the host's name has other addresses: then no further request belongs on the
    /// connection. Usually costs one comparison.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let removals = self.host.removals();
        if removals == self.outlived.load(Ordering::Relaxed) {
            return true;
        }
        let is_current = self.host.known().addresses.contains(&self.address);
        if is_current {
            self.outlived.store(removals, Ordering::Relaxed);
        }
        is_current
    }

    /// Returns when the host's name no longer has this address.
    pub async fn removed(&self) {
        self.host.until(|known| !known.addresses.contains(&self.address)).await;
    }
}
