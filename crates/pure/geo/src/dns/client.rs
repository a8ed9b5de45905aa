//! Networks that queries come from or are asked for.

use std::net::IpAddr;

/// Transport of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryTransport {
    /// UDP: the source address may be forged.
    Udp,
    /// TCP: the handshake has proved the source address.
    Tcp,
}

impl QueryTransport {
    /// Returns the label for metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }
}

/// Length in bits of an IPv4 [`ClientNetwork`]. RFC 7871 (section 11.1) recommends that resolvers
/// reveal no more of a client's address.
pub(crate) const V4_BITS: u8 = 24;
/// Length in bits of an IPv6 [`ClientNetwork`], from the same section.
pub(crate) const V6_BITS: u8 = 56;

/// Network of an address: the first 24 bits of an IPv4 address, or 56 of an IPv6 address. An
/// IPv4-mapped IPv6 address counts as its IPv4 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientNetwork {
    bits: u128,
    is_v6: bool,
}

impl ClientNetwork {
    /// Returns the network of `address`.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                Self { bits: u128::from(u32::from(address) >> (32 - V4_BITS)), is_v6: false }
            }
            IpAddr::V6(address) => {
                Self { bits: u128::from(address) >> (128 - V6_BITS), is_v6: true }
            }
        }
    }

    /// Returns a hash of the network, `salt` and `text` that is equal on every node and in every
    /// version, so that the answers of several nodes agree.
    pub(crate) fn hash(self, salt: u64, text: &[u8]) -> u64 {
        let low = u64::try_from(self.bits & u128::from(u64::MAX)).unwrap_or_default();
        // The bits of a short IPv6 network may equal those of an IPv4 network.
        let start = mix(low ^ salt).wrapping_add(u64::from(self.is_v6));
        text.iter().fold(mix(start), |hash, byte| mix(hash ^ u64::from(*byte)))
    }
}

/// Mixes bits with the finalizer of splitmix64: every bit of the result depends on every bit of
/// `value`.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> ClientNetwork {
        ClientNetwork::of(text.parse().unwrap())
    }

    #[test]
    fn neighbours_share_a_network_and_others_do_not() {
        assert_eq!(of("192.0.2.1"), of("192.0.2.254"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.9"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_eq!(of("2001:db8:0:12::1"), of("2001:db8:0:34::1"));
        assert_ne!(of("2001:db8:0:100::1"), of("2001:db8:0:200::1"));
        assert_ne!(of("::"), of("0.0.0.0"));
    }

    #[test]
    fn hashes_differ_by_network_salt_and_text() {
        let one = of("192.0.2.1").hash(1, b"a");
        assert_eq!(one, of("192.0.2.77").hash(1, b"a"));
        assert_ne!(one, of("192.0.3.1").hash(1, b"a"));
        assert_ne!(one, of("192.0.2.1").hash(2, b"a"));
        assert_ne!(one, of("192.0.2.1").hash(1, b"b"));
        assert_ne!(of("::").hash(1, b""), of("0.0.0.0").hash(1, b""));
    }
}
