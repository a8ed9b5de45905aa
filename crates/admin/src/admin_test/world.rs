//! Clusters on loopback, each node with its admin listener.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use spillway_agreement::{Agreement, AgreementConfig};
use spillway_consensus::{Role, Seed, restore};
use spillway_control::Fingerprint;
use spillway_link::certs::{Authority, IfExists, NodeFiles, Validity};
use spillway_link::{
    CertificateFiles, Deciding, ForwardBody, ForwardHead, Handler, Identity, Link, PeerConfig,
    Refused, RefusedReason,
};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::client::Client;
use super::trie_test::Teller;
use crate::{Admin, AdminConfig, connection_builder};

/// How long a test waits for what has to happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

struct NoHandler;

impl Handler for NoHandler {
    fn datagram(&self, _from: &Identity, _datagram: Bytes) {}

    fn forwarded(&self, _from: &Identity, _head: ForwardHead, _body: ForwardBody) -> Deciding {
        Box::pin(async { Err(Refused { reason: RefusedReason::NoReplica, wait_ms: None }) })
    }
}

/// Nodes with names `a`, `b` … and a region `region-a`, `region-b` … each.
pub(super) struct World {
    folder: TempDir,
    authority: Authority,
    pub(super) seeds: Vec<Seed>,
    pub(super) nodes: Vec<Option<Node>>,
}

/// A node that runs.
pub(super) struct Node {
    link: Arc<Link>,
    pub(super) agreement: Arc<Agreement>,
    pub(super) address: SocketAddr,
    admin: Admin,
    _listening: DropGuard,
}

impl World {
    /// One node that is a cluster.
    pub(super) async fn one(config: AdminConfig) -> Self {
        Self::started(1, config).await
    }

    /// So many nodes that are a cluster, each of which knows all of them.
    pub(super) async fn started(nodes: usize, config: AdminConfig) -> Self {
        let folder = TempDir::new().unwrap();
        let validity = Validity::days(SystemTime::now(), 10).unwrap();
        let authority = Authority::new("test", validity).unwrap();
        std::fs::write(folder.path().join("ca.pem"), authority.certificate_pem()).unwrap();
        let name = |number: usize| char::from(b'a' + number as u8).to_string();
        let seeds = (0..nodes).map(|number| Seed {
            name: name(number).as_str().into(),
            region: format!("region-{}", name(number)).as_str().into(),
        });
        let (seeds, running) = (seeds.collect(), (0..nodes).map(|_| None).collect());
        let mut world = Self { folder, authority, seeds, nodes: running };
        for at in 0..nodes {
            Box::pin(world.start(at, config.clone())).await;
        }
        world.settled().await;
        world
    }

    async fn start(&mut self, at: usize, admin: AdminConfig) {
        let link = self.link(at);
        let me = self.identity(at);
        let config = AgreementConfig {
            name: me.node().clone(),
            region: me.region().clone(),
            advertise: link.local_address().unwrap().to_string(),
            fingerprint: Fingerprint([at as u8; 32]),
            folder: self.folder.path().join(format!("data-{at}")),
            seeds: self.seeds.clone(),
            // Longer than the way, so that a busy machine is not taken for a dead leader.
            join_token: None,
            is_operator: true,
            rtt_max: Duration::from_millis(100),
        };
        let agreement = Agreement::start(config, Arc::clone(&link)).await.unwrap();
        let admin = Admin::new(Some(Arc::clone(&agreement)), admin).explaining(Arc::new(Teller));
        let (address, listening) = listen(admin.clone()).await;
        self.nodes[at] = Some(Node { link, agreement, address, admin, _listening: listening });
        self.introduce();
    }

    fn link(&self, at: usize) -> Arc<Link> {
        let me = self.identity(at);
        let (region, name) = (me.region().as_str(), me.node().as_str());
        let files = NodeFiles::in_folder(self.folder.path(), region, name);
        let validity = Validity::days(SystemTime::now(), 5).unwrap();
        let issued = self.authority.issue(region, name, validity).unwrap();
        files.write(issued, IfExists::Replace).unwrap();
        let files = CertificateFiles {
            authority: self.folder.path().join("ca.pem"),
            certificate: files.certificate,
            key: files.key,
        };
        let mut config =
            spillway_link::Config::new(me.clone(), "127.0.0.1:0".parse().unwrap(), files);
        config.transport.rtt_default_ms = 5;
        Arc::new(Link::start(config, Arc::new(NoHandler)).unwrap())
    }

    fn identity(&self, at: usize) -> Identity {
        let seed = &self.seeds[at];
        Identity::new("test", seed.region.as_str(), seed.name.as_str()).unwrap()
    }

    /// Tells all links of each other.
    fn introduce(&self) {
        let running =
            || self.nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node.as_ref()?)));
        let peer = |(at, node): (usize, &Node)| PeerConfig {
            identity: self.identity(at),
            address: node.link.local_address().unwrap().to_string(),
            rtt_ms: Some(5),
        };
        for (_, node) in running() {
            node.link.set_peers(running().map(peer).collect());
        }
    }

    async fn settled(&self) {
        let expected = self.seeds.len();
        eventually("all nodes know and are all voters", || {
            self.nodes.iter().flatten().all(|node| {
                let state = node.agreement.published();
                let own = node.link.local_address().unwrap().to_string();
                state.records().nodes.len() == expected
                    && state.is_enforced()
                    && state.records().nodes.iter().any(|(_, known)| known.spec.address == own)
                    && node.agreement.status().voters.len() == expected
                    && node.agreement.leader().is_some()
            })
        })
        .await;
    }

    pub(super) fn node(&self, at: usize) -> &Node {
        self.nodes[at].as_ref().unwrap()
    }

    /// A client of a node, without a token.
    pub(super) fn client(&self, at: usize) -> Client {
        Client::new(self.node(at).address)
    }

    /// What answers at a node.
    pub(super) fn admin(&self, at: usize) -> &Admin {
        &self.nodes[at].as_ref().unwrap().admin
    }

    /// The node that leads, as it says itself.
    pub(super) fn leader(&self) -> usize {
        let leads = |node: &Option<Node>| {
            node.as_ref().is_some_and(|node| node.agreement.status().role == Role::Leader)
        };
        self.nodes.iter().position(leads).unwrap()
    }

    /// Ends a node without a word, as if its process were killed.
    pub(super) async fn kill(&mut self, at: usize) {
        let node = self.nodes[at].take().unwrap();
        node.link.shutdown(Duration::ZERO).await;
    }

    /// Ends a cluster of one node, and starts it again from a backup.
    pub(super) async fn restart_from(&mut self, at: usize, backup: &Path, admin: AdminConfig) {
        let node = self.nodes[at].take().unwrap();
        node.agreement.shutdown().await;
        drop(node.agreement);
        node.link.shutdown(Duration::from_secs(1)).await;
        let folder = self.folder.path().join(format!("data-{at}"));
        std::fs::remove_dir_all(&folder).unwrap();
        restore(backup, &folder, &self.seeds[at].name).unwrap();
        Box::pin(self.start(at, admin)).await;
    }

    /// A file that goes with the world.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Listens as a node's admin listener does.
pub(super) async fn listen(admin: Admin) -> (SocketAddr, DropGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let accepting = {
        let (stop, tasks) = (stop.clone(), tasks.clone());
        async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let (admin, stop) = (admin.clone(), stop.clone());
                tasks.spawn(async move {
                    let service = service_fn(move |request| {
                        let admin = admin.clone();
                        async move { Ok::<_, Infallible>(admin.answer(request).await) }
                    });
                    let serving = connection_builder().serve_connection(TokioIo::new(tcp), service);
                    stop.run_until_cancelled(serving).await
                });
            }
        }
    };
    let stopped = stop.clone();
    tasks.spawn(async move { stopped.run_until_cancelled(accepting).await });
    (address, stop.drop_guard())
}

pub(super) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let by = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < by, "{what}: not in time");
        // wait: between two looks
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
