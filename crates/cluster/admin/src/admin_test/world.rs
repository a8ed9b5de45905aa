//! Clusters on loopback, each node with an admin listener.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use spillway_cluster_state::Fingerprint;
use spillway_control_plane::{ControlPlane, ControlPlaneConfig};
use spillway_link::{Identity, Link};
use spillway_raft::{Role, Seed, restore};
use spillway_testkit::{Certificates, identity, introduce};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::client::Client;
use super::trie_test::Teller;
use crate::{Admin, AdminConfig, connection_builder};

pub(super) use spillway_testkit::{PATIENCE, eventually};

/// A cluster of nodes with names `a`, `b` … and a region `region-a`, `region-b` … each.
pub(super) struct World {
    certificates: Certificates,
    /// Tasks that write the audit trail; they end with the runtime of the test.
    tasks: TaskTracker,
    pub(super) seeds: Vec<Seed>,
    pub(super) nodes: Vec<Option<Node>>,
}

/// A running node.
pub(super) struct Node {
    link: Arc<Link>,
    pub(super) control_plane: Arc<ControlPlane>,
    pub(super) address: SocketAddr,
    admin: Admin,
    _listening: DropGuard,
}

impl World {
    /// Starts a cluster of one node.
    pub(super) async fn one(config: AdminConfig) -> Self {
        Self::started(1, config).await
    }

    /// Starts a cluster of so many nodes, and waits until each knows all of them.
    pub(super) async fn started(nodes: usize, config: AdminConfig) -> Self {
        let name = |number: usize| char::from(b'a' + number as u8).to_string();
        let seeds = (0..nodes).map(|number| Seed {
            name: name(number).as_str().into(),
            region: format!("region-{}", name(number)).as_str().into(),
        });
        let (seeds, running) = (seeds.collect(), (0..nodes).map(|_| None).collect());
        let mut world = Self {
            certificates: Certificates::new(),
            tasks: TaskTracker::new(),
            seeds,
            nodes: running,
        };
        for at in 0..nodes {
            Box::pin(world.start(at, config.clone())).await;
        }
        world.settled().await;
        world
    }

    async fn start(&mut self, at: usize, admin: AdminConfig) {
        let me = self.identity(at);
        let link = self.certificates.start_link(me.region().as_str(), me.node().as_str());
        let config = ControlPlaneConfig {
            name: me.node().clone(),
            region: me.region().clone(),
            advertise: link.local_address().unwrap().to_string(),
            fingerprint: Fingerprint([at as u8; 32]),
            folder: self.certificates.folder().join(format!("data-{at}")),
            seeds: self.seeds.clone(),
            join_token: None,
            is_operator: true,
            // Longer than on loopback, so that a busy machine is not mistaken for a dead leader.
            rtt_max: Duration::from_millis(100),
            watch: Default::default(),
        };
        let control_plane = ControlPlane::start(config, Arc::clone(&link)).await.unwrap();
        let admin = Admin::new(Some(Arc::clone(&control_plane)), admin)
            .explaining(Arc::new(Teller))
            .steering(Arc::new(Teller))
            .overviewing(Arc::new(Teller))
            .asking(Arc::new(Teller))
            .remembering(Arc::new(Teller));
        let (address, listening) = listen(admin.clone()).await;
        self.tasks.spawn(admin.write_orders());
        self.nodes[at] = Some(Node { link, control_plane, address, admin, _listening: listening });
        self.introduce();
    }

    fn identity(&self, at: usize) -> Identity {
        let seed = &self.seeds[at];
        identity(seed.region.as_str(), seed.name.as_str())
    }

    /// Gives every link the addresses of all running nodes.
    fn introduce(&self) {
        let running =
            self.nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node.as_ref()?)));
        let links: Vec<_> = running.map(|(at, node)| (self.identity(at), &*node.link)).collect();
        introduce(&links);
    }

    async fn settled(&self) {
        let expected = self.seeds.len();
        eventually("all nodes know and are all voters", || {
            self.nodes.iter().flatten().all(|node| {
                let state = node.control_plane.published();
                let own = node.link.local_address().unwrap().to_string();
                state.records().nodes.len() == expected
                    && state.is_enforced()
                    && state.records().nodes.iter().any(|(_, known)| known.spec.address == own)
                    && node.control_plane.status().voters.len() == expected
                    && node.control_plane.leader().is_some()
            })
        })
        .await;
    }

    pub(super) fn node(&self, at: usize) -> &Node {
        self.nodes[at].as_ref().unwrap()
    }

    /// Returns a client of a node, without a token.
    pub(super) fn client(&self, at: usize) -> Client {
        Client::new(self.node(at).address)
    }

    /// Returns the admin API of a node.
    pub(super) fn admin(&self, at: usize) -> &Admin {
        &self.nodes[at].as_ref().unwrap().admin
    }

    /// Returns the position of the node that reports itself as leader.
    pub(super) fn leader(&self) -> usize {
        let leads = |node: &Option<Node>| {
            node.as_ref().is_some_and(|node| node.control_plane.status().role == Role::Leader)
        };
        self.nodes.iter().position(leads).unwrap()
    }

    /// Stops a node without a hand-over, as if its process were killed.
    pub(super) async fn kill(&mut self, at: usize) {
        let node = self.nodes[at].take().unwrap();
        node.link.shutdown(Duration::ZERO).await;
    }

    /// Stops a cluster of one node, and starts it again from a backup.
    pub(super) async fn restart_from(&mut self, at: usize, backup: &Path, admin: AdminConfig) {
        let node = self.nodes[at].take().unwrap();
        node.control_plane.shutdown().await;
        drop(node.control_plane);
        node.link.shutdown(Duration::from_secs(1)).await;
        let folder = self.certificates.folder().join(format!("data-{at}"));
        std::fs::remove_dir_all(&folder).unwrap();
        restore(backup, &folder, &self.seeds[at].name).unwrap();
        Box::pin(self.start(at, admin)).await;
    }

    /// Waits until the operators' trail has so many records; returns them, newest first.
    pub(super) async fn audited(&self, client: &Client, records: usize) -> Vec<Value> {
        let by = tokio::time::Instant::now() + PATIENCE;
        loop {
            let page = client.get("/v1/audit?limit=1000").await.done();
            let items = page["items"].as_array().unwrap();
            if items.len() >= records {
                assert_eq!(items.len(), records, "{items:#?}");
                return items.clone();
            }
            assert!(tokio::time::Instant::now() < by, "{} of {records}: {items:#?}", items.len());
            // wait: for a record that is written in the background.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the path of a file that is removed with the world.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.certificates.folder().join(name)
    }
}

/// Serves the API as a node's admin listener does.
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
