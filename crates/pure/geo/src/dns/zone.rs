//! Zone that this node answers for, made from the config.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_proto::rr::rdata::svcb::{Alpn, SvcParamKey, SvcParamValue};
use hickory_proto::rr::rdata::{A, AAAA, CAA, CNAME, HTTPS, NS, SOA, SVCB};
use hickory_proto::rr::{Name, RData};
use ipnet::IpNet;
use spillway_types::RegionName;

use crate::Coordinates;
use crate::dns::ZoneName;
use crate::dns::outcome::QueryKind;

/// TTL in seconds of records that only a change of the config changes.
pub(crate) const STATIC_TTL_S: u32 = 3_600;
/// SOA refresh interval in seconds. No server transfers this zone, but checkers want usual values.
const REFRESH_S: i32 = 3_600;
/// SOA retry interval in seconds.
const RETRY_S: i32 = 600;
/// SOA expire time in seconds.
const EXPIRE_S: i32 = 604_800;

/// Parsed and checked settings of a zone.
#[derive(Debug, Clone)]
pub struct ZoneSpec {
    /// Name of the zone.
    pub origin: ZoneName,
    /// Names in the zone that lead to regions.
    pub services: Vec<ZoneName>,
    /// Name servers of the zone, the primary first; at least one.
    pub name_servers: Vec<ZoneName>,
    /// Mail address of the person responsible, with a dot in place of the `@`.
    pub contact: ZoneName,
    /// Serial number.
    pub serial: u32,
    /// TTL in seconds of addresses and of negative answers.
    pub ttl_s: u32,
    /// Certificate authorities that may issue certificates.
    pub caa: Vec<CaaRecord>,
    /// Names with addresses that never change, such as name servers inside the zone.
    pub hosts: Vec<HostRecord>,
    /// Aliases (CNAME), each with its target outside the zone.
    pub aliases: Vec<(ZoneName, ZoneName)>,
    /// True if HTTPS records announce to clients that the services speak HTTP/2 over TLS.
    pub has_https: bool,
    /// Largest number of addresses of each family in one answer.
    pub addresses_max: usize,
    /// Milliseconds of round trip time by which a region may be farther than the nearest one and
    /// still count as equally near.
    pub equal_ms: f32,
    /// Regions of the zone, with their addresses.
    pub regions: Vec<ZoneRegion>,
}

/// CAA record (RFC 8659): a certificate authority that may issue certificates for the zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaaRecord {
    /// True if a certificate authority that does not know the tag must refuse.
    pub is_critical: bool,
    /// `issue`, `issuewild` or `iodef`.
    pub tag: String,
    /// Domain of the certificate authority, or the address for reports.
    pub value: String,
}

/// Name with addresses that never change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRecord {
    /// Name of the host.
    pub name: ZoneName,
    /// Addresses of the host.
    pub addresses: Vec<IpAddr>,
}

/// Region that clients can be directed to.
#[derive(Debug, Clone, PartialEq)]
pub struct ZoneRegion {
    /// Name of the region.
    pub name: RegionName,
    /// Addresses of the region's nodes, or of the load balancer before them.
    pub addresses: Vec<IpAddr>,
    /// Coordinates of the region.
    pub coordinates: Coordinates,
    /// Networks whose clients count as near this region even if a database disagrees: for example
    /// private networks, which no database knows.
    pub client_networks: Vec<IpNet>,
}

/// Zone with the records that do not depend on the query.
#[derive(Debug, Clone)]
pub struct Zone {
    spec: ZoneSpec,
    soa: SOA,
    caa: Vec<RData>,
    name_servers: Vec<RData>,
    https: Option<RData>,
}

/// Result of looking up a name in the zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZoneMatch<'z> {
    /// The name is outside the zone.
    Elsewhere,
    /// The name does not exist, and no name exists below it.
    Nothing,
    /// The name has no records of its own, but names below it exist.
    Empty,
    /// The name has records. The apex and the services have records that depend on the query.
    Name { is_apex: bool, is_service: bool, host: Option<&'z HostRecord> },
    /// The name is an alias of this target.
    Alias(&'z ZoneName),
}

impl Zone {
    /// Creates a zone from its settings.
    #[must_use]
    pub fn new(spec: ZoneSpec) -> Self {
        let primary = spec.name_servers.first().unwrap_or(&spec.origin).name().clone();
        let negative_s = spec.ttl_s;
        let contact = spec.contact.name().clone();
        let soa = SOA::new(primary, contact, spec.serial, REFRESH_S, RETRY_S, EXPIRE_S, negative_s);
        let name_server = |name: &ZoneName| RData::NS(NS(name.name().clone()));
        Self {
            soa,
            caa: spec.caa.iter().map(caa).collect(),
            name_servers: spec.name_servers.iter().map(name_server).collect(),
            https: spec.has_https.then(https),
            spec,
        }
    }

    /// Returns the name of the zone.
    #[must_use]
    pub fn origin(&self) -> &ZoneName {
        &self.spec.origin
    }

    /// Returns the regions that clients can be directed to; a [`crate::dns::DnsView`] has them in
    /// this order.
    #[must_use]
    pub fn regions(&self) -> &[ZoneRegion] {
        &self.spec.regions
    }

    /// Returns the coordinates of the region whose `client_networks` hold the address; the longest
    /// prefix wins. Returns `None` if no network holds the address.
    pub(crate) fn placed(&self, address: IpAddr) -> Option<Coordinates> {
        let address = address.to_canonical();
        let networks = |region: &ZoneRegion| {
            let has = region.client_networks.iter().filter(|network| network.contains(&address));
            has.map(IpNet::prefix_len).max()
        };
        let bits = self.spec.regions.iter().filter_map(|region| Some((networks(region)?, region)));
        // The longest prefix is the most specific network.
        bits.max_by_key(|(bits, _)| *bits).map(|(_, region)| region.coordinates)
    }

    pub(crate) fn spec(&self) -> &ZoneSpec {
        &self.spec
    }

    pub(crate) fn soa(&self) -> RData {
        RData::SOA(self.soa.clone())
    }

    pub(crate) fn find(&self, name: &Name) -> ZoneMatch<'_> {
        let spec = &self.spec;
        if !spec.origin.name().zone_of(name) {
            return ZoneMatch::Elsewhere;
        }
        // An alias has no other records, so it is looked up first.
        if let Some((_, target)) = spec.aliases.iter().find(|(alias, _)| alias.name() == name) {
            return ZoneMatch::Alias(target);
        }
        let is_apex = spec.origin.name() == name;
        let is_service = spec.services.iter().any(|service| service.name() == name);
        let host = spec.hosts.iter().find(|host| host.name.name() == name);
        if is_apex || is_service || host.is_some() {
            return ZoneMatch::Name { is_apex, is_service, host };
        }
        let hosts = spec.hosts.iter().map(|host| &host.name);
        let aliases = spec.aliases.iter().map(|(alias, _)| alias);
        let mut all = spec.services.iter().chain(hosts).chain(aliases);
        // RFC 8020: a name exists if names below it exist.
        if all.any(|other| name.zone_of(other.name())) {
            ZoneMatch::Empty
        } else {
            ZoneMatch::Nothing
        }
    }

    /// Returns the records of a kind at the apex or a service that are equal for every client.
    pub(crate) fn fixed(&self, kind: QueryKind, is_apex: bool, is_service: bool) -> &[RData] {
        match kind {
            QueryKind::Ns if is_apex => &self.name_servers,
            QueryKind::Caa if is_apex => &self.caa,
            QueryKind::Https if is_service => self.https.as_slice(),
            _ => &[],
        }
    }
}

/// Returns the addresses of the requested family as records.
pub(crate) fn address_records(addresses: &[IpAddr], kind: QueryKind) -> Vec<RData> {
    let record = |address: &IpAddr| match (address, kind) {
        (IpAddr::V4(address), QueryKind::A) => Some(v4(*address)),
        (IpAddr::V6(address), QueryKind::Aaaa) => Some(v6(*address)),
        _ => None,
    };
    addresses.iter().filter_map(record).collect()
}

pub(crate) fn alias_record(target: &ZoneName) -> RData {
    RData::CNAME(CNAME(target.name().clone()))
}

fn v4(address: Ipv4Addr) -> RData {
    RData::A(A(address))
}

fn v6(address: Ipv6Addr) -> RData {
    RData::AAAA(AAAA(address))
}

fn caa(record: &CaaRecord) -> RData {
    let mut caa = CAA::new_issue(record.is_critical, None, Vec::new());
    caa.tag.clone_from(&record.tag);
    caa.value = record.value.clone().into_bytes();
    RData::CAA(caa)
}

/// Returns the HTTPS record: HTTP/2 over TLS at the name itself. HTTP/1.1 is implied (RFC 9460,
/// section 7.1). HTTP/3 is not served, so it is not announced.
fn https() -> RData {
    let alpn = (SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(vec!["h2".to_owned()])));
    RData::HTTPS(HTTPS(SVCB::new(1, Name::root(), vec![alpn])))
}
