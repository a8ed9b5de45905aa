//! Limits of a stolen certificate and key: without the node they give nothing beyond the node's
//! membership.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::Empty;
use serde::{Deserialize, Serialize};
use spillway_cluster_state::{
    Actor, CertificateSerial, Command, Entry, Expect, Hidden, Item, Key, KeyRole, NodeRole,
    Outcome, Proposer, RecordKey, RefusalCode, RegionState, RevokedCertificate,
};
use spillway_codec::Wire;
use spillway_link::{ForwardHead, Link, PeerRoom};
use spillway_node::Node;
use spillway_raft::NodeId;
use spillway_tests::{Cluster, OK, Scripted, Serving, Setup, eventually};

use crate::join::{members, number};
use crate::world::*;

/// The messages of the log as a node writes them, for tests that forge them.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Ballot {
    term: u64,
    node: NodeId,
    is_won: bool,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Point {
    term: u64,
    index: u64,
}

#[derive(Serialize, Deserialize)]
enum Purpose {
    Append,
    Call,
}

#[derive(Serialize, Deserialize)]
struct Opening {
    cluster: Option<u128>,
    from: NodeId,
    to: Option<(NodeId, Option<u128>)>,
    purpose: Purpose,
}

#[derive(Serialize, Deserialize)]
struct Append {
    ballot: Ballot,
    previous: Option<Point>,
    committed: Option<Point>,
    entries: Vec<u8>,
    news: News,
}

#[derive(Default, Serialize, Deserialize)]
struct News {
    age: Option<(u32, u64)>,
    asks_held: bool,
    heartbeat_ms: u32,
}

#[derive(Serialize, Deserialize)]
struct Candidacy {
    ballot: Ballot,
    last: Option<Point>,
    is_transfer: bool,
}

#[derive(Serialize, Deserialize)]
enum Call {
    Vote(Candidacy),
    PreVote(Candidacy),
    Transfer { from: Ballot, to: NodeId, last: Option<Point> },
    ReadIndex,
    Propose { command: Vec<u8>, limit_ms: u32 },
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// For a reason that is not looked at.
    Refused(u32),
    Vote,
    Transferred,
    ReadIndex(u64),
    Proposed {
        index: u64,
        outcome: Vec<u8>,
    },
}

macro_rules! messages {
    ($($kind:literal $message:ident)*) => {
        $(impl Wire for $message {
            const KIND: u16 = $kind;
            const VERSION: u16 = 1;
            const BYTES_MAX: usize = 128 << 10;
        })*
    };
}

messages!(0x0402 Opening 0x0403 Append 0x0404 Call 0x0407 Answer);

/// Three nodes with replicas, and an edge node that follows the log without a vote and is stopped.
struct World {
    cluster: Cluster,
    replicas: Vec<Serving>,
    nodes: Vec<Option<Node>>,
}

const EDGE: usize = 3;

impl World {
    async fn started() -> Self {
        let cluster = Cluster::new(&["one", "three", "two", "edge"]).agreeing();
        let mut world = Self { cluster, replicas: Vec::new(), nodes: Vec::new() };
        for index in 0..=EDGE {
            world.replicas.push(Scripted::start().await.serve(OK));
            world.nodes.push(None);
            world.start(index).await;
        }
        eventually("membership is enforced", || {
            world.nodes.iter().flatten().all(|node| members(node) == 4 && state(node).is_enforced())
        })
        .await;
        let node = NodeId(number(world.node(0), "n3").expect("a number"));
        let learner = Command::SetNodeRole { node, role: NodeRole::Learner, expect: Expect::Any };
        let done = order(world.node(0), learner).await;
        assert!(matches!(done, Outcome::Applied { .. }), "{done:?}");
        eventually("the edge node has no vote", || {
            let status = world.status(0);
            status.voters.len() == 3 && !status.voters.contains(&node) && !status.is_joint
        })
        .await;
        world
    }

    async fn start(&mut self, index: usize) {
        let setup = match index {
            EDGE => Setup::new(),
            _ => Setup::new().replica("a", self.replicas[index].address),
        };
        self.nodes[index] = Some(self.cluster.start(index, setup).await);
    }

    async fn stop(&mut self, index: usize) {
        self.nodes[index].take().expect("a node that runs").stop().await;
    }

    fn node(&self, index: usize) -> &Node {
        self.nodes[index].as_ref().expect("a node that runs")
    }

    fn status(&self, index: usize) -> spillway_raft::Status {
        self.node(index).control_plane().expect("a part").status()
    }

    /// The index of the node that leads.
    async fn leader(&self) -> usize {
        let mut found = None;
        eventually("one leads", || {
            found = (0..EDGE).find(|at| {
                self.nodes[*at].is_some() && self.status(*at).role == spillway_raft::Role::Leader
            });
            found.is_some()
        })
        .await;
        found.expect("a leader")
    }

    /// Sends a message to node `to` on a stream of its own.
    async fn say<T: Wire>(&self, link: &Link, to: usize, said: (Purpose, T)) -> Option<Answer> {
        let from = NodeId(number(self.node(to), "n3").unwrap_or(4));
        self.say_as(from, link, to, said).await
    }

    async fn say_as<T: Wire>(
        &self,
        from: NodeId,
        link: &Link,
        to: usize,
        (purpose, it): (Purpose, T),
    ) -> Option<Answer> {
        let (status, name) = (self.status(to), format!("n{to}"));
        let (mut sender, mut receiver) = link.open_control(&name.as_str().into()).ok()?;
        let opening = Opening {
            cluster: status.cluster.map(u128::from),
            from,
            to: Some((status.node, Some(status.disk.into()))),
            purpose,
        };
        sender.message(&opening).await.ok()?;
        // An error means that the stream was ended from the other side.
        drop(sender.message(&it).await);
        sender.finish();
        receiver.message::<Answer>().await.ok()?
    }

    /// An order as an operator of the edge node would give it.
    fn minting(&self) -> Call {
        let key = Key {
            role: KeyRole::Admin,
            salt: [1; 16],
            hash: Hidden::new([2; 32]),
            tenant: None,
            models: [].into(),
            regions: [].into(),
            priority: 0,
            expires_ms: None,
            is_revoked: false,
        };
        let entry = Entry {
            stamp_ms: 1,
            proposer: Proposer { node: "n3".into(), region: "edge".into() },
            request: None,
            actor: Actor::Operator("root".to_owned()),
            command: Command::Put { item: Item::Key("mine".into(), key), expect: Expect::Any },
        };
        let command = entry.to_bytes().expect("an entry").to_vec();
        Call::Propose { command, limit_ms: 2_000 }
    }

    fn has_key(&self) -> bool {
        let nodes = self.nodes.iter().flatten();
        nodes.into_iter().any(|node| state(node).records().keys.get(&"mine".into()).is_some())
    }

    /// All that moves who leads.
    async fn usurp(&self, link: &Link, to: usize) {
        let status = self.status(to);
        let own = NodeId(4);
        for (node, ahead) in [(own, 1), (NodeId(9_999), 5_000), (own, u64::MAX - status.term)] {
            let ballot = Ballot { term: status.term + ahead, node, is_won: true };
            let (entries, news) = (Vec::new(), News::default());
            let append = Append { ballot, previous: None, committed: None, entries, news };
            self.say(link, to, (Purpose::Append, append)).await;
            let last = Some(Point { term: ballot.term, index: 1_000_000 });
            for is_transfer in [false, true] {
                let ballot = Ballot { is_won: false, ..ballot };
                let candidacy = || Candidacy { ballot, last, is_transfer };
                self.say(link, to, (Purpose::Call, Call::PreVote(candidacy()))).await;
                self.say(link, to, (Purpose::Call, Call::Vote(candidacy()))).await;
            }
            let from = Ballot { term: status.term, node: status.node, is_won: true };
            let call = Call::Transfer { from, to: own, last };
            self.say(link, to, (Purpose::Call, call)).await;
        }
        let after = self.status(to);
        assert_eq!((after.term, after.leader), (status.term, status.leader));
    }
}

/// Sends heartbeats in turn to two nodes, each in the term after theirs, as number `own`.
async fn keep_usurping(world: &World, link: &Link, targets: [usize; 2], own: NodeId) {
    loop {
        for to in targets {
            let term = world.status(to).term + 1;
            let ballot = Ballot { term, node: own, is_won: true };
            let (entries, news) = (Vec::new(), News::default());
            let append = Append { ballot, previous: None, committed: None, entries, news };
            world.say_as(own, link, to, (Purpose::Append, append)).await;
        }
        // wait: the pace of the attack.
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
}

async fn is_served(link: &Link, to: usize) -> bool {
    let mut head = ForwardHead::new(Method::GET, "/v1/models".parse().expect("a path"));
    (head.model, head.hop) = (Some("tiny".into()), 1);
    let name = format!("n{to}").as_str().into();
    let forwarding = link.forward(&name, head, Empty::<Bytes>::new(), PeerRoom::Unknown);
    let answer = tokio::time::timeout(Duration::from_secs(5), forwarding).await;
    matches!(answer, Ok(Ok(spillway_link::ForwardAnswer::Reply(_))))
}

/// Waits until the link has dialled again, more than once.
async fn has_tried(link: &Link) {
    let failed = || link.peers()[0].control_dials.failed;
    let before = failed();
    eventually("it has tried again", || failed() > before + 1).await;
}

fn is_connected(link: &Link) -> bool {
    link.peers().iter().any(|peer| peer.control.is_some() || peer.data.is_some())
}

#[tokio::test]
async fn an_edge_nodes_certificate_mints_no_key_and_moves_no_leader() {
    let mut world = World::started().await;
    // The edge node itself, as its admin listener would.
    let order =
        Command::SetRegionWeight { region: "one".into(), weight_permille: 1, expect: Expect::Any };
    let Outcome::Refused(refusal) = crate::world::order(world.node(EDGE), order).await else {
        panic!("an edge node gave an order")
    };
    assert_eq!(refusal.code, RefusalCode::NotPermitted);
    assert!(refusal.remedy.contains("n0, n1, n2"), "{refusal}");
    // An attacker with the certificate of `EDGE`.
    world.stop(EDGE).await;
    let leader = world.leader().await;
    let thief = world.cluster.bare_link(EDGE, leader).await;
    let answer = world.say(&thief, leader, (Purpose::Call, world.minting())).await;
    let Some(Answer::Proposed { outcome, .. }) = answer else { panic!("{answer:?}") };
    let outcome: Outcome = spillway_codec::decode(&outcome).expect("an outcome");
    assert!(matches!(&outcome, Outcome::Refused(it) if it.code == RefusalCode::NotPermitted));
    world.usurp(&thief, leader).await;
    assert!(!world.has_key());
    set_region(world.node(0), "one", RegionState::Draining).await;
}

#[tokio::test]
async fn a_removed_nodes_certificate_is_worth_nothing_at_once_and_after_restarts() {
    let mut world = World::started().await;
    world.stop(EDGE).await;
    let leader = world.leader().await;
    let thief = world.cluster.bare_link(EDGE, leader).await;
    let edge = number(world.node(0), "n3").expect("a number");
    remove(world.node(leader), RecordKey::Node(NodeId(edge))).await;
    // Before the connection is closed nothing is taken from it either.
    let answer = world.say(&thief, leader, (Purpose::Call, world.minting())).await;
    assert!(!matches!(answer, Some(Answer::Proposed { .. })), "{answer:?}");
    world.usurp(&thief, leader).await;
    eventually("it is disconnected", || !is_connected(&thief)).await;
    assert!(!is_served(&thief, leader).await && !world.has_key());
    assert!(state(world.node(leader)).is_removed(&"n3".into()));
    // The config of the node still names it.
    world.stop(leader).await;
    world.start(leader).await;
    has_tried(&thief).await;
    assert!(!is_connected(&thief) && !is_served(&thief, leader).await && !world.has_key());
    eventually("the node is back", || {
        members(world.node(leader)) == 3 && world.status(leader).leader.is_some()
    })
    .await;
}

#[tokio::test]
async fn a_revoked_certificate_is_refused_by_all_nodes_until_it_is_taken_back() {
    let mut world = World::started().await;
    world.stop(EDGE).await;
    let leader = world.leader().await;
    let thief = world.cluster.bare_link(EDGE, leader).await;
    let serial = CertificateSerial::from(world.cluster.serial(EDGE).as_str());
    let revoked = RevokedCertificate { reason: "stolen".to_owned() };
    put(world.node(leader), Item::RevokedCertificate(serial.clone(), revoked)).await;
    eventually("it is disconnected", || !is_connected(&thief)).await;
    world.stop(leader).await;
    world.start(leader).await;
    has_tried(&thief).await;
    assert!(!is_connected(&thief));
    let other = (leader + 1) % EDGE;
    remove(world.node(other), RecordKey::RevokedCertificate(serial)).await;
    eventually("it is accepted again", || is_connected(&thief)).await;
}

/// With the key of a voter, for the whole time: orders go on, and end its membership.
#[tokio::test]
async fn a_voters_certificate_takes_no_lead_and_is_shut_out_while_it_is_used() {
    let mut world = World::started().await;
    let leader = world.leader().await;
    let (victim, other) = ((leader + 1) % EDGE, (leader + 2) % EDGE);
    let own = NodeId(number(world.node(leader), &format!("n{victim}")).expect("a number"));
    let serial = CertificateSerial::from(world.cluster.serial(victim).as_str());
    world.stop(victim).await;
    let thief = world.cluster.bare_link_to(victim, &[leader, other]).await;
    let term = world.status(leader).term;
    let orders = async {
        for turn in 0..20 {
            let state = [RegionState::Draining, RegionState::Active][turn % 2];
            set_region(world.node([leader, other][turn % 2]), "one", state).await;
            // wait: so that the attack lasts for longer than a lease.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        remove(world.node(leader), RecordKey::Node(own)).await;
        let revoked = RevokedCertificate { reason: "stolen".to_owned() };
        put(world.node(other), Item::RevokedCertificate(serial.clone(), revoked)).await;
        eventually("it has no vote", || !world.status(leader).voters.contains(&own)).await;
    };
    tokio::select! {
        () = keep_usurping(&world, &thief, [leader, other], own) => {}
        () = orders => {}
    }
    let status = world.status(leader);
    assert_eq!((status.term, status.leader), (term, Some(status.node)));
    eventually("it is disconnected", || !is_connected(&thief)).await;
}

/// Without a quorum no order can be given. A revocation that the CA has signed takes effect all the
/// same, on every node that receives it, and is added to the log later.
#[tokio::test]
async fn the_authority_revokes_a_certificate_without_a_quorum() {
    let mut world = World::started().await;
    world.stop(1).await;
    world.stop(2).await;
    world.stop(EDGE).await;
    let thief = world.cluster.bare_link(1, 0).await;
    let serial = world.cluster.serial(1);
    // One node that starts with the file informs the others.
    world.cluster.revoke(EDGE, &serial);
    world.start(EDGE).await;
    eventually("it is disconnected", || !is_connected(&thief)).await;
    has_tried(&thief).await;
    assert!(!is_connected(&thief) && !is_served(&thief, 0).await);
    let serial = CertificateSerial::from(serial.as_str());
    assert!(state(world.node(0)).records().revoked_certificates.get(&serial).is_none());
    world.start(2).await;
    eventually("it is in the log", || {
        let is_recorded =
            |node: &Node| state(node).records().revoked_certificates.get(&serial).is_some();
        [0, 2, EDGE].into_iter().all(|at| is_recorded(world.node(at)))
    })
    .await;
    assert!(!is_connected(&thief));
}
