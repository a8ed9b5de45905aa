//! `[[region]]`: weight, price and place of a region, and the addresses for its clients.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_geo::Coordinates;
use spillway_types::{Country, Percent, RegionName};
use toml::Spanned;

use crate::error::{ConfigError, Source};

/// `[[region]]`: weight, price and place of a region.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegionSection {
    /// Name of the region.
    #[schemars(with = "String")]
    pub(crate) name: Spanned<String>,
    /// Part of its usual share of requests that the region gets, in percent with one decimal at
    /// most; 0 evacuates it.
    #[serde(default = "default_weight_percent")]
    #[schemars(with = "f64", range(min = 0, max = 100))]
    pub(crate) weight_percent: Spanned<Percent>,
    /// Extra cost of a request there, as the milliseconds of waiting here that it is worth.
    #[serde(default)]
    pub(crate) price_ms: f32,
    /// Round-trip time to the region in ms, until it is measured.
    #[serde(default)]
    pub(crate) rtt_ms: Option<u32>,
    /// Country that the region is in, e.g. `DE`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) country: Option<Country>,
    /// Addresses by which clients reach the region: its nodes, or the load balancer before them.
    #[serde(default)]
    pub(crate) addresses: Vec<IpAddr>,
    /// Latitude in degrees north; not needed for a region that has the name of a public cloud's
    /// region.
    #[serde(default)]
    #[schemars(range(min = -90, max = 90))]
    pub(crate) latitude: Option<f64>,
    /// Longitude in degrees east.
    #[serde(default)]
    #[schemars(range(min = -180, max = 180))]
    pub(crate) longitude: Option<f64>,
    /// Networks whose clients are near the region, e.g. `10.1.0.0/16`, whatever a location database
    /// says.
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

fn default_weight_percent() -> Spanned<Percent> {
    Spanned::new(0..0, Percent::ALL)
}

/// Checks the sections. `known` are the regions that there can be; `None` if any can.
///
/// # Errors
/// Returns the first fault, with its line.
pub(crate) fn lower_regions(
    source: &Source,
    sections: Vec<RegionSection>,
    known: Option<&BTreeSet<&str>>,
) -> Result<Vec<RegionConfig>, ConfigError> {
    let mut names = BTreeSet::new();
    let mut regions = Vec::new();
    for section in sections {
        let name = section.name.get_ref().as_str();
        if let Some(known) = known.filter(|known| !known.contains(name)) {
            let message = format!("no node is in the region {name:?}");
            let known: Vec<&str> = known.iter().copied().collect();
            let remedy = format!("name one of: {}", known.join(", "));
            return Err(source.fault(section.name.span(), message, remedy));
        }
        if !names.insert(name.to_owned()) {
            let message = format!("a second section is about the region {name:?}");
            return Err(source.fault(section.name.span(), message, "put both together"));
        }
        let weight = *section.weight_percent.get_ref();
        if weight > Percent::ALL {
            let span = section.weight_percent.span();
            return Err(source.fault(span, "more than all", "use 0 to 100"));
        }
        if !section.price_ms.is_finite() || section.price_ms < 0.0 {
            let span = section.name.span();
            return Err(source.fault(span, "price_ms is no price", "use 0 or more"));
        }
        regions.push(RegionConfig {
            name: RegionName::from(name),
            weight_permille: weight.permille(),
            price_ms: section.price_ms,
            rtt: section.rtt_ms.map(|rtt_ms| Duration::from_millis(rtt_ms.into())),
            country: section.country,
            coordinates: lower_coordinates(source, &section)?,
            client_networks: lower_networks(source, &section.client_networks)?,
            addresses: section.addresses,
        });
    }
    Ok(regions)
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
            // A region without addresses may be anywhere, as no client is led to it.
            None if !section.addresses.is_empty() => fault(
                "nobody knows where this region is, so no client can be led to it",
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
) -> Result<Vec<IpNet>, ConfigError> {
    let network = |text: &Spanned<String>| {
        text.get_ref().parse::<IpNet>().map_err(|_| {
            let message = format!("{:?} is no address block", text.get_ref());
            source.fault(text.span(), message, "write it as 10.1.0.0/16 or 2001:db8::/32")
        })
    };
    networks.iter().map(network).collect()
}
