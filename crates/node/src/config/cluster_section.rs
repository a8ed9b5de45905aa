//! `[cluster]`, `[[peer]]`, `[[region]]` and `[spill]`: other nodes, and when they are asked.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use spillway_link::delayed::Paths;
use spillway_route::{SpillTerms, WaitLimits};
use spillway_types::{NodeName, RegionName};
use toml::Spanned;

use crate::config::error::{ConfigError, Source};

/// Nodes that one knows at most. Beyond it every node would say too much to every other.
const PEERS_MAX: usize = 512;
/// Letters of a node's or region's name at most: both stand in certificates, headers and metrics.
const NAME_MAX: usize = 63;

/// `[cluster]`: how this node is one of several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterSection {
    /// Name of the cluster, as in its certificates.
    pub(crate) id: String,
    /// UDP address for other nodes, e.g. `0.0.0.0:7946`.
    pub(crate) address: SocketAddr,
    /// Certificates of the cluster's CA, PEM.
    #[schemars(with = "String")]
    pub(crate) ca: Spanned<PathBuf>,
    /// This node's certificate, PEM.
    #[schemars(with = "String")]
    pub(crate) certificate: Spanned<PathBuf>,
    /// Its key, PEM.
    #[schemars(with = "String")]
    pub(crate) key: Spanned<PathBuf>,
    /// The key that all nodes hash prompts and request keys with.
    #[schemars(with = "String")]
    pub(crate) prefix_key: Spanned<PathBuf>,
    /// A node or region that was not heard for this long, or did not hear us, gets no new requests.
    #[serde(default = "default_silence_ms")]
    pub(crate) silence_ms: u32,
    /// Time in which a region that came back gets its full share of requests.
    #[serde(default = "default_ramp_ms")]
    pub(crate) ramp_ms: u32,
}

/// `[[peer]]`: another node.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeerSection {
    /// Its name, unique in the cluster.
    #[schemars(with = "String")]
    pub(crate) name: Spanned<String>,
    /// Its region.
    #[schemars(with = "String")]
    pub(crate) region: Spanned<String>,
    /// Its UDP address.
    pub(crate) address: SocketAddr,
}

/// `[[region]]`: what speaks for or against a region.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegionSection {
    /// Its name.
    #[schemars(with = "String")]
    pub(crate) name: Spanned<String>,
    /// Part of the requests it would get that it may get, in percent; 0 evacuates it.
    #[serde(default = "default_weight_percent")]
    #[schemars(with = "u16")]
    pub(crate) weight_percent: Spanned<u16>,
    /// What a request costs there more than here, in milliseconds of waiting that it is worth.
    #[serde(default)]
    pub(crate) price_ms: f32,
    /// Round-trip time to it, until it is measured.
    #[serde(default)]
    pub(crate) rtt_ms: Option<u32>,
}

/// `[spill]`: when requests go to other regions, and which ones are taken in.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SpillSection {
    /// Whether requests may go to other regions at all.
    pub(crate) enabled: bool,
    /// Part of the capacity that is kept for this region's own requests, in percent.
    #[schemars(with = "u16")]
    pub(crate) reserve_percent: Spanned<u16>,
    /// Part of the capacity that requests of other regions may take at most, in percent; none
    /// by default, since a reserve does better.
    #[schemars(with = "Option<u16>")]
    pub(crate) guests_percent_max: Option<Spanned<u16>>,
    /// Regions that one request asks at most, one after the other.
    pub(crate) regions_max: u8,
    /// Requests that wait in this node for a place at most, for each route and model.
    pub(crate) queue_max: u32,
    /// How long one may wait here.
    pub(crate) queue_ms: u32,
}

impl Default for SpillSection {
    fn default() -> Self {
        Self {
            enabled: true,
            reserve_percent: Spanned::new(0..0, 10),
            guests_percent_max: None,
            regions_max: 2,
            queue_max: 1_000,
            queue_ms: 30_000,
        }
    }
}

/// When requests go to other regions, and which ones are taken in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpillConfig {
    /// Regions that one request asks at most; 0 keeps all at home.
    pub asked_max: usize,
    /// How regions are weighed against each other.
    pub terms: SpillTerms,
}

impl SpillSection {
    /// # Errors
    /// Whatever does not work, with its line.
    pub(crate) fn lower(&self, source: &Source) -> Result<SpillConfig, ConfigError> {
        let part = |percent: &Spanned<u16>| match *percent.get_ref() {
            percent if percent <= 100 => Ok(percent * 10),
            _ => Err(source.fault(percent.span(), "more than all", "use 0 to 100")),
        };
        Ok(SpillConfig {
            asked_max: if self.enabled { self.regions_max.into() } else { 0 },
            terms: SpillTerms {
                reserve_permille: part(&self.reserve_percent)?,
                guests_max_permille: self.guests_percent_max.as_ref().map(part).transpose()?,
                ..SpillTerms::default()
            },
        })
    }

    /// Bounds on what waits here for a place.
    pub(crate) fn waiting(&self) -> WaitLimits {
        WaitLimits {
            count_max: self.queue_max as usize,
            wait_ms_max: self.queue_ms.into(),
            ..WaitLimits::default()
        }
    }
}

/// How this node is one of several.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Name of the cluster.
    pub id: String,
    /// UDP address for other nodes.
    pub address: SocketAddr,
    /// PEM file of the cluster's CA.
    pub ca: PathBuf,
    /// PEM file of this node's certificate.
    pub certificate: PathBuf,
    /// PEM file of its key.
    pub key: PathBuf,
    /// File of the key that all nodes hash with.
    pub prefix_key: PathBuf,
    /// After this long without a word a region gets no new requests.
    pub silence: Duration,
    /// Time in which a region that came back gets its full share.
    pub ramp: Duration,
    /// The other nodes.
    pub peers: Vec<PeerConfig>,
    /// What is said of regions; one that is missing has defaults.
    pub regions: Vec<RegionConfig>,
    /// Delays and cuts on the way to others; no config file says so, only demos and tests.
    pub paths: Option<Arc<Paths>>,
}

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Its name.
    pub name: NodeName,
    /// Its region.
    pub region: RegionName,
    /// Its UDP address.
    pub address: SocketAddr,
}

/// What speaks for or against a region.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionConfig {
    /// Its name.
    pub name: RegionName,
    /// Part of the requests it would get that it may get, in permille.
    pub weight_permille: u16,
    /// What a request costs there more than here, milliseconds.
    pub price_ms: f32,
    /// Round-trip time to it, until it is measured.
    pub rtt: Option<Duration>,
}

fn default_silence_ms() -> u32 {
    900
}

fn default_ramp_ms() -> u32 {
    10_000
}

fn default_weight_percent() -> Spanned<u16> {
    Spanned::new(0..0, 100)
}

/// The sections that concern other nodes.
#[derive(Debug)]
pub(crate) struct ClusterSections {
    pub(crate) cluster: Option<ClusterSection>,
    pub(crate) peers: Vec<PeerSection>,
    pub(crate) regions: Vec<RegionSection>,
}

impl ClusterSections {
    /// # Errors
    /// Whatever does not work, with its line.
    pub(crate) fn lower(
        self,
        source: &Source,
        (node, own_region): (&str, &str),
    ) -> Result<Option<ClusterConfig>, ConfigError> {
        let Some(cluster) = self.cluster else {
            let alone = "without [cluster] this node has no others";
            let remedy = "add a [cluster] section, or remove this";
            return match (self.peers.first(), self.regions.first()) {
                (Some(peer), _) => Err(source.fault(peer.name.span(), alone, remedy)),
                (None, Some(region)) => Err(source.fault(region.name.span(), alone, remedy)),
                (None, None) => Ok(None),
            };
        };
        for (name, value) in [("name", node), ("region", own_region), ("cluster", &cluster.id)] {
            if !is_name(value) {
                let message = format!("the {name} {value:?} can't stand in a certificate");
                return Err(source.fault(0..0, message, NAME_REMEDY));
            }
        }
        let peers = lower_peers(source, self.peers, node)?;
        let known: BTreeSet<&str> =
            peers.iter().map(|peer| peer.region.as_str()).chain([own_region]).collect();
        let regions = lower_regions(source, self.regions, &known)?;
        let file = |name: &Spanned<PathBuf>| readable(source, name);
        Ok(Some(ClusterConfig {
            ca: file(&cluster.ca)?,
            certificate: file(&cluster.certificate)?,
            key: file(&cluster.key)?,
            prefix_key: file(&cluster.prefix_key)?,
            id: cluster.id,
            address: cluster.address,
            silence: Duration::from_millis(cluster.silence_ms.into()),
            ramp: Duration::from_millis(cluster.ramp_ms.into()),
            peers,
            regions,
            paths: None,
        }))
    }
}

const NAME_REMEDY: &str = "use up to 63 of a-z, 0-9 and hyphens, no hyphen at either end";

fn lower_peers(
    source: &Source,
    sections: Vec<PeerSection>,
    own: &str,
) -> Result<Vec<PeerConfig>, ConfigError> {
    if let Some(extra) = sections.get(PEERS_MAX) {
        let message = format!("a node knows {PEERS_MAX} others at most");
        return Err(source.fault(extra.name.span(), message, "divide the cluster"));
    }
    let mut names = BTreeSet::from([own.to_owned()]);
    let mut peers = Vec::new();
    for section in sections {
        for name in [&section.name, &section.region] {
            if !is_name(name.get_ref()) {
                let message = format!("{:?} can't stand in a certificate", name.get_ref());
                return Err(source.fault(name.span(), message, NAME_REMEDY));
            }
        }
        if !names.insert(section.name.get_ref().clone()) {
            let message = format!("a second node is called {:?}", section.name.get_ref());
            let remedy = "give each its own name; this node itself is no peer";
            return Err(source.fault(section.name.span(), message, remedy));
        }
        peers.push(PeerConfig {
            name: NodeName::from(section.name.into_inner()),
            region: RegionName::from(section.region.into_inner()),
            address: section.address,
        });
    }
    Ok(peers)
}

fn lower_regions(
    source: &Source,
    sections: Vec<RegionSection>,
    known: &BTreeSet<&str>,
) -> Result<Vec<RegionConfig>, ConfigError> {
    let mut names = BTreeSet::new();
    let mut regions = Vec::new();
    for section in sections {
        let name = section.name.get_ref().as_str();
        if !known.contains(name) {
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
        if weight > 100 {
            let span = section.weight_percent.span();
            return Err(source.fault(span, "more than all", "use 0 to 100"));
        }
        if !section.price_ms.is_finite() || section.price_ms < 0.0 {
            let span = section.name.span();
            return Err(source.fault(span, "price_ms is no price", "use 0 or more"));
        }
        regions.push(RegionConfig {
            name: RegionName::from(name),
            weight_permille: weight * 10,
            price_ms: section.price_ms,
            rtt: section.rtt_ms.map(|rtt_ms| Duration::from_millis(rtt_ms.into())),
        });
    }
    Ok(regions)
}

/// Whether it can be a label of a DNS name, as certificates have it.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let has_length = !text.is_empty() && text.len() <= NAME_MAX;
    let has_ends = !text.starts_with('-') && !text.ends_with('-');
    has_length && has_ends && text.bytes().all(is_plain)
}

fn readable(source: &Source, name: &Spanned<PathBuf>) -> Result<PathBuf, ConfigError> {
    let path = source.resolve(&name.get_ref().to_string_lossy());
    match std::fs::File::open(&path) {
        Ok(_) => Ok(path),
        Err(error) => {
            let message = format!("can't read {}: {error}", path.display());
            let remedy = "check path and rights; `spillway certs` makes these files";
            Err(source.fault(name.span(), message, remedy))
        }
    }
}
