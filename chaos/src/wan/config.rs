//! TOML file that describes a wide-area network.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use ipnet::Ipv4Net;
use serde::Deserialize;

use super::matrix::{Matrix, MatrixError};
use super::nat::{Forward, NatPlan};
use super::shape::{Shape, ShapeError, ShapePatch};
use super::topology::{Isolate, NamespaceConfig, Topology, TopologyRegion};

/// Most regions of a network: the number of links grows with the square.
pub const REGIONS_MAX: usize = 64;

/// Most nodes of all regions together: each may need a namespace and a device.
pub const NODES_MAX: usize = 512;

/// Default limits of packets and bytes in transit: 2 Gbit/s at 500 ms in full packets.
const PACKETS_MAX_DEFAULT: usize = 131_072;
const BYTES_MAX_DEFAULT: usize = 128 * 1024 * 1024;

/// Default time after which translation forgets a silent flow.
const NAT_IDLE_S_DEFAULT: u64 = 120;

/// Error of a config.
#[derive(Debug, thiserror::Error)]
pub enum WanConfigError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The file is not TOML, or a field is missing, unknown or of the wrong type.
    #[error(transparent)]
    Syntax(#[from] toml::de::Error),
    /// The table of round trips cannot be used.
    #[error(transparent)]
    Matrix(#[from] MatrixError),
    /// A link has a value that no link can have.
    #[error("link {between}: {source}")]
    Shape {
        /// Ends of the link.
        between: String,
        /// Cause.
        source: ShapeError,
    },
    /// Anything else, with the field and the reason.
    #[error("{0}")]
    Meaning(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "default_seed")]
    seed: u64,
    #[serde(default = "default_mtu")]
    mtu_bytes: u16,
    #[serde(default = "default_packets")]
    packets_max: usize,
    #[serde(default = "default_bytes")]
    bytes_max: usize,
    /// Path of the table of round trips, relative to the folder of this file.
    rtt_file: Option<PathBuf>,
    /// Shape of every link between two regions; `link` overrides it.
    #[serde(default)]
    every_link: ShapePatch,
    region: Vec<RegionEntry>,
    #[serde(default)]
    link: Vec<LinkEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RegionEntry {
    name: String,
    subnet: String,
    #[serde(default = "default_nodes")]
    nodes: u16,
    #[serde(default)]
    isolate: Isolate,
    nat: Option<NatEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NatEntry {
    public: Ipv4Addr,
    #[serde(default = "default_nat_idle")]
    idle_s: u64,
    #[serde(default)]
    forward: Vec<Forward>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkEntry {
    /// Ends of a link, for both directions.
    between: Option<[String; 2]>,
    /// Start of one direction; `to` is its end.
    from: Option<String>,
    to: Option<String>,
    shape: ShapePatch,
}

/// Reads the config at `path`.
///
/// # Errors
///
/// Returns [`WanConfigError`] with the first mistake found.
pub fn read(path: &Path) -> Result<Topology, WanConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| WanConfigError::Read { path: path.to_owned(), source })?;
    parse(&text, path.parent().unwrap_or_else(|| Path::new(".")))
}

/// Reads a config from `text`; paths in it are relative to `folder`.
///
/// # Errors
///
/// Returns [`WanConfigError`] with the first mistake found.
pub fn parse(text: &str, folder: &Path) -> Result<Topology, WanConfigError> {
    let file: File = toml::from_str(text)?;
    if file.region.is_empty() || file.region.len() > REGIONS_MAX {
        return meaning(format!("there must be 1 to {REGIONS_MAX} regions"));
    }
    if !(576..=9000).contains(&file.mtu_bytes) {
        return meaning("mtu_bytes must be between 576 and 9000".to_owned());
    }
    let nodes: usize = file.region.iter().map(|region| usize::from(region.nodes)).sum();
    if nodes > NODES_MAX {
        return meaning(format!("all regions together have {nodes} nodes, at most {NODES_MAX}"));
    }
    let nets = subnets(&file.region)?;
    let mut topology = Topology {
        seed: file.seed,
        mtu_bytes: file.mtu_bytes,
        packets_max: file.packets_max,
        bytes_max: file.bytes_max,
        regions: Vec::new(),
        namespaces: Vec::new(),
        shapes: Vec::new(),
    };
    for (index, (entry, net)) in file.region.iter().zip(&nets).enumerate() {
        topology.namespaces.extend(namespaces(index, entry, net)?);
        topology.regions.push(region(entry, net)?);
    }
    topology.shapes = shapes(&file, &topology, folder)?;
    Ok(topology)
}

fn region(entry: &RegionEntry, net: &Ipv4Net) -> Result<TopologyRegion, WanConfigError> {
    let name = entry.name.clone();
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_word) {
        return meaning(format!("region \"{name}\": a name has 1 to 64 of a-z A-Z 0-9 - _ ."));
    }
    let Some(nat) = &entry.nat else { return Ok(TopologyRegion { name, nat: None }) };
    let mut ports = BTreeSet::new();
    for forward in &nat.forward {
        if !net.contains(&forward.to) {
            return meaning(format!("region {name}: {} is not in {net}", forward.to));
        }
        if !ports.insert((forward.protocol, forward.port)) {
            return meaning(format!("region {name}: port {} is forwarded twice", forward.port));
        }
    }
    let idle_ns = nat.idle_s.saturating_mul(1_000_000_000);
    let plan = NatPlan { public: nat.public, idle_ns, forwards: nat.forward.clone() };
    Ok(TopologyRegion { name, nat: Some(plan) })
}

/// Returns the subnets. Checks that each address that other regions see belongs to one region only.
fn subnets(regions: &[RegionEntry]) -> Result<Vec<Ipv4Net>, WanConfigError> {
    let mut nets = Vec::new();
    let mut public: Vec<(&str, Ipv4Net)> = Vec::new();
    let mut names = BTreeSet::new();
    for region in regions {
        let name = region.name.as_str();
        if !names.insert(name) {
            return meaning(format!("two regions are called {name}"));
        }
        let Ok(net) = region.subnet.parse::<Ipv4Net>() else {
            return meaning(format!("region {name}: subnet must look like \"10.77.1.0/24\""));
        };
        // The address may be that of a host, such as 10.77.1.5/24.
        let net = net.trunc();
        // Inside addresses of a region behind translation are seen nowhere else, so two regions may
        // share them.
        let seen = region.nat.as_ref().map_or(net, |nat| Ipv4Net::from(nat.public));
        let overlaps = |other: &Ipv4Net| other.contains(&seen) || seen.contains(other);
        if let Some((other, _)) = public.iter().find(|(_, other)| overlaps(other)) {
            return meaning(format!("regions {other} and {name} share addresses"));
        }
        public.push((name, seen));
        nets.push(net);
    }
    for (region, net) in regions.iter().zip(&nets).filter(|(region, _)| region.nat.is_some()) {
        // Otherwise addresses of the other region would lead to the inside of this one.
        let hides = |other: &Ipv4Net| net.contains(other) || other.contains(net);
        if let Some((other, _)) = public.iter().find(|(_, other)| hides(other)) {
            return meaning(format!("region {}: {net} hides addresses of {other}", region.name));
        }
    }
    Ok(nets)
}

fn namespaces(
    index: usize,
    entry: &RegionEntry,
    net: &Ipv4Net,
) -> Result<Vec<NamespaceConfig>, WanConfigError> {
    let nodes: Vec<(u16, Ipv4Addr)> =
        (1..).zip(net.hosts()).take(usize::from(entry.nodes)).collect();
    if nodes.is_empty() || nodes.len() < usize::from(entry.nodes) {
        let (name, count) = (&entry.name, entry.nodes);
        return meaning(format!("region {name}: {count} nodes, but {net} must hold 1 or more"));
    }
    let namespace =
        |nodes| NamespaceConfig { region: index, nodes, prefix_length: net.prefix_len() };
    Ok(match entry.isolate {
        Isolate::Region => vec![namespace(nodes)],
        Isolate::Node => nodes.into_iter().map(|node| namespace(vec![node])).collect(),
    })
}

/// Returns the shapes of all links: from the table of round trips, then `every_link`, then each
/// `link`.
fn shapes(file: &File, topology: &Topology, folder: &Path) -> Result<Vec<Shape>, WanConfigError> {
    let count = topology.regions.len();
    let name = |index: usize| topology.regions[index].name.as_str();
    let matrix = match &file.rtt_file {
        Some(path) => Matrix::read(&folder.join(path))?,
        None => Matrix::default(),
    };
    let mut shapes = vec![Shape::default(); count * count];
    let mut is_named = vec![file.every_link.names_delay(); count * count];
    for (from, to) in pairs(count) {
        let at = from * count + to;
        let rtt_ms = matrix.rtt_ms(name(from), name(to));
        is_named[at] |= rtt_ms.is_some();
        let by_table = ShapePatch { rtt_ms, ..ShapePatch::default() };
        // The table comes first, so that `every_link` overrides it.
        for patch in [&by_table, &file.every_link] {
            shapes[at] = apply(patch, &shapes[at], (name(from), name(to)))?;
        }
    }
    for link in &file.link {
        for (from, to) in ends(link, topology)? {
            let at = from * count + to;
            is_named[at] |= link.shape.names_delay();
            shapes[at] = apply(&link.shape, &shapes[at], (name(from), name(to)))?;
        }
    }
    match pairs(count).find(|(from, to)| !is_named[from * count + to]) {
        Some((from, to)) => {
            meaning(format!("nothing says how far {} is from {}", name(to), name(from)))
        }
        None => Ok(shapes),
    }
}

fn apply(patch: &ShapePatch, base: &Shape, ends: (&str, &str)) -> Result<Shape, WanConfigError> {
    let between = || format!("{} to {}", ends.0, ends.1);
    patch.apply(base).map_err(|source| WanConfigError::Shape { between: between(), source })
}

/// Lists all ordered pairs of two different regions.
fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(move |from| (0..count).map(move |to| (from, to))).filter(|(a, b)| a != b)
}

fn ends(link: &LinkEntry, topology: &Topology) -> Result<Vec<(usize, usize)>, WanConfigError> {
    let index = |name: &String| {
        let unknown =
            || WanConfigError::Meaning(format!("a link names {name}, which is no region"));
        topology.region(name).ok_or_else(unknown)
    };
    match (&link.between, &link.from, &link.to) {
        (Some([one, other]), None, None) => {
            let (one, other) = (index(one)?, index(other)?);
            Ok(vec![(one, other), (other, one)])
        }
        (None, Some(from), Some(to)) => Ok(vec![(index(from)?, index(to)?)]),
        _ => meaning("a link has either `between` or both `from` and `to`".to_owned()),
    }
}

fn meaning<T>(text: String) -> Result<T, WanConfigError> {
    Err(WanConfigError::Meaning(text))
}

fn default_seed() -> u64 {
    1
}

fn default_mtu() -> u16 {
    1500
}

fn default_packets() -> usize {
    PACKETS_MAX_DEFAULT
}

fn default_bytes() -> usize {
    BYTES_MAX_DEFAULT
}

fn default_nodes() -> u16 {
    1
}

fn default_nat_idle() -> u64 {
    NAT_IDLE_S_DEFAULT
}

#[cfg(test)]
#[path = "config_test.rs"]
mod tests;
