//! `[[region]]`: weight, price and place of a region, and the addresses for its clients.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_geo::Coordinates;
use spillway_types::{Country, Percent, RegionName};
use toml::Spanned;

use crate::error::{ConfigError, ConfigErrors, all};
use crate::source::Source;

/// `[[region]]`: weight, price and place of a region.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegionSection {
    /// Name of the region.
    #[schemars(with = "String")]
    pub(crate) name: Spanned<String>,
    /// Percentage of its usual share of requests that the region gets, with at most one decimal; 0
    /// evacuates it.
    #[serde(default = "default_weight_percent")]
    #[schemars(with = "f64", range(min = 0, max = 100))]
    pub(crate) weight_percent: Percent,
    /// Extra cost of a request in that region, as an equivalent waiting time in ms.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub(crate) price_ms: f32,
    /// Round-trip time to the region in ms, until it is measured.
    #[serde(default)]
    pub(crate) rtt_ms: Option<u32>,
    /// Country of the region, e.g. `DE`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) country: Option<Country>,
    /// Addresses at which clients reach the region: those of its nodes, or of the load balancer in
    /// front of them.
    #[serde(default)]
    pub(crate) addresses: Vec<IpAddr>,
    /// Latitude in degrees north; not needed if the region is named like a public cloud's region.
    #[serde(default)]
    #[schemars(range(min = -90, max = 90))]
    pub(crate) latitude: Option<f64>,
    /// Longitude in degrees east.
    #[serde(default)]
    #[schemars(range(min = -180, max = 180))]
    pub(crate) longitude: Option<f64>,
    /// Networks whose clients are near the region, e.g. `10.1.0.0/16`, regardless of the location
    /// database.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) client_networks: Vec<Spanned<String>>,
}

/// Weight, price and place of a region.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionConfig {
    /// Name of the region.
    pub name: RegionName,
    /// Part of its usual share of requests that the region gets, in permille.
    pub weight_permille: u16,
    /// Extra cost of a request there, in milliseconds of waiting.
    pub price_ms: f32,
    /// Round-trip time to the region, until it is measured.
    pub rtt: Option<Duration>,
    /// Country that the region is in.
    pub country: Option<Country>,
    /// Addresses by which clients reach the region.
    pub addresses: Vec<IpAddr>,
    /// Coordinates of the region.
    pub coordinates: Option<Coordinates>,
    /// Networks whose clients are near the region.
    pub client_networks: Vec<IpNet>,
}

impl Default for RegionConfig {
    fn default() -> Self {
        Self {
            name: RegionName::from(""),
            weight_permille: 1_000,
            price_ms: 0.0,
            rtt: None,
            country: None,
            addresses: Vec::new(),
            coordinates: None,
            client_networks: Vec::new(),
        }
    }
}

fn default_weight_percent() -> Percent {
    Percent::ALL
}

/// Checks the sections. `known` are the regions that there can be; `None` if any can.
///
/// # Errors
/// Returns all faults, with their lines.
pub(crate) fn lower_regions(
    source: &Source,
    sections: Vec<RegionSection>,
    known: Option<&BTreeSet<&str>>,
) -> Result<Vec<RegionConfig>, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let mut places = BTreeMap::new();
    let mut regions = Vec::new();
    for section in sections {
        let (name, at) = (section.name.get_ref(), section.name.span());
        if let Some(known) = known.filter(|known| !known.contains(name.as_str())) {
            let message = format!("no node is in the region {name:?}");
            let known: Vec<&str> = known.iter().copied().collect();
            let remedy = format!("name one of: {}", known.join(", "));
            errors.add(source.fault(at.clone(), message, remedy));
        }
        if let Some(earlier) = places.insert(name.clone(), at.clone()) {
            let message = format!("a second section is about the region {name:?}");
            errors.add(source.collision(at, earlier, message, "put both together"));
        }
        regions.extend(errors.keep(section.lower(source)));
    }
    errors.or(regions)
}

impl RegionSection {
    fn lower(self, source: &Source) -> Result<RegionConfig, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let coordinates = errors.keep(lower_coordinates(source, &self)).flatten();
        let networks = errors.keep(lower_networks(source, &self.client_networks));
        errors.or(RegionConfig {
            name: RegionName::from(self.name.into_inner()),
            weight_permille: self.weight_percent.permille(),
            price_ms: self.price_ms,
            rtt: self.rtt_ms.map(|rtt_ms| Duration::from_millis(rtt_ms.into())),
            country: self.country,
            coordinates,
            client_networks: networks.unwrap_or_default(),
            addresses: self.addresses,
        })
    }
}

/// Returns the coordinates that the section gives, or those of the cloud region of that name;
/// `None` if neither has any.
fn lower_coordinates(
    source: &Source,
    section: &RegionSection,
) -> Result<Option<Coordinates>, ConfigError> {
    let fault =
        |message: &str, remedy: &str| Err(source.fault(section.name.span(), message, remedy));
    match (section.latitude, section.longitude) {
        (Some(latitude), Some(longitude)) => match Coordinates::new(latitude, longitude) {
            Some(at) => Ok(Some(at)),
            None => fault(
                "its latitude or longitude is not on Earth",
                "use degrees: -90 to 90 north, -180 to 180 east",
            ),
        },
        (None, None) => match spillway_geo::town_of(section.name.get_ref()) {
            // A region without addresses may be anywhere, as no client is sent to it.
            None if !section.addresses.is_empty() => fault(
                "this region has no location, so no client can be directed to it",
                "add latitude and longitude; regions of public clouds are known by their names",
            ),
            town => Ok(town),
        },
        _ => fault("latitude and longitude belong together", "add the other one"),
    }
}

fn lower_networks(
    source: &Source,
    networks: &[Spanned<String>],
) -> Result<Vec<IpNet>, ConfigErrors> {
    let network = |text: &Spanned<String>| {
        text.get_ref().parse::<IpNet>().map_err(|_| {
            let message = format!("{:?} is no address block", text.get_ref());
            source.fault(text.span(), message, "write it as 10.1.0.0/16 or 2001:db8::/32")
        })
    };
    all(networks.iter().map(network))
}
