//! The agreed state as the state machine of the log.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use spillway_cluster_state::{Command, CommandError, Entry, Outcome, RefusalCode, State};
use spillway_raft::{Machine, MachineError};
use spillway_types::{NodeName, RegionName};

use crate::changes::History;
use crate::hints::Hints;

/// The agreed state, with the history of its changes.
#[derive(Debug)]
pub(crate) struct StateMachine {
    state: State,
    history: Arc<Mutex<History>>,
    hints: Arc<Hints>,
    /// The only member of the log; `None` if there are several.
    alone: Option<NodeName>,
}

impl StateMachine {
    pub(crate) fn new(history: Arc<Mutex<History>>, hints: Arc<Hints>) -> Self {
        Self { state: State::new(), history, hints, alone: None }
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Refuses a `ReplaceCluster`, once membership is enforced, from any node but the only member
    /// of the log: it would retire all other members. Returns `None` if the entry may be applied.
    fn check_founder(&self, entry: &Entry) -> Option<Outcome> {
        let is_anew = matches!(entry.command, Command::ReplaceCluster { .. });
        if !is_anew
            || !self.state.is_enforced()
            || self.alone.as_ref() == Some(&entry.proposer.node)
        {
            return None;
        }
        Some(Outcome::Refused(CommandError {
            code: RefusalCode::NotPermitted,
            cause: "the cluster has other members".to_owned(),
            remedy: "create a new cluster with `spillway force-new-cluster` or `spillway restore`"
                .to_owned(),
        }))
    }
}

impl Machine for StateMachine {
    type Command = Entry;
    type Outcome = Outcome;

    fn apply(&mut self, index: u64, entry: &Entry) -> Outcome {
        if let Some(refused) = self.check_founder(entry) {
            return refused;
        }
        let effect = self.state.apply(index, entry);
        if entry.command.is_hint() {
            let bytes = entry.to_bytes().map_or(0, |bytes| bytes.len() as u64);
            self.hints.applied(self.state.stamp_ms(), bytes);
        }
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.add(index, self.state.stamp_ms(), effect.changes);
        effect.outcome
    }

    fn proposer(entry: &Entry) -> Option<(&NodeName, &RegionName)> {
        Some((&entry.proposer.node, &entry.proposer.region))
    }

    fn is_removed(&self, name: &NodeName) -> bool {
        self.state.is_removed(name)
    }

    fn members(&mut self, names: &[NodeName]) {
        self.alone = match names {
            [only] => Some(only.clone()),
            _ => None,
        };
    }

    fn snapshot(&self) -> Result<Bytes, MachineError> {
        self.state.to_snapshot().map_err(|error| MachineError(error.to_string()))
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), MachineError> {
        self.state =
            State::from_snapshot(snapshot).map_err(|error| MachineError(error.to_string()))?;
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        // The snapshot does not have the changes that led to it.
        history.restart(self.state.applied());
        Ok(())
    }

    fn digest(&self) -> u128 {
        self.state.facts_digest().to_u128()
    }
}

#[cfg(test)]
mod tests {
    use spillway_cluster_state::{
        Actor, ClusterId, DiskId, Expect, Fingerprint, Form, NodeId, NodeSpec, Proposer, RecordKey,
        WIRE,
    };

    use super::*;

    const OLD: ClusterId = ClusterId::from_bytes([1; 16]);
    const NEW: ClusterId = ClusterId::from_bytes([2; 16]);

    fn apply(machine: &mut StateMachine, index: u64, by: &str, command: Command) -> Outcome {
        let proposer = Proposer { node: by.into(), region: "r".into() };
        let actor = match command {
            Command::Remove { .. } => Actor::Operator("ada".to_owned()),
            _ => Actor::Node,
        };
        let entry = Entry { stamp_ms: 1_800_000_000_000, proposer, request: None, actor, command };
        machine.apply(index, &entry)
    }

    /// Makes the state of a cluster of `a` and `b`, which enforces membership.
    fn enforced() -> StateMachine {
        let mut machine = StateMachine::new(Arc::default(), Arc::default());
        let spec = |name: &str| NodeSpec {
            name: name.into(),
            region: "r".into(),
            address: format!("{name}.example:1"),
            disk: DiskId::from_bytes([name.as_bytes()[0]; 16]),
            fingerprint: Fingerprint([name.as_bytes()[0]; 32]),
            wire_oldest: 1,
            wire_newest: WIRE,
        };
        let nodes = ["a", "b"].map(spec).into();
        let declare = || Command::DeclareOperators { is_operator: true };
        let commands = [
            ("a", Command::Form(Form { cluster: OLD, nodes })),
            ("a", declare()),
            ("b", declare()),
            ("a", Command::EnforceMembership),
        ];
        for (index, (by, command)) in (1..).zip(commands) {
            let outcome = apply(&mut machine, index, by, command);
            assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
        }
        machine
    }

    #[test]
    fn only_the_one_member_that_is_left_makes_a_cluster_anew() {
        let mut machine = enforced();
        let anew = || Command::ReplaceCluster { from: OLD, to: NEW };
        let histories: [&[&[&str]]; 4] = [&[], &[&["a", "b"]], &[&["b"]], &[&["a"], &["a", "b"]]];
        for (index, members) in (5..).zip(histories) {
            for names in members {
                machine.members(&names.iter().map(|name| (*name).into()).collect::<Vec<_>>());
            }
            let outcome = apply(&mut machine, index, "a", anew());
            let Outcome::Refused(refusal) = outcome else { panic!("{members:?}: {outcome:?}") };
            assert_eq!(refusal.code, RefusalCode::NotPermitted);
            assert_eq!(machine.state().cluster(), Some(OLD));
        }
        machine.members(&["a".into()]);
        let outcome = apply(&mut machine, 9, "a", anew());
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    }

    #[test]
    fn the_log_is_told_who_was_removed() {
        let mut machine = enforced();
        assert!(!machine.is_removed(&"b".into()) && !machine.is_removed(&"z".into()));
        let key = RecordKey::Node(NodeId(2));
        apply(&mut machine, 5, "a", Command::Remove { key, expect: Expect::Any });
        assert!(machine.is_removed(&"b".into()) && !machine.is_removed(&"a".into()));
    }
}
