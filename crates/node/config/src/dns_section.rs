//! `[dns]`: this node as a name server that sends clients to regions.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_geo::dns::{
    CaaRecord, DnsConfig, HostRecord, LimiterConfig, NameError, Zone, ZoneName, ZoneRegion,
    ZoneSpec,
};
use toml::Spanned;

use crate::cluster_section::ClusterConfig;
use crate::error::{ConfigError, ConfigErrors, all};
use crate::region_section::RegionConfig;
use crate::source::Source;

/// Maximum number of addresses in one answer: it fits into a datagram, and is of no use for
/// amplification.
const ADDRESSES_MAX: usize = 4;
/// Difference in round-trip time, in milliseconds, up to which regions share clients by their weights.
const EQUAL_MS: f32 = 5.0;
/// Burst of answers to a client network.
const ANSWERS_BURST: u32 = 1_000;
/// Serial number of the zone. No server transfers the zone, so the number need not change.
const SERIAL: u32 = 1;

/// `[dns]`: this node as a name server that leads clients to regions.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DnsSection {
    /// UDP and TCP address, e.g. `0.0.0.0:53`.
    #[schemars(with = "SocketAddr")]
    pub(crate) listen: Spanned<SocketAddr>,
    /// Name of the zone, which the parent zone has to delegate to this node.
    #[schemars(with = "String")]
    pub(crate) zone: Spanned<String>,
    /// Names in the zone that resolve to addresses of regions; `@` is the zone itself.
    #[serde(default = "default_names")]
    #[schemars(with = "Vec<String>")]
    pub(crate) names: Vec<Spanned<String>>,
    /// Names of the zone's name servers, the same as in the parent zone.
    #[schemars(with = "Vec<String>")]
    pub(crate) name_servers: Spanned<Vec<String>>,
    /// Seconds for which resolvers may cache an address, 1 to 30.
    #[serde(default = "default_ttl_s")]
    #[schemars(range(min = 1, max = 30))]
    pub(crate) ttl_s: u32,
    /// CAA records: authorities that may issue certificates, as in a zone file, e.g. `0 issue
    /// "ca.example.net"`.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) caa: Vec<Spanned<String>>,
    /// Addresses of other names in the zone, such as its name servers.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, Vec<IpAddr>>")]
    pub(crate) hosts: BTreeMap<String, Spanned<Vec<IpAddr>>>,
    /// Names in the zone that are aliases of names elsewhere (CNAME), e.g. `_acme-challenge`.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub(crate) aliases: BTreeMap<String, Spanned<String>>,
    /// True to publish a record of type HTTPS, so that clients use HTTPS with HTTP/2. Default: true
    /// if a listener has a certificate.
    #[serde(default)]
    pub(crate) https: Option<bool>,
    /// Answers per second by UDP to one client network (/24, or /56 of IPv6), after a burst of 1,000;
    /// 0 sets no limit.
    #[serde(default = "default_answers_per_s")]
    pub(crate) answers_per_s: u32,
}

fn default_names() -> Vec<Spanned<String>> {
    vec![Spanned::new(0..0, "@".to_owned())]
}

/// Resolvers keep an address for this time, and as long clients still try a region that is lost.
fn default_ttl_s() -> u32 {
    20
}

fn default_answers_per_s() -> u32 {
    500
}

impl DnsSection {
    /// Checks the section.
    ///
    /// # Errors
    /// Returns the first fault, with its line.
    pub(crate) fn lower(
        self,
        source: &Source,
        cluster: Option<&ClusterConfig>,
        has_tls: bool,
    ) -> Result<DnsConfig, ConfigErrors> {
        let Some(cluster) = cluster else {
            let message = "without [cluster] there are no regions to lead clients to";
            let remedy = "add a [cluster] section, or remove [dns]";
            return Err(source.fault(self.zone.span(), message, remedy).into());
        };
        let spec = self.lower_zone(source, &cluster.regions, has_tls)?;
        let mut errors = ConfigErrors::default();
        errors.keep(check_name_servers(source, &self, &spec));
        errors.keep(check_families(source, &self, &spec.regions));
        errors.or(DnsConfig {
            listen: *self.listen.get_ref(),
            zone: Zone::new(spec),
            limiter: LimiterConfig { answers_per_s: self.answers_per_s, burst: ANSWERS_BURST },
        })
    }

    fn lower_zone(
        &self,
        source: &Source,
        regions: &[RegionConfig],
        has_tls: bool,
    ) -> Result<ZoneSpec, ConfigErrors> {
        let name = |text: &str, span| ZoneName::parse(text).map_err(|e| no_name(source, &e, span));
        let origin = name(self.zone.get_ref(), self.zone.span())?;
        let inside = |text: &str, span| {
            ZoneName::within(text, &origin).map_err(|e| no_name(source, &e, span))
        };
        let services = self.names.iter().map(|text| inside(text.get_ref(), text.span()));
        let servers = self.name_servers.get_ref().iter();
        let servers = servers.map(|text| name(text, self.name_servers.span()));
        let hosts = self.hosts.iter().map(|(text, addresses)| {
            let name = inside(text, addresses.span())?;
            Ok(HostRecord { name, addresses: addresses.get_ref().clone() })
        });
        let aliases = self.aliases.iter().map(|(text, target)| {
            Ok((inside(text, target.span())?, name(target.get_ref(), target.span())?))
        });
        let contact = inside("hostmaster", self.zone.span());
        let mut errors = ConfigErrors::default();
        let caa = self.caa.iter().map(|text| lower_caa(source, text));
        let services = errors.keep(all(services)).unwrap_or_default();
        let name_servers = errors.keep(all(servers)).unwrap_or_default();
        let caa = errors.keep(all(caa)).unwrap_or_default();
        let hosts = errors.keep(all::<_, ConfigError>(hosts)).unwrap_or_default();
        let aliases = errors.keep(all::<_, ConfigError>(aliases)).unwrap_or_default();
        let Some(contact) = errors.keep(contact) else { return Err(errors) };
        let spec = ZoneSpec {
            services,
            name_servers,
            contact,
            serial: SERIAL,
            ttl_s: self.ttl_s,
            caa,
            hosts,
            aliases,
            has_https: self.https.unwrap_or(has_tls),
            addresses_max: ADDRESSES_MAX,
            equal_ms: EQUAL_MS,
            regions: regions.iter().filter_map(lower_region).collect(),
            origin,
        };
        if errors.is_empty() {
            check_aliases(source, self, &spec)?;
        }
        errors.or(spec)
    }
}

/// Returns a region that clients can be led to: one with coordinates and addresses.
fn lower_region(region: &RegionConfig) -> Option<ZoneRegion> {
    Some(ZoneRegion {
        name: region.name.clone(),
        coordinates: region.coordinates.filter(|_| !region.addresses.is_empty())?,
        addresses: region.addresses.clone(),
        client_networks: region.client_networks.clone(),
    })
}

fn no_name(source: &Source, error: &NameError, span: std::ops::Range<usize>) -> ConfigError {
    let remedy = "use labels of letters, digits and hyphens with dots between them";
    source.fault(span, error.to_string(), remedy)
}

/// Reads a CAA record in the form of zone files: flags, tag and value.
fn lower_caa(source: &Source, text: &Spanned<String>) -> Result<CaaRecord, ConfigError> {
    let fault = |message: &str| {
        let remedy = "write it as 0 issue \"ca.example.net\"; tags are issue, issuewild and iodef";
        source.fault(text.span(), message, remedy)
    };
    let mut words = text.get_ref().splitn(3, ' ');
    let (Some(flags), Some(tag), Some(value)) = (words.next(), words.next(), words.next()) else {
        return Err(fault("a CAA record has flags, a tag and a value"));
    };
    let is_critical = match flags {
        "0" => false,
        "128" => true,
        _ => return Err(fault("the flags of a CAA record are 0, or 128 for a critical one")),
    };
    if !["issue", "issuewild", "iodef"].contains(&tag) {
        return Err(fault("no such tag of a CAA record"));
    }
    let value = value.trim().trim_matches('"').to_owned();
    if value.len() > usize::from(u8::MAX) || !value.is_ascii() {
        return Err(fault("the value of a CAA record is ASCII, up to 255 letters"));
    }
    Ok(CaaRecord { is_critical, tag: tag.to_owned(), value })
}

/// Checks that the zone has name servers, and that those inside it have addresses here. The parent
/// zone has these as glue, but resolvers ask the zone itself, too.
fn check_name_servers(
    source: &Source,
    section: &DnsSection,
    spec: &ZoneSpec,
) -> Result<(), ConfigError> {
    if spec.name_servers.is_empty() {
        let message = "a zone has at least one name server";
        let remedy = "name the same as the parent zone, e.g. [\"ns1.infer.example.com\"]";
        return Err(source.fault(section.name_servers.span(), message, remedy));
    }
    let has_address = |name: &ZoneName| {
        spec.hosts.iter().any(|host| host.name == *name && !host.addresses.is_empty())
    };
    let mut inside = spec.name_servers.iter().filter(|name| name.is_within(&spec.origin));
    if let Some(name) = inside.find(|name| !has_address(name)) {
        let message = format!("the name server {name} is in the zone and has no address");
        let remedy = "add its address to hosts in [dns]";
        return Err(source.fault(section.name_servers.span(), message, remedy));
    }
    Ok(())
}

/// Checks that no other record has the name of an alias (RFC 1034, section 3.6.2).
fn check_aliases(
    source: &Source,
    section: &DnsSection,
    spec: &ZoneSpec,
) -> Result<(), ConfigError> {
    for ((name, _), text) in spec.aliases.iter().zip(section.aliases.values()) {
        let hosts = spec.hosts.iter().map(|host| &host.name);
        // The origin has at least its SOA and NS records.
        if hosts.chain(&spec.services).chain([&spec.origin]).any(|other| other == name) {
            let message = format!("{name} has other records, so it can't be an alias");
            return Err(source.fault(text.span(), message, "remove one of the two"));
        }
    }
    Ok(())
}

/// Checks that all regions have IPv4 addresses, or none. A client gets both address families of one
/// region, so each region needs the family that every client can use.
fn check_families(
    source: &Source,
    section: &DnsSection,
    regions: &[ZoneRegion],
) -> Result<(), ConfigError> {
    let span = section.zone.span();
    if regions.is_empty() {
        let message = "no region has addresses that clients could be led to";
        return Err(source.fault(span, message, "add addresses = [\"...\"] to each [[region]]"));
    }
    let has_v4 = |region: &&ZoneRegion| region.addresses.iter().any(IpAddr::is_ipv4);
    let without = regions.iter().find(|region| !has_v4(region));
    match (without, regions.iter().any(|region| has_v4(&region))) {
        (Some(region), true) => {
            let message = format!("the region {} has no IPv4 address, others have", region.name);
            let remedy = "give each region one, or none: a client gets both families of one region";
            Err(source.fault(span, message, remedy))
        }
        _ => Ok(()),
    }
}
