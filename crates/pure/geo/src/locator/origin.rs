//! IPv4 addresses inside of IPv6 addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the IPv4 address that an IPv6 address contains, or else the address as it is.
///
/// Databases know the mapped form and 6to4 by aliases or not at all, and they place Teredo clients
/// at their Teredo server.
pub(super) fn origin(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    embedded(v6).map_or(address, IpAddr::V4)
}

fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    match (a, b) {
        (0, 0) if (c, d, e, f) == (0, 0, 0, 0xffff) => Some(joined(g, h)),
        // NAT64 with the well-known prefix (RFC 6052).
        (0x64, 0xff9b) if (c, d, e, f) == (0, 0, 0, 0) => Some(joined(g, h)),
        // 6to4: the address of the router that connects the client (RFC 3056).
        (0x2002, _) => Some(joined(b, c)),
        // Teredo: the public address of the client, with every bit inverted (RFC 4380).
        (0x2001, 0) => Some(joined(!g, !h)),
        _ => None,
    }
}

fn joined(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_stand_for_an_ipv4_address_are_that_address() {
        for (address, expected) in [
            ("203.0.113.7", "203.0.113.7"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("64:ff9b::203.0.113.7", "203.0.113.7"),
            ("2002:cb00:7107:1::5", "203.0.113.7"),
            // The example of RFC 4380: server 65.54.227.120, client 192.0.2.45.
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "192.0.2.45"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(origin(address), expected.parse::<IpAddr>().unwrap(), "{address}");
        }
    }

    #[test]
    fn other_ipv6_addresses_stay_what_they_are() {
        for text in ["::1", "::203.0.113.7", "2001:db8::1", "64:ff9b:1::1", "::ffff:0:203.0.113.7"]
        {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(origin(address), address);
        }
    }
}
