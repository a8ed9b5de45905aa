//! Tests of whole clusters on loopback: real links, real logs, real disks.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spillway_cluster_state::{
    Actor, Command, Expect, Fingerprint, Outcome, RecordKey, RefusalCode, RegionState, RequestId,
    State,
};
use spillway_link::{Identity, Link};
use spillway_raft::{Consistency, ProposeError, RaftStartError, Role, Seed, Urgency};
use spillway_testkit::{Certificates, PATIENCE, eventually, identity, introduce, retried};

use crate::{ControlPlane, ControlPlaneConfig};

const LIMIT: Duration = Duration::from_secs(60);

/// A cluster of nodes with names `a`, `b` … and a region each.
pub(crate) struct World {
    pub(crate) certificates: Certificates,
    seeds: Vec<Seed>,
    pub(crate) nodes: Vec<Option<Node>>,
}

pub(crate) struct Node {
    pub(crate) link: Arc<Link>,
    control_plane: Arc<ControlPlane>,
}

impl World {
    pub(crate) fn new(nodes: usize) -> Self {
        let name = |number: usize| char::from(b'a' + number as u8).to_string();
        let seeds = (0..nodes).map(|number| Seed {
            name: name(number).as_str().into(),
            region: format!("region-{}", name(number)).as_str().into(),
        });
        Self {
            certificates: Certificates::new(),
            seeds: seeds.collect(),
            nodes: (0..nodes).map(|_| None).collect(),
        }
    }

    pub(crate) async fn started(nodes: usize) -> Self {
        let mut world = Self::new(nodes);
        for at in 0..nodes {
            world.start(at).await;
        }
        world
    }

    pub(crate) fn identity(&self, at: usize) -> Identity {
        let seed = &self.seeds[at];
        identity(seed.region.as_str(), seed.name.as_str())
    }

    pub(crate) fn data(&self, at: usize) -> PathBuf {
        self.certificates.folder().join(format!("data-{}", self.seeds[at].name))
    }

    pub(crate) async fn start(&mut self, at: usize) {
        self.try_start(at).await.unwrap();
    }

    pub(crate) async fn try_start(&mut self, at: usize) -> Result<(), RaftStartError> {
        let me = self.identity(at);
        let (region, name) = (me.region().clone(), me.node().clone());
        let link = self.certificates.start_link(region.as_str(), name.as_str());
        let config = ControlPlaneConfig {
            name,
            region,
            advertise: link.local_address().unwrap().to_string(),
            fingerprint: Fingerprint([at as u8; 32]),
            folder: self.data(at),
            seeds: self.seeds.clone(),
            join_token: None,
            is_operator: true,
            rtt_max: Duration::from_millis(20),
            watch: Default::default(),
        };
        let control_plane = ControlPlane::start(config, Arc::clone(&link)).await?;
        self.nodes[at] = Some(Node { link, control_plane });
        self.introduce();
        Ok(())
    }

    /// Gives every link the addresses of all running nodes.
    fn introduce(&self) {
        let running =
            self.nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node.as_ref()?)));
        let links: Vec<_> = running.map(|(at, node)| (self.identity(at), &*node.link)).collect();
        introduce(&links);
    }

    pub(crate) async fn stop(&mut self, at: usize) {
        let node = self.nodes[at].take().unwrap();
        node.control_plane.shutdown().await;
        drop(node.control_plane);
        node.link.shutdown(Duration::from_secs(1)).await;
    }

    pub(crate) fn control_plane(&self, at: usize) -> &Arc<ControlPlane> {
        &self.nodes[at].as_ref().unwrap().control_plane
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Arc<ControlPlane>> {
        self.nodes.iter().flatten().map(|node| &node.control_plane)
    }

    /// Returns the position of the node that reports itself as leader.
    fn leader(&self) -> Option<usize> {
        let leads = |node: &Option<Node>| {
            node.as_ref().is_some_and(|node| node.control_plane.status().role == Role::Leader)
        };
        self.nodes.iter().position(leads)
    }

    /// Waits until all running nodes know all nodes with their addresses.
    pub(crate) async fn settled(&self) {
        let expected = self.seeds.len();
        eventually("all nodes are known everywhere", || {
            self.running().all(|control_plane| {
                let state = control_plane.published();
                let known = state.records().nodes.iter();
                let known = known.filter(|(_, node)| node.spec.fingerprint != Fingerprint([9; 32]));
                known.count() == expected && control_plane.leader().is_some()
            })
        })
        .await;
        let own = |control_plane: &Arc<ControlPlane>| {
            let state = control_plane.published();
            let name = &control_plane.config.name;
            state
                .node(name)
                .is_some_and(|(_, node)| node.spec.address == control_plane.config.advertise)
        };
        eventually("all addresses are right", || self.running().all(own)).await;
    }
}

fn weight(region: &str, weight_permille: u16) -> Command {
    Command::SetRegionWeight { region: region.into(), weight_permille, expect: Expect::Any }
}

/// Source of request ids.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

pub(crate) async fn agreed(control_plane: &ControlPlane, command: Command) -> Outcome {
    // A repeated request id is carried out once.
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    agreed_as(control_plane, &command, Some(RequestId(u128::from(number).to_le_bytes()))).await
}

/// Gives an operator's order under this id.
pub(crate) async fn agreed_as(
    control_plane: &ControlPlane,
    command: &Command,
    request: Option<RequestId>,
) -> Outcome {
    let operator = Actor::Operator("ada".to_owned());
    // A busy machine may have lost its leader.
    let done = retried(ProposeError::is_transient, || {
        control_plane.propose(command.clone(), operator.clone(), request, PATIENCE)
    });
    done.await.unwrap().outcome
}

fn weight_of(state: &State, region: &str) -> Option<u16> {
    let region = state.records().regions.get(&region.into())?;
    Some(region.weight_permille)
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_form_one_cluster_and_agree() {
    let world = World::started(3).await;
    world.settled().await;
    let clusters: Vec<_> = world.running().map(|node| node.published().cluster()).collect();
    assert!(clusters[0].is_some() && clusters.iter().all(|cluster| *cluster == clusters[0]));
    // Every node takes proposals.
    for (at, weight_permille) in [(0, 100), (1, 200), (2, 300)] {
        let done = agreed(world.control_plane(at), weight("region-b", weight_permille)).await;
        assert!(matches!(done, Outcome::Applied { skipped: 0, .. }), "{done:?}");
        eventually("it is everywhere", || {
            world
                .running()
                .all(|node| weight_of(&node.published(), "region-b") == Some(weight_permille))
        })
        .await;
    }
    eventually("the digests are equal", || {
        let digests: Vec<_> = world.running().map(|node| node.digest()).collect();
        digests.iter().all(|digest| *digest == digests[0])
    })
    .await;
    eventually("a voter for each region", || {
        world.running().all(|node| node.status().voters.len() == 3)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_agreed_outlives_all_processes() {
    let mut world = World::started(3).await;
    world.settled().await;
    agreed(world.control_plane(0), weight("region-c", 250)).await;
    let cluster = world.control_plane(0).published().cluster();
    for at in 0..3 {
        world.stop(at).await;
    }
    for at in 0..3 {
        world.start(at).await;
    }
    world.settled().await;
    eventually("it is known again", || {
        world.running().all(|node| {
            let state = node.published();
            state.cluster() == cluster && weight_of(&state, "region-c") == Some(250)
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_is_carried_out_once_and_watchers_are_told_once() {
    let world = World::started(1).await;
    world.settled().await;
    let node = world.control_plane(0);
    let operator = || Actor::Operator("ada".to_owned());
    let before = node.published().applied();
    let drain =
        |state| Command::SetRegionState { region: "region-a".into(), state, expect: Expect::Any };
    let request = Some(RequestId([7; 16]));
    let first = node.propose(drain(RegionState::Draining), operator(), request, LIMIT).await;
    let again = node.propose(drain(RegionState::Draining), operator(), request, LIMIT).await;
    assert_eq!(first.unwrap().outcome, again.unwrap().outcome);
    let other = node.propose(drain(RegionState::Active), operator(), request, LIMIT).await;
    let Outcome::Refused(refusal) = other.unwrap().outcome else { panic!("carried out") };
    assert_eq!(refusal.code, RefusalCode::RequestIdReused);
    let changes = node.changes_after(before).unwrap();
    let keys: Vec<_> = changes.iter().map(|changed| &changed.change.key).collect();
    assert_eq!(keys, [&RecordKey::Region("region-a".into())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_reads_are_stale_and_writes_refused_at_once() {
    let mut world = World::started(3).await;
    world.settled().await;
    let leader = world.leader().unwrap();
    for at in (0..3).filter(|at| *at != leader) {
        let node = world.nodes[at].take().unwrap();
        // Killed, not stopped: no node hands anything over.
        node.link.shutdown(Duration::ZERO).await;
        drop(node);
    }
    let node = world.control_plane(leader);
    eventually("it knows that it is alone", || node.status().role == Role::IsolatedLeader).await;
    let begin = Instant::now();
    let refused =
        node.propose(weight("region-a", 5), Actor::Operator("ada".into()), None, LIMIT).await;
    assert!(
        matches!(refused, Err(ProposeError::NoQuorum { .. } | ProposeError::Unknown)),
        "{refused:?}"
    );
    assert!(begin.elapsed() < PATIENCE / 4, "{:?}", begin.elapsed());
    let fresh = node.read(Consistency::Linearizable, LIMIT, State::applied).await;
    assert!(fresh.is_err(), "{fresh:?}");
    let stale = node.read(Consistency::Stale, LIMIT, |state| weight_of(state, "region-a")).await;
    let stale = stale.unwrap();
    assert_eq!(stale.value, Some(1_000));
    assert!(stale.age.unwrap() > Duration::from_millis(200), "{stale:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_proposes_in_another_nodes_name() {
    let world = World::started(3).await;
    world.settled().await;
    let leader = world.leader().unwrap();
    let follower = world.control_plane((leader + 1) % 3);
    let mut entry = follower.entry(weight("region-a", 7), Actor::Node, None);
    entry.proposer.node = world.seeds[leader].name.clone();
    entry.proposer.region = world.seeds[leader].region.clone();
    let refused = follower.log().unwrap().propose(&entry, Urgency::Operator, LIMIT).await;
    assert!(matches!(refused, Err(ProposeError::Malformed(_))), "{refused:?}");
    assert_eq!(weight_of(&world.control_plane(leader).published(), "region-a"), Some(1_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_would_change_and_changes_nothing() {
    let world = World::started(1).await;
    world.settled().await;
    let node = world.control_plane(0);
    let digest = node.digest();
    let diff = node.dry_run(&weight("region-a", 10), Actor::Operator("ada".into())).unwrap();
    assert_eq!(diff.len(), 1);
    assert_eq!(node.digest(), digest);
    assert!(node.dry_run(&weight("nowhere", 10), Actor::Operator("ada".into())).is_err());
}
