//! Addresses behind which no model server can be.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Metadata services of clouds that have no link-local address: Alibaba Cloud, Azure, and AWS and
/// Google Cloud over IPv6. They hand out the machine's credentials to any process that asks.
const METADATA_V4: [Ipv4Addr; 2] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16)];
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Returns true for addresses that only the machine itself or its cloud answers: link-local ones,
/// such as the metadata service at 169.254.169.254, and the metadata services of clouds. A node
/// connects to no replica there, whatever the source of the address.
#[must_use]
pub fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_link_local_v4(address),
        IpAddr::V6(address) => {
            let embedded = address.to_ipv4_mapped().or_else(|| behind_nat64(address));
            embedded.is_some_and(is_link_local_v4)
                || address.is_unicast_link_local()
                || METADATA_V6.contains(&address)
        }
    }
}

fn is_link_local_v4(address: Ipv4Addr) -> bool {
    address.is_link_local() || METADATA_V4.contains(&address)
}

/// Returns the address that a translator (NAT64) connects to.
fn behind_nat64(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [0x64, 0xff9b, 0, 0, 0, 0, high, low] = address.segments() else { return None };
    Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_services_and_link_local_addresses_are_found_in_each_spelling() {
        for text in [
            "169.254.169.254",
            "169.254.0.1",
            "169.254.170.2",
            "100.100.100.200",
            "168.63.129.16",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fe80::1",
            "febf::1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
        ] {
            assert!(is_link_local(text.parse().unwrap()), "{text}");
        }
        for text in ["127.0.0.1", "10.0.0.1", "169.253.1.1", "100.100.100.201", "::1", "fd00::1"] {
            assert!(!is_link_local(text.parse().unwrap()), "{text}");
        }
    }
}
