//! Memory of request bodies by client address.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use spillway_prefix::PrefixHasher;

use crate::shares::client_of;

/// Number of counters, 32 kB in all. Two clients share a counter by chance where thousands send
/// bodies at the same moment, and no client can choose with which. A table of all clients would
/// take a lock for each request.
const COUNTS: usize = 4_096;

/// Bytes of request bodies in memory, by client. No call blocks.
#[derive(Debug)]
pub struct BodyShares(Box<[AtomicU64]>);

/// Index of a client's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyHolder(usize);

impl Default for BodyShares {
    fn default() -> Self {
        Self((0..COUNTS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl BodyShares {
    /// Returns the counter of the client with this address.
    pub fn holder(&self, address: IpAddr, hasher: &PrefixHasher) -> BodyHolder {
        let hash = match client_of(address) {
            IpAddr::V4(address) => hasher.hash_request_key(&address.octets()),
            IpAddr::V6(address) => hasher.hash_request_key(&address.octets()),
        };
        BodyHolder((hash % COUNTS as u64) as usize)
    }

    /// Adds `bytes` to a client's counter and returns the new total.
    pub fn add(&self, holder: BodyHolder, bytes: u64) -> u64 {
        self.0[holder.0].fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// Subtracts `bytes` from a client's counter.
    pub fn give_back(&self, holder: BodyHolder, bytes: u64) {
        self.0[holder.0].fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use spillway_prefix::PrefixConfig;

    use super::*;

    #[test]
    fn each_client_has_a_count_of_its_own_and_a_network_of_ipv6_is_one() {
        let hasher = PrefixHasher::new([1, 2, 3, 4], PrefixConfig::default()).unwrap();
        let shares = BodyShares::default();
        let holder = |text: &str| shares.holder(text.parse().unwrap(), &hasher);
        let (one, other) = (holder("192.0.2.1"), holder("192.0.2.2"));
        assert_ne!(one, other);
        assert_eq!(one, holder("::ffff:192.0.2.1"));
        assert_eq!(holder("2001:db8:1:2::1"), holder("2001:db8:1:2:ffff::9"));
        assert_ne!(holder("2001:db8:1:2::1"), holder("2001:db8:1:3::1"));
        assert_eq!((shares.add(one, 5), shares.add(one, 6), shares.add(other, 1)), (5, 11, 1));
        shares.give_back(one, 5);
        assert_eq!(shares.add(one, 0), 6);
    }
}
