//! `[cluster]` and `[[peer]]`: other nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_link::delayed::Paths;
use spillway_types::{NodeName, Percent, RegionName};
use toml::Spanned;

use crate::error::{ConfigError, ConfigErrors, all};
use crate::region_section::{RegionConfig, RegionSection, lower_regions};
use crate::replica_url::check_host;
use crate::source::Source;

/// Maximum number of peers of one node. With more, gossip between all pairs would be too much.
const PEERS_MAX: usize = 512;
/// Maximum length of a node's or region's name: both are used in certificates, headers and metrics.
const NAME_MAX: usize = 63;
/// Time in which a region that comes back ramps up to its full share of requests: its nodes fill
/// their caches meanwhile, and a region that fails again soon had few requests.
const RAMP: Duration = Duration::from_secs(10);

/// `[cluster]`: this node as a member of a cluster.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterSection {
    /// Name of the cluster, as in its certificates.
    #[schemars(with = "String")]
    pub(crate) id: Spanned<String>,
    /// UDP address for other nodes, e.g. `0.0.0.0:7946`.
    #[schemars(with = "SocketAddr")]
    pub(crate) address: Spanned<SocketAddr>,
    /// Certificates of the cluster's CA, PEM.
    #[schemars(with = "String")]
    pub(crate) ca: Spanned<PathBuf>,
    /// This node's certificate, PEM.
    #[schemars(with = "String")]
    pub(crate) certificate: Spanned<PathBuf>,
    /// Private key of this node's certificate, PEM.
    #[schemars(with = "String")]
    pub(crate) key: Spanned<PathBuf>,
    /// File with the key with which all nodes hash prompts and request keys.
    #[schemars(with = "String")]
    pub(crate) prefix_key: Spanned<PathBuf>,
    /// Address at which other nodes reach this one, `host:port`, if it differs from `address`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) advertise: Option<Spanned<String>>,
    /// Folder of the replicated state; a node with this setting stores that state and votes on it.
    /// It must be on persistent storage.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) data: Option<Spanned<PathBuf>>,
    /// File with the output of `spillway join-token create`, for a node that joins a running
    /// cluster: while its data folder is empty, it asks the configured peers to admit it, and forms
    /// no cluster itself. The file is no longer needed when the node is a member.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) join_token_file: Option<Spanned<PathBuf>>,
    /// File with the CA's revocation list, as written by `spillway certs revoke --local`, PEM. One
    /// node with this file is enough: it informs the others. The file may be missing, and is read
    /// again like the certificates.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) revoked: Option<Spanned<PathBuf>>,
    /// Silence in ms after which a node or region gets no new requests: it sent no report for this
    /// long, or received none from this node.
    #[serde(default = "default_silence_ms")]
    pub(crate) silence_ms: u32,
}

/// `[[peer]]`: another node.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeerSection {
    /// Name of the node, unique in the cluster.
    #[schemars(with = "String")]
    pub(crate) name: Spanned<String>,
    /// Region of the node.
    #[schemars(with = "String")]
    pub(crate) region: Spanned<String>,
    /// UDP address of the node.
    pub(crate) address: SocketAddr,
}

/// Settings of this node as a member of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Name of the cluster.
    pub id: String,
    /// True if this node's config names replicas, or sources of replicas: otherwise it is an edge
    /// node.
    pub has_replicas: bool,
    /// UDP address for other nodes.
    pub address: SocketAddr,
    /// PEM file of the cluster's CA.
    pub ca: PathBuf,
    /// PEM file of this node's certificate.
    pub certificate: PathBuf,
    /// PEM file of the certificate's key.
    pub key: PathBuf,
    /// File of the key that all nodes hash with.
    pub prefix_key: PathBuf,
    /// Address at which other nodes reach this one, `host:port`.
    pub advertise: String,
    /// Folder of the cluster's agreed state; without it this node takes no part in that.
    pub data: Option<PathBuf>,
    /// File of the token by which this node joins; not needed once it is a member.
    pub join_token_file: Option<PathBuf>,
    /// File of the certificates that the CA has revoked; it may be missing.
    pub revoked: Option<PathBuf>,
    /// Silence after which a region gets no new requests.
    pub silence: Duration,
    /// Time in which a region that came back gets its full share.
    pub ramp: Duration,
    /// Other nodes of the cluster.
    pub peers: Vec<PeerConfig>,
    /// Terms of regions; a region that is missing has defaults.
    pub regions: Vec<RegionConfig>,
    /// Delays and cuts on the paths to others; set by demos and tests, not by a config file.
    pub paths: Option<Arc<Paths>>,
}

/// Settings of one other node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Name of the node.
    pub name: NodeName,
    /// Region of the node.
    pub region: RegionName,
    /// UDP address of the node.
    pub address: SocketAddr,
}

fn default_silence_ms() -> u32 {
    900
}

/// The sections of a config about other nodes.
#[derive(Debug)]
pub(crate) struct ClusterSections {
    cluster: Option<ClusterSection>,
    peers: Vec<PeerSection>,
    regions: Vec<RegionSection>,
    /// True if the config has replicas, or sources of replicas.
    has_replicas: bool,
}

impl ClusterSections {
    pub(crate) fn new(
        cluster: Option<ClusterSection>,
        peers: Vec<PeerSection>,
        regions: Vec<RegionSection>,
        has_replicas: bool,
    ) -> Self {
        Self { cluster, peers, regions, has_replicas }
    }

    /// Checks the sections; `None` without `[cluster]`.
    ///
    /// # Errors
    /// Returns the first fault, with its line.
    pub(crate) fn lower(
        self,
        source: &Source,
        node: &Spanned<String>,
        own_region: &Spanned<String>,
    ) -> Result<Option<ClusterConfig>, ConfigErrors> {
        let Some(cluster) = self.cluster else {
            let alone = "without [cluster] this node has no others";
            let remedy = "add a [cluster] section, or remove this";
            return match (self.peers.first(), self.regions.first()) {
                (Some(peer), _) => Err(source.fault(peer.name.span(), alone, remedy).into()),
                (None, Some(region)) => Err(source.fault(region.name.span(), alone, remedy).into()),
                (None, None) => Ok(None),
            };
        };
        let mut errors = ConfigErrors::default();
        if !is_name(cluster.id.get_ref()) {
            let message = format!("{:?} can't stand in a certificate", cluster.id.get_ref());
            errors.add(source.fault(cluster.id.span(), message, NAME_REMEDY));
        }
        let (node, own_region) = (node.get_ref().as_str(), own_region.get_ref().as_str());
        let peers = errors.keep(lower_peers(source, self.peers, node)).unwrap_or_default();
        let known: BTreeSet<&str> =
            peers.iter().map(|peer| peer.region.as_str()).chain([own_region]).collect();
        let join_token_file = errors.keep(lower_join(source, &cluster, &peers)).flatten();
        // With `data` the agreed state lists the regions; a node's config may add round trips.
        let known = cluster.data.is_none().then_some(&known);
        if cluster.data.is_some() {
            errors.keep(check_agreed(source, &self.regions));
        }
        let regions = errors.keep(lower_regions(source, self.regions, known)).unwrap_or_default();
        let advertise = errors.keep(lower_advertise(source, &cluster)).unwrap_or_default();
        let mut file =
            |name: &Spanned<PathBuf>| errors.keep(readable(source, name)).unwrap_or_default();
        let files = [&cluster.ca, &cluster.certificate, &cluster.key, &cluster.prefix_key];
        let [ca, certificate, key, prefix_key] = files.map(&mut file);
        errors.or(Some(ClusterConfig {
            has_replicas: self.has_replicas,
            ca,
            certificate,
            key,
            prefix_key,
            advertise,
            data: cluster.data.map(|folder| source.resolve(&folder.get_ref().to_string_lossy())),
            join_token_file,
            revoked: cluster.revoked.map(|file| source.resolve(&file.get_ref().to_string_lossy())),
            id: cluster.id.into_inner(),
            address: cluster.address.into_inner(),
            silence: Duration::from_millis(cluster.silence_ms.into()),
            ramp: RAMP,
            peers,
            regions,
            paths: None,
        }))
    }
}

/// Checks the names of this node and its region.
///
/// # Errors
/// Returns an error for each name that can't be used in a certificate.
pub(crate) fn check_names(
    source: &Source,
    names: [&Spanned<String>; 2],
) -> Result<(), ConfigErrors> {
    let check = |name: &Spanned<String>| {
        if is_name(name.get_ref()) {
            return Ok(());
        }
        let message = format!("{:?} can't stand in a certificate", name.get_ref());
        Err(source.fault(name.span(), message, NAME_REMEDY))
    };
    all(names.into_iter().map(check)).map(drop)
}

const NAME_REMEDY: &str = "use up to 63 of a-z, 0-9 and hyphens, no hyphen at either end";

/// Refuses settings in one node's config that all nodes agree on.
fn check_agreed(source: &Source, regions: &[RegionSection]) -> Result<(), ConfigErrors> {
    let is_agreed =
        |region: &&RegionSection| region.weight_percent != Percent::ALL || region.price_ms != 0.0;
    all(regions.iter().filter(is_agreed).map(|region| {
        let message = "with [cluster] data, weights and prices of regions are agreed on by all";
        let remedy = "leave it out here, and say `spillway weight` or `spillway apply region`";
        Err::<(), _>(source.fault(region.name.span(), message, remedy))
    }))
    .map(drop)
}

/// Returns the path of the join token. The file may be missing: a member needs none, and a node
/// that joins without it reports that itself.
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
        let message = "this node knows no other node that it could ask to join";
        return Err(source.fault(file.span(), message, "add one node of the cluster as [[peer]]"));
    }
    Ok(Some(source.resolve(&file.get_ref().to_string_lossy())))
}

fn lower_advertise(source: &Source, cluster: &ClusterSection) -> Result<String, ConfigError> {
    let Some(said) = &cluster.advertise else {
        // A node announces its address only if it takes part in the agreed state. Without `data`
        // the others have the address in their own configs.
        let address = *cluster.address.get_ref();
        if cluster.data.is_some() && address.ip().is_unspecified() {
            let message = format!("other nodes can't reach {address}");
            let remedy = "add advertise = \"host:port\" to [cluster], as others reach this node";
            return Err(source.fault(cluster.address.span(), message, remedy));
        }
        return Ok(address.to_string());
    };
    let port = said.get_ref().rsplit_once(':').filter(|(host, _)| !host.is_empty());
    if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
        let message = format!("{:?} is no host and port", said.get_ref());
        return Err(source.fault(said.span(), message, "use host:port, e.g. 203.0.113.7:7946"));
    }
    let host = port.map(|(host, _)| host).unwrap_or_default();
    check_host(source, said, host.trim_matches(['[', ']']))?;
    Ok(said.get_ref().clone())
}

fn lower_peers(
    source: &Source,
    sections: Vec<PeerSection>,
    own: &str,
) -> Result<Vec<PeerConfig>, ConfigErrors> {
    if let Some(extra) = sections.get(PEERS_MAX) {
        let message = format!("a node knows {PEERS_MAX} others at most");
        return Err(source.fault(extra.name.span(), message, "divide the cluster").into());
    }
    let mut errors = ConfigErrors::default();
    // This node's own name counts as taken.
    let mut places = BTreeMap::from([(own.to_owned(), 0..0)]);
    let mut peers = Vec::new();
    for section in sections {
        errors.keep(check_names(source, [&section.name, &section.region]));
        let at = section.name.span();
        if let Some(earlier) = places.insert(section.name.get_ref().clone(), at.clone()) {
            let message = format!("a second node is called {:?}", section.name.get_ref());
            let remedy = "give each its own name; this node itself is no peer";
            errors.add(source.collision(at, earlier, message, remedy));
        }
        peers.push(PeerConfig {
            name: NodeName::from(section.name.into_inner()),
            region: RegionName::from(section.region.into_inner()),
            address: section.address,
        });
    }
    errors.or(peers)
}

/// Returns true if the text can be a label of a DNS name, as certificates need it.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let has_length = !text.is_empty() && text.len() <= NAME_MAX;
    let has_ends = !text.starts_with('-') && !text.ends_with('-');
    has_length && has_ends && text.bytes().all(is_plain)
}

fn readable(source: &Source, name: &Spanned<PathBuf>) -> Result<PathBuf, ConfigError> {
    let path = source.resolve(&name.get_ref().to_string_lossy());
    // Opened, not only looked up: a file without rights to read it must show before the node
    // starts.
    match std::fs::File::open(&path) {
        Ok(_) => Ok(path),
        Err(error) => {
            let message = format!("can't read {}: {error}", path.display());
            let remedy = "check path and rights; `spillway certs` makes these files";
            Err(source.fault(name.span(), message, remedy))
        }
    }
}
