//! Several nodes in one process: real certificates, real QUIC, and distance put between them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use spillway_config::Config;
use spillway_link::certs::{
    Authority, AuthorityFiles, IfExists, NodeFiles, PrefixKey, Validity, serial_of_pem,
};
use spillway_link::delayed::{Path, Paths};
use spillway_link::{CertificateFiles, Link, PeerConfig};
use spillway_node::{Node, StartError};
use spillway_testkit::{CLUSTER, RefuseAll, eventually, identity};
use tempfile::TempDir;

use crate::setup::Setup;

const PORT: u16 = 7_946;
const DAYS: u32 = 2;
/// Milliseconds that a node may be silent unless the test sets another limit.
const SILENCE_MS: u32 = 3_000;

/// A cluster in the making, and what its nodes share. Node `i` is `n<i>` of the region it was given.
#[derive(Debug)]
pub struct Cluster {
    regions: Vec<String>,
    folder: TempDir,
    paths: Vec<Arc<Paths>>,
    lines: String,
    is_agreeing: bool,
    /// So many nodes, the last ones, join by token: they know the first one alone, and no other
    /// config knows them.
    joiners: usize,
    /// Time in which a region that comes back gets its full share.
    ramp: Duration,
    authority: Authority,
}

impl Cluster {
    /// A node for each of these regions.
    ///
    /// # Panics
    /// If certificates can't be made.
    #[must_use]
    pub fn new(regions: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Self::authority_for(DAYS);
        let key = PrefixKey::random().expect("randomness");
        AuthorityFiles::in_folder(folder.path())
            .write(&authority, &key, IfExists::Refuse)
            .expect("files");
        let paths = (0..regions.len()).map(|index| Paths::new(index as u64)).collect();
        let regions = regions.iter().map(|region| (*region).to_owned()).collect();
        let cluster = Self {
            regions,
            folder,
            paths,
            lines: String::new(),
            is_agreeing: false,
            joiners: 0,
            ramp: Duration::ZERO,
            authority,
        };
        for index in 0..cluster.regions.len() {
            std::fs::create_dir(cluster.folder_of(index)).expect("a folder");
            cluster.trust(index, &[&cluster.authority]);
            cluster.issue(index, &cluster.authority, DAYS);
        }
        cluster
    }

    /// Adds top-level keys to every node's config, e.g. `spill.enabled = false`.
    #[must_use]
    pub fn set(mut self, line: &str) -> Self {
        self.lines.push_str(line);
        self.lines.push('\n');
        self
    }

    /// Regions that come back get their full share in this time, instead of at once.
    #[must_use]
    pub fn ramping(self, ramp: Duration) -> Self {
        Self { ramp, ..self }
    }

    /// Nodes keep their agreed state, each in a folder of its own.
    #[must_use]
    pub fn agreeing(self) -> Self {
        Self { is_agreeing: true, ..self }
    }

    /// The last `joiners` nodes are to join by token: they know the first one alone, and no other
    /// config knows them.
    #[must_use]
    pub fn joined_by(self, joiners: usize) -> Self {
        Self { joiners, ..self }
    }

    /// Returns the folder in which node `index` keeps the agreed state.
    #[must_use]
    pub fn data(&self, index: usize) -> PathBuf {
        self.folder_of(index).join("data")
    }

    /// Gives node `index` a join token: from its next start on its config names it.
    ///
    /// # Panics
    /// If it can't be written.
    pub fn give_token(&self, index: usize, text: &str) {
        std::fs::write(self.token(index), text).expect("a file");
    }

    /// Has the CA revoke a certificate, in the file that the config of node `index` names.
    ///
    /// # Panics
    /// If it can't be written.
    pub fn revoke(&self, index: usize, serial: &str) {
        let list = self.authority.revoke(serial, SystemTime::now()).expect("a list");
        std::fs::write(self.revoked(index), list).expect("a file");
    }

    fn revoked(&self, index: usize) -> PathBuf {
        self.folder_of(index).join("revoked.pem")
    }

    fn token(&self, index: usize) -> PathBuf {
        self.folder_of(index).join("join.token")
    }

    /// The nodes that the config of node `index` names.
    fn named(&self, index: usize) -> std::ops::Range<usize> {
        let founders = self.regions.len() - self.joiners;
        0..if index < founders { founders } else { 1 }
    }

    /// Puts so much time there and back between two nodes.
    pub fn distance(&self, one: usize, other: usize, rtt: Duration) {
        for (from, to) in [(one, other), (other, one)] {
            self.paths[from].set(link_address(to), Path::of(rtt / 2));
        }
    }

    /// Cuts or restores the path from one node to another.
    pub fn cut(&self, from: usize, to: usize, is_cut: bool) {
        self.paths[from].cut(link_address(to), is_cut);
    }

    /// The CA that all certificates are of in the beginning.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Another CA for this cluster, valid for so many days.
    ///
    /// # Panics
    /// If it can't be made.
    #[must_use]
    pub fn authority_for(days: u32) -> Authority {
        Authority::new(CLUSTER, validity(days)).expect("a CA")
    }

    /// Puts these CAs in place of those that node `index` trusts.
    ///
    /// # Panics
    /// If the file can't be written.
    pub fn trust(&self, index: usize, authorities: &[&Authority]) {
        let text: String = authorities.iter().map(|one| one.certificate_pem()).collect();
        let path = self.files(index).authority;
        let beside = path.with_extension("new");
        std::fs::write(&beside, text).expect("a file");
        // As `spillway certs` does it: a node never reads half a file.
        std::fs::rename(beside, path).expect("a file");
    }

    /// Puts a new certificate and key of `authority` in place of those of node `index`.
    ///
    /// # Panics
    /// If the files can't be written.
    pub fn issue(&self, index: usize, authority: &Authority, days: u32) {
        let (name, region) = (node_name(index), &self.regions[index]);
        let issued = authority.issue(region, &name, validity(days)).expect("a certificate");
        NodeFiles::in_folder(&self.folder_of(index), region, &name)
            .write(issued, IfExists::Replace)
            .expect("files");
    }

    /// Starts node `index` with the replicas and routes of `setup`.
    ///
    /// # Panics
    /// If the config is wrong.
    pub async fn start(&self, index: usize, setup: Setup) -> Node {
        // A node that was stopped may hold it for a moment.
        eventually("the port is free", || UdpSocket::bind(link_address(index)).is_ok()).await;
        self.try_start(index, setup).await.expect("a node")
    }

    /// Starts the node without waiting for its port to become free.
    ///
    /// # Errors
    /// If the node does not start.
    ///
    /// # Panics
    /// If the config is wrong.
    pub async fn try_start(&self, index: usize, setup: Setup) -> Result<Node, StartError> {
        let text = self.text(index, setup.clone());
        let config = Config::parse(&text, FilePath::new("cluster.toml"), []);
        let mut config = config.unwrap_or_else(|error| panic!("{error}\n{text}"));
        setup.apply(&mut config);
        if let Some(cluster) = &mut config.cluster {
            cluster.paths = Some(Arc::clone(&self.paths[index]));
            cluster.ramp = self.ramp;
        }
        Node::start(config).await
    }

    /// The serial number of node `index`'s certificate.
    ///
    /// # Panics
    /// If its file can't be read.
    #[must_use]
    pub fn serial(&self, index: usize) -> String {
        let pem = std::fs::read(self.files(index).certificate).expect("a file");
        serial_of_pem(&pem).expect("a certificate")
    }

    /// Replaces node `index` by a bare link that is connected to node `to`: it sends messages that
    /// no node would send, and serves nothing. For a node of this process that has been started.
    ///
    /// # Panics
    /// If the link can't be opened, or does not connect.
    pub async fn bare_link(&self, index: usize, to: usize) -> Link {
        self.bare_link_to(index, &[to]).await
    }

    /// Opens such a link that is connected to several nodes.
    ///
    /// # Panics
    /// If the link can't be opened, or does not connect.
    pub async fn bare_link_to(&self, index: usize, to: &[usize]) -> Link {
        let identity = |index: usize| identity(&self.regions[index], &node_name(index));
        let address = link_address(index);
        eventually("the port is free", || UdpSocket::bind(address).is_ok()).await;
        let mut config =
            spillway_link::LinkConfig::new(identity(index), address, self.files(index));
        config.paths = Some(Arc::clone(&self.paths[index]));
        let link = Link::start(config, Arc::new(RefuseAll)).expect("a link");
        let peer = |to: &usize| PeerConfig {
            identity: identity(*to),
            address: link_address(*to).to_string(),
            rtt_ms: None,
        };
        link.set_peers(to.iter().map(peer).collect());
        let is_connected = || {
            let peers = link.peers();
            peers.iter().all(|peer| peer.control.is_some() && peer.data.is_some())
        };
        eventually("the bare link is connected", is_connected).await;
        link
    }

    fn folder_of(&self, index: usize) -> PathBuf {
        self.folder.path().join(node_name(index))
    }

    fn files(&self, index: usize) -> CertificateFiles {
        let folder = self.folder_of(index);
        NodeFiles::in_folder(&folder, &self.regions[index], &node_name(index))
            .with_authority(&AuthorityFiles::in_folder(&folder))
    }

    fn text(&self, index: usize, mut setup: Setup) -> String {
        let (name, region) = (node_name(index), &self.regions[index]);
        let files = self.files(index);
        let shared = AuthorityFiles::in_folder(self.folder.path());
        for line in [
            format!("node.name = \"{name}\""),
            format!("node.region = \"{region}\""),
            "node.expose_routing = true".to_owned(),
            format!("cluster.id = \"{CLUSTER}\""),
            format!("cluster.address = \"{}\"", link_address(index)),
            format!("cluster.ca = {:?}", files.authority),
            format!("cluster.certificate = {:?}", files.certificate),
            format!("cluster.key = {:?}", files.key),
            format!("cluster.prefix_key = {:?}", shared.prefix_key),
            format!("cluster.revoked = {:?}", self.revoked(index)),
            self.lines.clone(),
        ] {
            setup = setup.set(line);
        }
        if !self.lines.contains("cluster.silence_ms") {
            // A machine that is busy for a second is no reason to call another node silent.
            setup = setup.set(format!("cluster.silence_ms = {SILENCE_MS}"));
        }
        if self.is_agreeing {
            setup = setup.set(format!("cluster.data = {:?}", self.data(index)));
            let is_late = index + self.joiners >= self.regions.len();
            if is_late || self.token(index).exists() {
                setup = setup.set(format!("cluster.join_token_file = {:?}", self.token(index)));
            }
        }
        for other in self.named(index).filter(|other| *other != index) {
            let region = &self.regions[other];
            setup = setup.table(format!(
                "[[peer]]\nname = \"{}\"\nregion = \"{region}\"\naddress = \"{}\"",
                node_name(other),
                link_address(other)
            ));
        }
        setup.text()
    }
}

/// Waits until `node` has received a report that the region serves `tiny`, and could forward to it.
///
/// # Panics
/// If it does not.
pub async fn knows(node: &Node, region: &str) {
    eventually("the region is known", || is_open(node, region)).await;
}

/// Returns true if `node` could forward requests for `tiny` to the region.
#[must_use]
pub fn is_open(node: &Node, region: &str) -> bool {
    let regions = node.gateway().routing.regions();
    regions.others.iter().any(|other| {
        other.name.as_str() == region
            && other.is_reachable
            && other.models.keys().any(|model| model.as_str() == "tiny")
    })
}

fn node_name(index: usize) -> String {
    format!("n{index}")
}

fn validity(days: u32) -> Validity {
    Validity::days(SystemTime::now(), days).expect("a time")
}

/// An address of this process and node alone: tests that run at the same time are other processes,
/// and a node that is started again has the address that it had.
fn link_address(index: usize) -> SocketAddr {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let node = u8::try_from(index + 1).expect("fewer nodes");
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, high | 0x40, low, node)), PORT)
}
