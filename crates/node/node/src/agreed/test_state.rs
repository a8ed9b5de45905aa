//! Agreed states for tests: a region `one` with the nodes `a` and `b`, another with `c`.

use spillway_cluster_state::{
    Actor, ClusterId, Command, DiskId, Entry, Expect, Fingerprint, Form, LeaseSource, NodeSpec,
    Observation, Outcome, Proposer, ReplicaId, ReplicaSpec, State, WIRE,
};

/// Returns a lease of that length.
pub(crate) fn lease(length_ms: u64) -> LeaseSource {
    LeaseSource::Lease { length_ms }
}

/// Returns the state of a formed cluster with one replica in `one`.
pub(crate) fn registered(replica: &str, source: Option<LeaseSource>) -> State {
    let node = |name: &str, region: &str| NodeSpec {
        name: name.into(),
        region: region.into(),
        address: "127.0.0.1:7946".to_owned(),
        disk: DiskId::from_bytes([name.as_bytes()[0]; 16]),
        fingerprint: Fingerprint([0; 32]),
        wire_oldest: 1,
        wire_newest: WIRE,
    };
    let mut state = State::new();
    let nodes = vec![node("a", "one"), node("b", "one"), node("c", "two")];
    agree(&mut state, "a", Command::Form(Form { cluster: ClusterId::from_bytes([1; 16]), nodes }));
    let mut spec = ReplicaSpec::new("http://127.0.0.1:8000", ["tiny".into()]);
    spec.source = source.unwrap_or(LeaseSource::Config);
    let id = ReplicaId::new("one".into(), replica.into());
    let register = Command::RegisterReplica { id, spec, incarnation: 0, expect: Expect::Any };
    agree(&mut state, "a", register);
    state
}

/// Applies a node's report on the replica.
pub(super) fn observe(state: &mut State, node: &str, observation: Observation) {
    let region = if node == "c" { "two" } else { "one" };
    let observations = vec![observation];
    let live = ["a".into(), "b".into()].into();
    let report = Command::ReportHealth { region: region.into(), live, observations };
    agree(state, node, report);
}

/// Applies an entry of the region `one` that only lets time pass.
pub(super) fn pass(state: &mut State, stamp_ms: u64) {
    apply(state, "a", Command::ExpireLeases { region: "one".into() }, stamp_ms);
}

/// Applies a node's command.
pub(super) fn agree(state: &mut State, node: &str, command: Command) {
    let stamp_ms = state.stamp_ms().max(1);
    apply(state, node, command, stamp_ms);
}

fn apply(state: &mut State, node: &str, command: Command, stamp_ms: u64) {
    let region = if node == "c" { "two" } else { "one" };
    let entry = Entry {
        stamp_ms,
        proposer: Proposer { node: node.into(), region: region.into() },
        request: None,
        actor: Actor::Node,
        command,
    };
    let effect = state.apply(state.applied() + 1, &entry);
    assert!(!matches!(effect.outcome, Outcome::Refused(_)), "{:?}", effect.outcome);
}
