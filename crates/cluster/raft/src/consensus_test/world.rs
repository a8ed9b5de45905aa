//! Nodes on loopback with distance between them, and waiting for what they do.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_codec::Wire;
use spillway_link::delayed::{Path, Paths};
use spillway_link::{Identity, Link, PeerConfig};
use spillway_testkit::{Certificates, RefuseAll, as_peer, identity};
pub(super) use spillway_testkit::{PATIENCE, Stopwatch, eventually as until};
use tokio::sync::watch;

use super::register::{Before, Change, Register};
use crate::wire::{Addressee, Answer, Opening, Purpose};
use crate::{
    ClusterId, Compaction, Consensus, Consistency, DiskClock, Member, NodeId, ProposeError,
    Proposed, RaftConfig, RaftStartError, ReadError, Role, Seed, Timing, Urgency, WireVersion,
};

/// Longest time that a command may take in tests.
pub(super) const LIMIT: Duration = Duration::from_secs(5);
/// The least round trip that a world's timers are made for: a lease of 1.3 s outlives what a busy
/// machine holds a thread or a disk up, so that no test about something else sees an election.
const TIMERS_RTT_MIN: Duration = Duration::from_millis(220);

/// Nodes and the ways between them.
pub(super) struct World {
    certificates: Certificates,
    pub(super) one_way: Duration,
    pub(super) timing: Timing,
    pub(super) compaction: Compaction,
    pub(super) wire_newest: WireVersion,
    pub(super) steering_patience: Duration,
    pub(super) nodes: Vec<TestNode>,
    /// Links with a node's certificate and no log behind them.
    thieves: Vec<(usize, Arc<Link>)>,
}

/// A node, running or not.
pub(super) struct TestNode {
    pub(super) id: NodeId,
    pub(super) name: String,
    pub(super) folder: PathBuf,
    pub(super) up: Option<Up>,
    /// Channel of all logs that the node opens.
    applied: watch::Sender<u64>,
    /// Clock of its disk, likewise.
    disk_clock: Arc<DiskClock>,
}

/// The running parts of a node.
pub(super) struct Up {
    pub(super) link: Arc<Link>,
    pub(super) paths: Arc<Paths>,
    pub(super) log: Consensus<Register>,
}

impl World {
    /// So many nodes, not started, so far apart.
    pub(super) fn new(nodes: usize, rtt: Duration) -> Self {
        let mut world = Self {
            certificates: Certificates::new(),
            one_way: rtt / 2,
            timing: Timing::for_rtt(rtt.max(TIMERS_RTT_MIN)),
            compaction: Compaction::default(),
            wire_newest: WireVersion::default(),
            steering_patience: Duration::from_secs(30),
            nodes: Vec::new(),
            thieves: Vec::new(),
        };
        (0..nodes).for_each(|_| world.add());
        world
    }

    /// Three nodes that have formed a cluster, the first of which leads.
    pub(super) async fn three(rtt: Duration) -> Self {
        let mut world = Self::new(3, rtt);
        world.start_all().await;
        world.form().await;
        world.lead(0).await;
        world
    }

    /// Adds a node, without starting it.
    pub(super) fn add(&mut self) {
        let number = self.nodes.len() + 1;
        let name = format!("n{number}");
        let folder = self.certificates.folder().join(format!("data-{number}"));
        self.nodes.push(TestNode {
            id: NodeId(number as u64),
            name,
            folder,
            up: None,
            applied: watch::Sender::new(0),
            disk_clock: Arc::default(),
        });
    }

    pub(super) async fn start_all(&mut self) {
        for at in 0..self.nodes.len() {
            self.start(at).await;
        }
    }

    pub(super) async fn start(&mut self, at: usize) {
        self.try_start(at).await.unwrap();
    }

    pub(super) async fn try_start(&mut self, at: usize) -> Result<(), RaftStartError> {
        let node = &self.nodes[at];
        let mut config = self.certificates.link_config("r", &node.name);
        let paths = Paths::new(at as u64);
        config.paths = Some(Arc::clone(&paths));
        let link = Arc::new(Link::start(config, Arc::new(RefuseAll)).unwrap());
        let config = self.raft_config(at);
        let log = Consensus::start(config, Arc::clone(&link), Register::default()).await?;
        self.nodes[at].up = Some(Up { link, paths, log });
        self.introduce();
        Ok(())
    }

    fn raft_config(&self, at: usize) -> RaftConfig {
        let node = &self.nodes[at];
        let mut config =
            RaftConfig::new(node.id, node.name.as_str().into(), "r".into(), node.folder.clone());
        config.timing = self.timing;
        config.compaction = self.compaction;
        config.wire_newest = self.wire_newest;
        config.steering_patience = self.steering_patience;
        config.applied = node.applied.clone();
        config.disk_clock = Arc::clone(&node.disk_clock);
        config
    }

    /// Closes the log of a node and opens it again over the same link, as after a fault of its disk.
    pub(super) async fn reopen(&mut self, at: usize) {
        let config = self.raft_config(at);
        let Up { link, paths, log: before } = self.nodes[at].up.take().unwrap();
        before.shutdown().await;
        let log = Consensus::start(config, Arc::clone(&link), Register::default()).await.unwrap();
        log.check_disk().await.unwrap();
        // Last, as a task may still hold it.
        drop(before);
        self.nodes[at].up = Some(Up { link, paths, log });
    }

    /// Sets the peers of all links.
    fn introduce(&self) {
        let peer = |node: &TestNode, link: &Link| as_peer(&node.identity(), link);
        let mut peers: Vec<PeerConfig> =
            self.running().map(|node| peer(node, &node.up().link)).collect();
        for (at, link) in &self.thieves {
            link.set_peers(peers.clone());
            peers.push(peer(&self.nodes[*at], link));
        }
        for node in self.running() {
            for other in self.running().filter(|other| other.id != node.id) {
                let path = Path {
                    cut: node.up().paths.path(other.address()).cut,
                    ..Path::of(self.one_way)
                };
                node.up().paths.set(other.address(), path);
            }
            node.up().link.set_peers(peers.clone());
        }
    }

    /// Creates a link that speaks as a node that does not run, as anyone with its certificate and
    /// key can. All running nodes take it for a peer.
    pub(super) async fn thief(&mut self, at: usize) -> Arc<Link> {
        let link = self.certificates.start_link("r", &self.nodes[at].name);
        self.thieves.push((at, Arc::clone(&link)));
        self.introduce();
        until("the thief is connected", || link.peers().iter().all(|peer| peer.is_connected()))
            .await;
        link
    }

    /// Returns the message with which a thief opens a stream to node `to`, as number `from`.
    pub(super) fn opening(&self, from: u64, to: usize, purpose: Purpose) -> Opening {
        let node = self.nodes[to].log().context.introduction();
        let to = Some(Addressee { node: node.node, disk: Some(node.disk) });
        Opening { cluster: node.cluster, from: NodeId(from), to, purpose }
    }

    /// Says something as a thief that calls itself number `from`; `None` if no answer came.
    pub(super) async fn say<T: Wire>(
        &self,
        thief: &Link,
        (from, to): (u64, usize),
        (purpose, message): (Purpose, T),
    ) -> Option<Answer> {
        let name = self.nodes[to].name.as_str().into();
        let (mut sender, mut receiver) = thief.open_control(&name).unwrap();
        sender.message(&self.opening(from, to, purpose)).await.ok()?;
        // An error means that the stream has ended already.
        drop(sender.message(&message).await);
        sender.finish();
        receiver.message::<Answer>().await.ok()?
    }

    fn running(&self) -> impl Iterator<Item = &TestNode> {
        self.nodes.iter().filter(|node| node.up.is_some())
    }

    /// Stops a node without notice, as if its process were killed.
    pub(super) async fn kill(&mut self, at: usize) {
        let Up { link, log, .. } = self.nodes[at].up.take().unwrap();
        // Messages that it would still send are lost.
        self.introduce();
        drop(link);
        log.shutdown().await;
    }

    pub(super) fn seeds(&self) -> Vec<Seed> {
        let seed = |node: &TestNode| Seed { name: node.name.as_str().into(), region: "r".into() };
        self.nodes.iter().map(seed).collect()
    }

    /// Has all nodes form a cluster at once.
    pub(super) async fn form(&self) -> ClusterId {
        let seeds = self.seeds();
        let forming = self.running().map(|node| node.log().form(&seeds));
        let formed = futures_util::future::join_all(forming);
        let formed = tokio::time::timeout(PATIENCE, formed).await.expect("formed in time");
        let clusters: Vec<ClusterId> = formed.into_iter().map(Result::unwrap).collect();
        assert!(clusters.windows(2).all(|pair| pair[0] == pair[1]), "{clusters:?}");
        clusters[0]
    }

    /// Waits until a node leads and the others know it, handing over if another one does.
    pub(super) async fn lead(&self, at: usize) {
        let wanted = self.nodes[at].id;
        let by = Instant::now() + PATIENCE;
        loop {
            let leader = self.leader().await;
            if leader == at {
                break;
            }
            assert!(Instant::now() < by, "never leads");
            drop(self.log(leader).transfer_leader(wanted, Duration::from_secs(2)).await);
        }
        until("all know the leader", || {
            self.running().all(|node| node.log().status().leader == Some(wanted))
        })
        .await;
    }

    /// Waits for a leader and returns its index.
    pub(super) async fn leader(&self) -> usize {
        let mut found = None;
        until("there is a leader", || {
            found = self.find_leader();
            found.is_some()
        })
        .await;
        found.unwrap()
    }

    pub(super) fn find_leader(&self) -> Option<usize> {
        self.nodes.iter().position(|node| {
            node.up.as_ref().is_some_and(|up| up.log.status().role == Role::Leader)
        })
    }

    pub(super) fn log(&self, at: usize) -> &Consensus<Register> {
        self.nodes[at].log()
    }

    /// Sets one way, from one node to another.
    pub(super) fn cut_way(&self, from: usize, to: usize, cut: bool) {
        self.nodes[from].up().paths.cut(self.nodes[to].address(), cut);
    }

    /// Makes the way between two nodes take so long, in both directions together.
    pub(super) fn set_rtt(&self, a: usize, b: usize, rtt: Duration) {
        for (from, to) in [(a, b), (b, a)] {
            self.nodes[from].up().paths.set(self.nodes[to].address(), Path::of(rtt / 2));
        }
    }

    /// Cuts or mends both ways between two nodes.
    pub(super) fn cut(&self, a: usize, b: usize, cut: bool) {
        self.cut_way(a, b, cut);
        self.cut_way(b, a, cut);
    }

    /// Cuts or mends all ways of a node.
    pub(super) fn isolate(&self, at: usize, cut: bool) {
        (0..self.nodes.len())
            .filter(|other| *other != at)
            .for_each(|other| self.cut(at, other, cut));
    }

    pub(super) async fn set(
        &self,
        at: usize,
        key: u64,
        value: u64,
    ) -> Result<Proposed<Before>, ProposeError> {
        self.log(at).propose(&Change::Set(key, value), Urgency::Operator, LIMIT).await
    }

    /// Proposes at some node until it is done, as a client that may do it twice.
    pub(super) async fn set_somewhere(&self, among: &[usize], key: u64, value: u64) -> usize {
        let by = Instant::now() + PATIENCE;
        loop {
            for at in among {
                if self.set(*at, key, value).await.is_ok() {
                    return *at;
                }
            }
            assert!(Instant::now() < by, "never written");
            // wait: for an election, which has no event here.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns the value that a client reads if it retries while there is no quorum.
    pub(super) async fn get(&self, at: usize, key: u64) -> Option<u64> {
        let by = Instant::now() + PATIENCE;
        let look = |register: &Register| register.numbers.get(&key).copied();
        loop {
            match self.log(at).read(Consistency::Linearizable, LIMIT, look).await {
                Ok(read) => return read.value,
                Err(error) => {
                    let is_passing = matches!(error, ReadError::NoQuorum { .. });
                    assert!(is_passing && Instant::now() < by, "{error}");
                }
            }
            // wait: for an election, which has no event here.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) fn get_stale(&self, at: usize, key: u64) -> Option<u64> {
        self.log(at).applied.look(|register, _| register.numbers.get(&key).copied())
    }

    /// Waits until all running nodes have carried out the same and are equal.
    pub(super) async fn agree(&self) {
        until("all nodes are equal", || {
            let mut digests = self.running().map(|node| node.log().digest());
            let first = digests.next().unwrap();
            digests.all(|digest| digest == first)
        })
        .await;
    }
}

impl TestNode {
    pub(super) fn up(&self) -> &Up {
        self.up.as_ref().expect("it runs")
    }

    pub(super) fn log(&self) -> &Consensus<Register> {
        &self.up().log
    }

    pub(super) fn member(&self) -> Member {
        self.log().member()
    }

    fn identity(&self) -> Identity {
        identity("r", &self.name)
    }

    fn address(&self) -> SocketAddr {
        self.up().link.local_address().unwrap()
    }
}
