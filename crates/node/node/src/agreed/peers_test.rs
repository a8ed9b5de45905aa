//! Choice of the link's peers.

use spillway_cluster_state::{
    Actor, Command, Entry, Expect, Form, NodeSpec, Outcome, Proposer, RecordKey, WIRE,
};

use super::*;

fn status(voters: &[u64], members: &[(u64, &str)], leader: u64) -> Status {
    let member = |(id, name): &(u64, &str)| {
        let disk = spillway_raft::DiskId(u128::from(*id));
        (NodeId(*id), Member { name: (*name).into(), region: "r".into(), disk })
    };
    Status {
        voters: voters.iter().map(|id| NodeId(*id)).collect(),
        members: members.iter().map(member).collect(),
        leader: Some(NodeId(leader)),
        ..Status::outside(spillway_raft::DiskId(0))
    }
}

#[test]
fn a_removed_node_is_needed_only_as_leader_or_for_a_majority() {
    let three = [(1, "a"), (2, "b"), (3, "c")];
    let gone: BTreeSet<NodeName> = ["c".into()].into();
    assert!(needed(&status(&[1, 2, 3], &three, 1), &gone).is_empty());
    assert_eq!(needed(&status(&[1, 2, 3], &three, 3), &gone), gone);
    assert_eq!(needed(&status(&[1, 3], &three, 1), &gone), gone);
    assert!(needed(&status(&[1, 2], &three, 1), &gone).is_empty());
}

/// Returns the state of a cluster of `a`, `b` and `c` that has removed `c`.
fn state() -> State {
    let spec = |name: &&str| NodeSpec {
        name: (*name).into(),
        region: "r".into(),
        address: format!("{name}.agreed:1"),
        disk: u128::from(name.as_bytes()[0]).into(),
        fingerprint: spillway_cluster_state::Fingerprint([name.as_bytes()[0]; 32]),
        wire_oldest: 1,
        wire_newest: WIRE,
    };
    let nodes = ["a", "b", "c"].iter().map(spec).collect();
    let mut state = State::new();
    let mut apply = |index, command| {
        let entry = Entry {
            stamp_ms: 1_800_000_000_000,
            proposer: Proposer { node: "a".into(), region: "r".into() },
            request: None,
            actor: Actor::Operator("ada".to_owned()),
            command,
        };
        let outcome = state.apply(index, &entry).outcome;
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    };
    apply(1, Command::Form(Form { cluster: 7_u128.into(), nodes }));
    apply(2, Command::DeclareOperators { is_operator: true });
    apply(3, Command::EnforceMembership);
    let key = RecordKey::Node(NodeId(3));
    apply(4, Command::Remove { key, expect: Expect::Any });
    state
}

fn config(peers: &[(&str, &str)]) -> ClusterConfig {
    let peer = |(name, region): &(&str, &str)| spillway_config::PeerConfig {
        name: (*name).into(),
        region: (*region).into(),
        address: "127.0.0.1:7".parse().unwrap(),
    };
    ClusterConfig {
        id: "test".to_owned(),
        has_replicas: true,
        address: "127.0.0.1:0".parse().unwrap(),
        ca: "ca".into(),
        certificate: "certificate".into(),
        key: "key".into(),
        prefix_key: "prefix".into(),
        advertise: "a.agreed:1".to_owned(),
        data: None,
        join_token_file: None,
        revoked: None,
        silence: Duration::ZERO,
        ramp: Duration::ZERO,
        peers: peers.iter().map(peer).collect(),
        regions: Vec::new(),
        paths: None,
    }
}

fn identity(name: &str) -> Identity {
    Identity::new("test", "r", name).unwrap()
}

fn connected(name: &str) -> PeerStatus {
    PeerStatus {
        identity: identity(name),
        address: format!("{name}.connected:1"),
        control: None,
        data: None,
        control_lost_for: None,
        control_dials: Default::default(),
        data_dials: Default::default(),
    }
}

/// Returns the peers of `a` as `name@address`.
fn found(status: &Status, told: PeerSources<'_>, config: &ClusterConfig) -> Vec<String> {
    let peers = peers(&state(), status, told, config, &"a".into()).unwrap();
    peers.iter().map(|peer| format!("{}@{}", peer.identity, peer.address)).collect()
}

#[test]
fn a_config_makes_nobody_a_peer_and_moves_nobody_to_another_region() {
    let (status, none) = (status(&[1, 2], &[(1, "a"), (2, "b")], 1), BTreeSet::new());
    for is_fresh in [true, false] {
        let told = || PeerSources { met: &[], connected: &[], leaving: &none, is_fresh };
        assert_eq!(found(&status, told(), &config(&[])), ["test/r/b@b.agreed:1"]);
        let all = config(&[("a", "r"), ("b", "elsewhere"), ("c", "r"), ("z", "r")]);
        assert_eq!(found(&status, told(), &all), ["test/r/b@127.0.0.1:7"]);
    }
}

#[test]
fn a_removed_node_is_no_peer_whoever_still_names_it() {
    let status = status(&[1, 2, 3], &[(1, "a"), (2, "b"), (3, "c"), (4, "d")], 1);
    let peer = |name| PeerConfig {
        identity: identity(name),
        address: format!("{name}.met:1"),
        rtt_ms: None,
    };
    let (met, all) = ([peer("c"), peer("e")], ["b", "c", "d"].map(connected));
    let (none, c) = (BTreeSet::new(), BTreeSet::from(["c".into()]));
    let told = |leaving, is_fresh| PeerSources { met: &met, connected: &all, leaving, is_fresh };
    let (b, d) = ("test/r/b@b.agreed:1", "test/r/d@d.connected:1");
    let e = "test/r/e@e.met:1";
    assert_eq!(found(&status, told(&none, false), &config(&[])), [b, d, e]);
    // A node that is up to date knows all members.
    assert_eq!(found(&status, told(&none, true), &config(&[])), [b, e]);
    let leaving = "test/r/c@c.connected:1";
    assert_eq!(found(&status, told(&c, true), &config(&[])), [b, leaving, e]);
}
