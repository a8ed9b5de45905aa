//! A state with short helpers for tests.

use std::collections::BTreeSet;

use spillway_rate_limit::{Run, Scope, ShareLine, Statement, Units};

use crate::{
    Actor, Belief, Change, ClusterId, Command, CommandError, DiskId, Effect, Entry, Expect,
    Fingerprint, Form, Health, Hidden, HotBlock, HotDelta, Item, JoinText, LeaseRenewal,
    LeaseSource, NodeId, NodeSpec, Observation, Outcome, Proposer, RecordKey, RefusalCode, Replica,
    ReplicaId, ReplicaSpec, RequestId, State, TokenTerms, WIRE,
};

pub(crate) const START_MS: u64 = 1_800_000_000_000;
pub(crate) const CLUSTER: ClusterId = ClusterId::from_bytes([7; 16]);

/// A state, with the index of the last entry and the time.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) now_ms: u64,
    /// The last entry's index.
    pub(crate) index: u64,
    /// The changes of the last entry.
    pub(crate) changes: Vec<Change>,
}

impl World {
    /// Returns a world before the first entry.
    pub(crate) fn empty() -> Self {
        Self { state: State::new(), now_ms: START_MS, index: 0, changes: Vec::new() }
    }

    /// Returns a formed cluster with this number of nodes in each region: `a1` and `a2` in region
    /// `a`, and so on.
    pub(crate) fn of(regions: &[(&str, usize)]) -> Self {
        Self::of_wire(WIRE, regions)
    }

    /// Returns a formed cluster of nodes whose newest wire version is `wire_newest`.
    pub(crate) fn of_wire(wire_newest: u16, regions: &[(&str, usize)]) -> Self {
        let mut world = Self::empty();
        let names = regions.iter().flat_map(|(region, count)| {
            (1..=*count).map(move |n| (format!("{region}{n}"), *region))
        });
        let node = |(name, region): (String, &str)| node_spec_of(wire_newest, &name, region);
        let nodes = names.map(node).collect();
        world.applied("a1", Command::Form(Form { cluster: CLUSTER, nodes }));
        world
    }

    /// Returns an entry of the node `by` on its own account. The first letter of a node's name is
    /// its region.
    pub(crate) fn by_node(&self, by: &str, command: Command) -> Entry {
        let region = by[..1].into();
        Entry {
            stamp_ms: self.now_ms,
            proposer: Proposer { node: by.into(), region },
            request: None,
            actor: Actor::Node,
            command,
        }
    }

    /// Returns an entry of an operator through node `a1`.
    pub(crate) fn by_operator(&self, command: Command) -> Entry {
        Entry { actor: Actor::Operator("ada".to_owned()), ..self.by_node("a1", command) }
    }

    /// Returns an entry of an operator with a request id.
    pub(crate) fn by_request(&self, request: u8, command: Command) -> Entry {
        Entry { request: Some(RequestId([request; 16])), ..self.by_operator(command) }
    }

    pub(crate) fn apply(&mut self, entry: &Entry) -> Outcome {
        self.index += 1;
        let Effect { outcome, changes } = self.state.apply(self.index, entry);
        self.changes = changes;
        outcome
    }

    /// Applies a command of the node `by`, which must be carried out.
    #[track_caller]
    pub(crate) fn applied(&mut self, by: &str, command: Command) {
        let outcome = self.apply(&self.by_node(by, command));
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    }

    /// Applies a command of an operator, which must be carried out, and returns its version.
    #[track_caller]
    pub(crate) fn done(&mut self, command: Command) -> u64 {
        match self.apply(&self.by_operator(command)) {
            Outcome::Applied { version, skipped: 0 } => version,
            other => panic!("{other:?}"),
        }
    }

    /// Applies a command of the node `by`, which must be refused.
    #[track_caller]
    pub(crate) fn refused(&mut self, by: &str, command: Command) -> RefusalCode {
        refusal(self.apply(&self.by_node(by, command))).code
    }

    /// Applies a command of an operator, which must be refused.
    #[track_caller]
    pub(crate) fn denied(&mut self, command: Command) -> RefusalCode {
        refusal(self.apply(&self.by_operator(command))).code
    }

    /// Registers a replica by the first node of its region, and returns its epoch.
    #[track_caller]
    pub(crate) fn register(&mut self, id: &str, source: LeaseSource, incarnation: u64) -> u64 {
        let command = register(id, source, incarnation);
        let by = format!("{}1", &id[..1]);
        self.apply(&self.by_node(&by, command));
        self.replica(id).epoch
    }

    #[track_caller]
    pub(crate) fn replica(&self, id: &str) -> Replica {
        self.state.records().replicas.get(&replica_id(id)).unwrap().clone()
    }

    pub(crate) fn health(&self, id: &str) -> Option<&Health> {
        self.state.records().health.get(&replica_id(id))
    }

    /// Reports the view `seen` of node `by` on replica `id`, and returns the cluster's belief.
    pub(crate) fn see(&mut self, by: &str, live: &[&str], id: &str, seen: (Belief, u8)) -> Belief {
        let epoch = self.replica(id).epoch;
        let command = report(live, &[(id, epoch, seen)]);
        let outcome = self.apply(&self.by_node(by, command));
        assert!(matches!(outcome, Outcome::Applied { skipped: 0, .. }), "{outcome:?}");
        self.health(id).unwrap().belief
    }

    pub(crate) fn node_id(&self, name: &str) -> NodeId {
        self.state.node(&name.into()).unwrap().0
    }

    /// Lets time pass, with an entry of region `a` each second so that its clock goes along.
    pub(crate) fn pass(&mut self, wait_ms: u64) {
        let end_ms = self.now_ms + wait_ms;
        while self.now_ms < end_ms {
            self.now_ms = (self.now_ms + 1000).min(end_ms);
            let command = Command::RenewLeases { region: "a".into(), leases: Vec::new() };
            self.apply(&self.by_node("a1", command));
        }
    }
}

#[track_caller]
pub(crate) fn refusal(outcome: Outcome) -> CommandError {
    match outcome {
        Outcome::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

/// Returns the spec of a node whose disk id is made of its name.
pub(crate) fn node_spec(name: &str, region: &str) -> NodeSpec {
    node_spec_of(WIRE, name, region)
}

pub(crate) fn node_spec_of(wire_newest: u16, name: &str, region: &str) -> NodeSpec {
    let mut disk = [0; 16];
    name.bytes().zip(&mut disk).for_each(|(byte, place)| *place = byte);
    NodeSpec {
        name: name.into(),
        region: region.into(),
        address: format!("{name}.example:7443"),
        disk: DiskId::from_bytes(disk),
        fingerprint: Fingerprint([9; 32]),
        wire_oldest: 1,
        wire_newest,
    }
}

/// Returns the text of a join token with the id `t`.
pub(crate) fn token_text(secret: u8) -> String {
    format!("swj_t_{}", format!("{secret:02x}").repeat(32))
}

/// Returns the public key of the token with this secret.
pub(crate) fn token_key(secret: u8) -> Hidden {
    JoinText::read(&token_text(secret)).unwrap().public_key()
}

/// Returns terms of a token with this secret for any region, good for a minute.
pub(crate) fn token_terms(secret: u8, uses: u32) -> TokenTerms {
    let key = token_key(secret);
    TokenTerms { key, region: None, valid_ms: 60_000, uses, is_operator: false }
}

/// Returns a node's command to join by the token with this secret.
pub(crate) fn join_by(node: NodeSpec, secret: u8) -> Command {
    join_to(CLUSTER, node, secret)
}

/// Returns a node's command to join another cluster by the token with this secret.
pub(crate) fn join_to(cluster: ClusterId, node: NodeSpec, secret: u8) -> Command {
    let token = JoinText::read(&token_text(secret)).unwrap().sign(cluster, &node);
    Command::JoinNode { node, token }
}

/// Reads a replica's id such as `a/r1`.
pub(crate) fn replica_id(id: &str) -> ReplicaId {
    let (region, name) = id.split_once('/').unwrap();
    ReplicaId::new(region.into(), name.into())
}

pub(crate) fn replica_spec(source: LeaseSource) -> ReplicaSpec {
    ReplicaSpec { source, ..ReplicaSpec::new("http://10.0.0.1:8000", ["m".into()]) }
}

pub(crate) fn register(id: &str, source: LeaseSource, incarnation: u64) -> Command {
    let (id, spec) = (replica_id(id), replica_spec(source));
    Command::RegisterReplica { id, spec, incarnation, expect: Expect::Any }
}

/// Returns a report on replicas of the first one's region: id, epoch, and the node's view.
pub(crate) fn report(live: &[&str], seen: &[(&str, u64, (Belief, u8))]) -> Command {
    let observations = seen.iter().map(|(id, epoch, (belief, signals))| Observation {
        replica: replica_id(id).name,
        epoch: *epoch,
        belief: *belief,
        signals: *signals,
    });
    let live: BTreeSet<_> = live.iter().map(|name| (*name).into()).collect();
    let region = replica_id(seen[0].0).region;
    Command::ReportHealth { region, live, observations: observations.collect() }
}

pub(crate) fn renew(id: &str, epoch: u64) -> Command {
    let ReplicaId { region, name } = replica_id(id);
    Command::RenewLeases { region, leases: vec![LeaseRenewal { name, epoch }] }
}

/// Returns a report of first blocks of prompts that became hot, hashed with key `key_epoch`.
pub(crate) fn hot(region: &str, key_epoch: u64, hashes: &[u64]) -> Command {
    let enter = hashes.iter().map(|hash| HotBlock { hash: *hash, parent: 0, depth: 1, heat: 140 });
    let delta = HotDelta { enter: enter.collect(), leave: Vec::new() };
    Command::HotBlocks { region: region.into(), key_epoch, delta }
}

/// Returns a statement of a node's process with its needs of keys' limits.
pub(crate) fn shares(node: &str, serial: u64, needs: &[(&str, [u64; 3])]) -> Command {
    let line = |(key, need): &(&str, [u64; 3])| ShareLine {
        scope: Scope::Key((*key).to_owned()),
        floor: Units([u64::MAX; 3]),
        lease: Units([u64::MAX; 3]),
        need: Units(*need),
    };
    let said = Statement {
        run: Run { node: node.into(), incarnation: 1 },
        serial,
        length_ms: 30_000,
        lines: needs.iter().map(line).collect(),
        overdue: Vec::new(),
        is_last: false,
    };
    Command::LeaseShares { region: node[..1].into(), said }
}

pub(crate) fn put(item: Item) -> Command {
    Command::Put { item, expect: Expect::Any }
}

pub(crate) fn setting(name: &str, value: &str) -> Command {
    put(Item::Setting(name.to_owned(), value.to_owned()))
}

pub(crate) fn remove(key: RecordKey) -> Command {
    Command::Remove { key, expect: Expect::Any }
}
