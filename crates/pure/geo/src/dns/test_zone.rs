//! Zone of three regions for tests.
#![expect(clippy::unwrap_used, reason = "a fixture of tests")]

use std::net::IpAddr;

use crate::dns::{
    CaaRecord, DnsView, HostRecord, RegionState, Zone, ZoneName, ZoneRegion, ZoneSpec,
};
use crate::{ClientLocation, Coordinates, town_of};

/// Frankfurt, Virginia and Singapore, in this order.
pub(crate) const REGIONS: [&str; 3] = ["eu-central-1", "us-east-1", "ap-southeast-1"];
pub(crate) const EU: usize = 0;
#[cfg(test)]
pub(crate) const US: usize = 1;
#[cfg(test)]
pub(crate) const AP: usize = 2;

pub(crate) fn name(text: &str) -> ZoneName {
    ZoneName::parse(text).unwrap()
}

pub(crate) fn spec() -> ZoneSpec {
    let addresses = [
        ["203.0.113.1", "203.0.113.2", "2001:db8:1::1"],
        ["203.0.113.33", "203.0.113.34", "2001:db8:2::1"],
        ["203.0.113.65", "203.0.113.66", "203.0.113.67"],
    ];
    let region = |(name, addresses): (&str, [&str; 3])| ZoneRegion {
        name: name.into(),
        addresses: addresses.map(|address| address.parse().unwrap()).to_vec(),
        coordinates: town_of(name).unwrap(),
        client_networks: Vec::new(),
    };
    ZoneSpec {
        origin: name("infer.example.com"),
        services: vec![name("infer.example.com"), name("api.v1.infer.example.com")],
        name_servers: vec![name("ns1.infer.example.com"), name("ns2.example.net")],
        contact: name("hostmaster.example.com"),
        serial: 7,
        ttl_s: 20,
        caa: vec![CaaRecord {
            is_critical: false,
            tag: "issue".to_owned(),
            value: "ca.example.net".to_owned(),
        }],
        hosts: vec![HostRecord {
            name: name("ns1.infer.example.com"),
            addresses: vec!["203.0.113.129".parse().unwrap()],
        }],
        aliases: vec![(name("_acme-challenge.infer.example.com"), name("x.acme.example.net"))],
        has_https: true,
        addresses_max: 2,
        equal_ms: 5.0,
        regions: REGIONS.into_iter().zip(addresses).map(region).collect(),
    }
}

pub(crate) fn zone() -> Zone {
    Zone::new(spec())
}

/// Returns a view in which all regions are offered and this node is in Frankfurt.
pub(crate) fn view() -> DnsView {
    let state = RegionState {
        is_offered: true,
        is_alive: true,
        weight_permille: 1_000,
        measured_rtt_ms: None,
    };
    DnsView { is_settled: true, own: Some(EU), regions: vec![state; REGIONS.len()] }
}

/// Locates addresses by their third byte: 1 is Paris, 2 is New York, 3 is Tokyo, others are
/// unknown.
pub(crate) fn locate(address: IpAddr) -> ClientLocation {
    let byte = match address.to_canonical() {
        IpAddr::V4(address) => address.octets()[2],
        IpAddr::V6(address) => address.octets()[4],
    };
    let at = match byte {
        1 => Coordinates::new(48.9, 2.4),
        2 => Coordinates::new(40.7, -74.0),
        3 => Coordinates::new(35.7, 139.7),
        _ => None,
    };
    ClientLocation { coordinates: at, ..ClientLocation::default() }
}
