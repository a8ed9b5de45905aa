//! Several nodes in one process: real certificates, real QUIC, and distance put between them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use spillway_link::certs::{Authority, AuthorityFiles, IfExists, NodeFiles, PrefixKey, Validity};
use spillway_link::delayed::{Path, Paths};
use spillway_node::{Config, Node};
use tempfile::TempDir;

use crate::setup::Setup;
use crate::wait::eventually;

const PORT: u16 = 7_946;
const CLUSTER: &str = "test";
const DAYS: u32 = 2;

/// A cluster in the making, and what its nodes share. Node `i` is `n<i>` of the region it was given.
#[derive(Debug)]
pub struct Cluster {
    regions: Vec<String>,
    folder: TempDir,
    paths: Vec<Arc<Paths>>,
    lines: String,
}

impl Cluster {
    /// A node for each of these regions.
    ///
    /// # Panics
    /// If certificates can't be made.
    #[must_use]
    pub fn new(regions: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let validity = Validity::days(SystemTime::now(), DAYS).expect("a time");
        let authority = Authority::new(CLUSTER, validity).expect("a CA");
        let key = PrefixKey::random().expect("randomness");
        AuthorityFiles::in_folder(folder.path())
            .write(&authority, &key, IfExists::Refuse)
            .expect("files");
        for (index, region) in regions.iter().enumerate() {
            let node = node_name(index);
            let issued = authority.issue(region, &node, validity).expect("a certificate");
            NodeFiles::in_folder(folder.path(), region, &node)
                .write(issued, IfExists::Refuse)
                .expect("files");
        }
        let paths = (0..regions.len()).map(|index| Paths::new(index as u64)).collect();
        let regions = regions.iter().map(|region| (*region).to_owned()).collect();
        Self { regions, folder, paths, lines: String::new() }
    }

    /// Adds top-level keys to every node's config, e.g. `spill.enabled = false`.
    #[must_use]
    pub fn set(mut self, line: &str) -> Self {
        self.lines.push_str(line);
        self.lines.push('\n');
        self
    }

    /// Puts so much time there and back between two nodes.
    pub fn distance(&self, one: usize, other: usize, rtt: Duration) {
        for (from, to) in [(one, other), (other, one)] {
            self.paths[from].set(link_address(to), Path::of(rtt / 2));
        }
    }

    /// Cuts what one node sends another off, or joins it again.
    pub fn cut(&self, from: usize, to: usize, is_cut: bool) {
        self.paths[from].cut(link_address(to), is_cut);
    }

    /// Starts node `index` with the replicas and routes of `setup`.
    ///
    /// # Panics
    /// If the config is wrong.
    pub async fn start(&self, index: usize, setup: Setup) -> Node {
        let text = self.text(index, setup);
        let config = Config::parse(&text, FilePath::new("cluster.toml"), []);
        let mut config = config.unwrap_or_else(|error| panic!("{error}\n{text}"));
        if let Some(cluster) = &mut config.cluster {
            cluster.paths = Some(Arc::clone(&self.paths[index]));
        }
        Node::start(config).await.expect("a node")
    }

    fn text(&self, index: usize, mut setup: Setup) -> String {
        let folder = self.folder.path();
        let (name, region) = (node_name(index), &self.regions[index]);
        let authority = AuthorityFiles::in_folder(folder);
        let files = NodeFiles::in_folder(folder, region, &name).with_authority(&authority);
        for line in [
            format!("node.name = \"{name}\""),
            format!("node.region = \"{region}\""),
            "node.expose_routing = true".to_owned(),
            format!("cluster.id = \"{CLUSTER}\""),
            format!("cluster.address = \"{}\"", link_address(index)),
            format!("cluster.ca = {:?}", files.authority),
            format!("cluster.certificate = {:?}", files.certificate),
            format!("cluster.key = {:?}", files.key),
            format!("cluster.prefix_key = {:?}", authority.prefix_key),
            "cluster.ramp_ms = 0".to_owned(),
            self.lines.clone(),
        ] {
            setup = setup.set(line);
        }
        for (other, region) in self.regions.iter().enumerate().filter(|(other, _)| *other != index)
        {
            setup = setup.table(format!(
                "[[peer]]\nname = \"{}\"\nregion = \"{region}\"\naddress = \"{}\"",
                node_name(other),
                link_address(other)
            ));
        }
        setup.text()
    }
}

/// Waits until `node` has heard from that region that it serves `tiny`, and could forward to it.
///
/// # Panics
/// If it does not.
pub async fn knows(node: &Node, region: &str) {
    eventually("the region is known", || is_open(node, region)).await;
}

/// Whether that region is one that `node` could forward requests for `tiny` to.
#[must_use]
pub fn is_open(node: &Node, region: &str) -> bool {
    let regions = node.gateway().regions();
    regions.others.iter().any(|other| {
        other.name.as_str() == region
            && other.is_reachable
            && other.models.keys().any(|model| model.as_str() == "tiny")
    })
}

fn node_name(index: usize) -> String {
    format!("n{index}")
}

/// An address of this process and node alone: tests that run at the same time are other processes,
/// and a node that is started again has the address that it had.
fn link_address(index: usize) -> SocketAddr {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let node = u8::try_from(index + 1).expect("fewer nodes");
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, high | 0x40, low, node)), PORT)
}
