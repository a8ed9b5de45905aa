//! Fuzz targets of this crate: DNS queries, and location databases, whose files come from outside.

use std::net::IpAddr;

use spillway_types::Country;

use crate::Locator;

/// Fuzz target: the name of its folder of inputs, and the function that runs one input.
pub type Target = (&'static str, fn(&[u8]));

/// Fuzz targets of this crate.
pub const TARGETS: &[Target] =
    &[("dns_query", crate::dns::fuzz::dns_query), ("location_database", location_database)];

/// Asserts that a file is refused, or that every address is at a valid place or at no place.
fn location_database(input: &[u8]) {
    let addresses =
        ["0.0.0.0", "203.0.113.7", "255.255.255.255", "::", "2001:db8::1", "2002:cb00:7107::1"];
    // Once as a database of places, once as a database of autonomous systems.
    let asns = crate::DatabaseWriter::new("Test-City").country("203.0.113.0/24", "DE").bytes();
    let both = [
        Locator::from_bytes(input.to_vec(), None),
        Locator::from_bytes(asns, Some(input.to_vec())),
    ];
    for locator in both.into_iter().flatten() {
        for address in addresses {
            let Ok(address) = address.parse::<IpAddr>() else { continue };
            let place = locator.locate(address);
            let is_capital = |byte: u8| byte.is_ascii_uppercase();
            let is_code = |country: Country| country.as_str().bytes().all(is_capital);
            assert!(place.country.is_none_or(is_code));
            let is_on_earth = |point: crate::Coordinates| {
                crate::Coordinates::new(point.latitude, point.longitude).is_some()
            };
            assert!(place.coordinates.is_none_or(is_on_earth));
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn targets_hold_on_kept_inputs_and_on_mutations_of_them() {
        spillway_fuzz::check(super::TARGETS);
    }
}
