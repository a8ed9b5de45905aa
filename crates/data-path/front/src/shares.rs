//! Connection limit of each client, by address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Parts of the table, each with its own lock: workers that accept at the same time seldom contend.
/// Requests never use the table.
const PARTS: usize = 16;
/// Leading bits of an IPv6 address that identify a client: it has all addresses that begin with
/// them.
const IPV6_BITS: u32 = 64;

/// Open connections by client. Clients without one have no entry.
#[derive(Debug)]
pub struct Shares {
    each_max: u32,
    parts: [Mutex<HashMap<IpAddr, u32>>; PARTS],
}

/// Part of a client's share that one connection takes; released when dropped.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    client: IpAddr,
}

impl Shares {
    /// Returns a table in which no client has more than `each_max` connections.
    pub fn new(each_max: usize) -> Self {
        let each_max = u32::try_from(each_max).unwrap_or(u32::MAX);
        Self { each_max, parts: Default::default() }
    }

    /// Returns a share for one more connection of this address; `None` if its client is at the
    /// limit.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Option<Share> {
        let client = client_of(address);
        let mut part = self.part(client);
        let count = part.entry(client).or_default();
        // A refused client has an entry already, since the limit is positive.
        if *count >= self.each_max {
            return None;
        }
        *count += 1;
        Some(Share { shares: Arc::clone(self), client })
    }

    fn part(&self, client: IpAddr) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        let number = match client {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits() >> (128 - IPV6_BITS),
        };
        // Modulo a prime, so that neighbouring addresses don't share a part by a pattern in their
        // numbers.
        let part = (number % 65_521) as usize % PARTS;
        self.parts[part].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut part = self.shares.part(self.client);
        if let Some(count) = part.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                part.remove(&self.client);
            }
        }
    }
}

/// Returns the address that identifies a client: IPv6 addresses are cut to their first 64 bits.
pub(crate) fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let kept = address.to_bits() >> (128 - IPV6_BITS) << (128 - IPV6_BITS);
            Ipv6Addr::from_bits(kept).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn entries(shares: &Shares) -> usize {
        shares.parts.iter().map(|part| part.lock().unwrap().len()).sum()
    }

    #[test]
    fn each_client_has_its_own_limit_and_leaves_nothing_behind() {
        let shares = Arc::new(Shares::new(2));
        let first: Vec<_> = (0..2).map_while(|_| shares.take(address("192.0.2.1"))).collect();
        assert_eq!(first.len(), 2);
        assert!(shares.take(address("192.0.2.1")).is_none());
        assert!(shares.take(address("::ffff:192.0.2.1")).is_none(), "the same in another form");
        let other = shares.take(address("192.0.2.2")).unwrap();
        assert_eq!(entries(&shares), 2);
        drop(first);
        assert!(shares.take(address("192.0.2.1")).is_some());
        drop(other);
        assert_eq!(entries(&shares), 0);
    }

    #[test]
    fn whoever_has_a_network_of_ipv6_is_one_client() {
        let shares = Arc::new(Shares::new(1));
        let held = shares.take(address("2001:db8:1:2::1")).unwrap();
        assert!(shares.take(address("2001:db8:1:2:ffff::9")).is_none());
        assert!(shares.take(address("2001:db8:1:3::1")).is_some());
        drop(held);
        assert!(shares.take(address("2001:db8:1:2:ffff::9")).is_some());
    }
}
