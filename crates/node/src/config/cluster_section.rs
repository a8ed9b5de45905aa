//! `[cluster]`, `[[peer]]` and `[[region]]`: other nodes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_link::delayed::Paths;
use spillway_types::{Country, NodeName, Percent, RegionName};
use toml::Spanned;

use crate::config::error::{ConfigError, Source};

/// Nodes that one knows at most. Beyond it every node would say too much to every other.
const PEERS_MAX: usize = 512;
/// Letters of a node's or region's name at most: both stand in certificates, headers and metrics.
const NAME_MAX: usize = 63;

/// `[cluster]`: how this node is one of several.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
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
    /// Where other nodes reach this one, `host:port`, if that is not `address`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) advertise: Option<Spanned<String>>,
    /// Folder for what the cluster agrees on: with it, this node takes part in that. It must be
    /// on a disk that outlives the process.
    #[serde(default)]
    pub(crate) data: Option<PathBuf>,
    /// A file with what `spillway join-token create` printed, for a node that comes into a cluster
    /// that runs already: while its data folder is empty it asks the peers named here to be taken
    /// in, and forms no cluster itself. The file is not needed any more once it is a member.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) join_token_file: Option<Spanned<PathBuf>>,
    /// A node or region that was not heard for this long, or did not hear us, gets no new requests.
    #[serde(default = "default_silence_ms")]
    pub(crate) silence_ms: u32,
    /// Time in which a region that came back gets its full share of requests.
    #[serde(default = "default_ramp_ms")]
    pub(crate) ramp_ms: u32,
}

/// `[[peer]]`: another node.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
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
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegionSection {
    /// Its name.
    #[schemars(with = "String")]
    pub(crate) name: Spanned<String>,
    /// Part of the requests it would get that it may get, in percent with one decimal at most; 0
    /// evacuates it.
    #[serde(default = "default_weight_percent")]
    #[schemars(with = "f64", range(min = 0, max = 100))]
    pub(crate) weight_percent: Spanned<Percent>,
    /// What a request costs there more than here, in milliseconds of waiting that it is worth.
    #[serde(default)]
    pub(crate) price_ms: f32,
    /// Round-trip time to it, until it is measured.
    #[serde(default)]
    pub(crate) rtt_ms: Option<u32>,
    /// The country that it is in, e.g. `DE`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) country: Option<Country>,
}

/// How this node is one of several.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Name of the cluster.
    pub id: String,
    /// Whether this node's config names replicas, or where to find some: otherwise it is an edge
    /// node.
    pub has_replicas: bool,
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
    /// Where other nodes reach this one, `host:port`.
    pub advertise: String,
    /// Folder for what the cluster agrees on; without it this node takes no part in that.
    pub data: Option<PathBuf>,
    /// File of the token by which this node joins; it need not be there once it has.
    pub join_token_file: Option<PathBuf>,
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
    /// The country that it is in.
    pub country: Option<Country>,
}

impl Default for RegionConfig {
    fn default() -> Self {
        Self {
            name: RegionName::from(""),
            weight_permille: 1_000,
            price_ms: 0.0,
            rtt: None,
            country: None,
        }
    }
}

fn default_silence_ms() -> u32 {
    900
}

fn default_ramp_ms() -> u32 {
    10_000
}

fn default_weight_percent() -> Spanned<Percent> {
    Spanned::new(0..0, Percent::ALL)
}

/// The sections that concern other nodes.
#[derive(Debug)]
pub(crate) struct ClusterSections {
    cluster: Option<ClusterSection>,
    peers: Vec<PeerSection>,
    regions: Vec<RegionSection>,
    /// Whether there are replicas, or ways to find some.
    has_replicas: bool,
}

impl ClusterSections {
    pub(crate) fn new(
        (cluster, peers, regions): (Option<ClusterSection>, Vec<PeerSection>, Vec<RegionSection>),
        has_replicas: bool,
    ) -> Self {
        Self { cluster, peers, regions, has_replicas }
    }

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
        let join_token_file = lower_join(source, &cluster, &peers)?;
        // With `data` the cluster says which regions there are; each node may know round trips.
        let known = cluster.data.is_none().then_some(&known);
        if cluster.data.is_some() {
            check_agreed(source, &self.regions)?;
        }
        let regions = lower_regions(source, self.regions, known)?;
        let advertise = lower_advertise(source, &cluster)?;
        let file = |name: &Spanned<PathBuf>| readable(source, name);
        Ok(Some(ClusterConfig {
            has_replicas: self.has_replicas,
            ca: file(&cluster.ca)?,
            certificate: file(&cluster.certificate)?,
            key: file(&cluster.key)?,
            prefix_key: file(&cluster.prefix_key)?,
            advertise,
            data: cluster.data.map(|folder| source.resolve(&folder.to_string_lossy())),
            join_token_file,
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

/// What the cluster agrees on has no place in the config of one node.
fn check_agreed(source: &Source, regions: &[RegionSection]) -> Result<(), ConfigError> {
    for region in regions {
        if *region.weight_percent.get_ref() != Percent::ALL || region.price_ms != 0.0 {
            let message = "with [cluster] data, weights and prices of regions are agreed on by all";
            let remedy = "leave it out here, and say `spillway weight` or `spillway regions`";
            return Err(source.fault(region.name.span(), message, remedy));
        }
    }
    Ok(())
}

/// The file of the join token. It may be missing: a member needs none, and one that asks says so.
fn lower_join(
    source: &Source,
    cluster: &ClusterSection,
    peers: &[PeerConfig],
) -> Result<Option<PathBuf>, ConfigError> {
    let Some(file) = &cluster.join_token_file else { return Ok(None) };
    if cluster.data.is_none() {
        let message = "a node joins what the cluster agrees on, which it has to keep";
        return Err(source.fault(file.span(), message, "add data = \"folder\" to [cluster]"));
    }
    if peers.is_empty() {
        let message = "this node knows nobody whom it could ask to be taken in";
        return Err(source.fault(file.span(), message, "add one node of the cluster as [[peer]]"));
    }
    Ok(Some(source.resolve(&file.get_ref().to_string_lossy())))
}

fn lower_advertise(source: &Source, cluster: &ClusterSection) -> Result<String, ConfigError> {
    let Some(said) = &cluster.advertise else {
        if cluster.data.is_some() && cluster.address.ip().is_unspecified() {
            let message = format!("other nodes can't reach {}", cluster.address);
            let remedy = "add advertise = \"host:port\" to [cluster], as others reach this node";
            return Err(source.fault(cluster.ca.span(), message, remedy));
        }
        return Ok(cluster.address.to_string());
    };
    let port = said.get_ref().rsplit_once(':').filter(|(host, _)| !host.is_empty());
    if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
        let message = format!("{:?} is no host and port", said.get_ref());
        return Err(source.fault(said.span(), message, "use host:port, e.g. 203.0.113.7:7946"));
    }
    Ok(said.get_ref().clone())
}

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
