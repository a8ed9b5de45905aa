//! Audit trails of operators and nodes.

use serde::{Deserialize, Serialize};
use spillway_types::NodeName;

use crate::limits::{OPERATOR_AUDIT_MAX, SYSTEM_AUDIT_MAX};
use crate::state::table::Table;
use crate::{Actor, Digest, Entry, Outcome};

/// Audit records by index of their entry, oldest first.
pub type AuditRing = Table<u64, AuditRecord>;

/// Most bytes of a text in an audit record: a refused command may have names of any length.
const WHAT_BYTES_MAX: usize = 256;

/// Record of one command that was carried out or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Time of the entry, milliseconds since 1970.
    pub stamp_ms: u64,
    /// The operator or node in whose name the command was proposed.
    pub actor: Actor,
    /// The node that proposed the command.
    pub node: NodeName,
    /// The command in words, without secrets.
    pub what: String,
    /// Outcome of the command.
    pub outcome: Outcome,
}

/// Both audit trails. Nodes have their own, so that their records can't push out the operators'.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Audit {
    pub(crate) operators: AuditRing,
    pub(crate) system: AuditRing,
}

impl Audit {
    /// Records the outcome of an entry. Commands of operators are always recorded; commands of
    /// nodes, unless the outcome is [`Outcome::Unchanged`]; routine commands, only if watchers see
    /// a change.
    pub(crate) fn record(
        &mut self,
        index: u64,
        stamp_ms: u64,
        entry: &Entry,
        seen: AuditedEffect<'_>,
    ) {
        let (ring, max, is_due) = match &entry.actor {
            Actor::Operator(_) => (&mut self.operators, OPERATOR_AUDIT_MAX, true),
            Actor::Node => {
                let is_news = !matches!(seen.outcome, Outcome::Unchanged);
                let is_due = if entry.command.is_routine() { seen.is_change } else { is_news };
                (&mut self.system, SYSTEM_AUDIT_MAX, is_due)
            }
        };
        if is_due {
            write(ring, max, (index, stamp_ms), entry, seen.outcome);
        }
    }

    /// Records a refused order of a node without the right, in the nodes' trail: without the right,
    /// the order counts as no operator's.
    pub(crate) fn record_refused(
        &mut self,
        index: u64,
        stamp_ms: u64,
        entry: &Entry,
        outcome: &Outcome,
    ) {
        // Nodes repeat routine commands: their refusals would push all other records out.
        if !entry.command.is_routine() {
            write(&mut self.system, SYSTEM_AUDIT_MAX, (index, stamp_ms), entry, outcome);
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.operators.bytes() + self.system.bytes()
    }

    pub(crate) fn digests(&self) -> [Digest; 2] {
        [self.operators.digest(), self.system.digest()]
    }
}

fn write(
    ring: &mut AuditRing,
    max: usize,
    (index, stamp_ms): (u64, u64),
    entry: &Entry,
    outcome: &Outcome,
) {
    let record = AuditRecord {
        stamp_ms,
        actor: cut_actor(&entry.actor),
        node: cut(entry.proposer.node.as_str()).into(),
        what: cut(&entry.command.to_string()).to_owned(),
        outcome: outcome.clone(),
    };
    ring.insert(index, index, record);
    if ring.len() > max {
        ring.pop_first();
    }
}

/// The facts of an entry's effect that decide on its audit record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuditedEffect<'a> {
    pub(crate) outcome: &'a Outcome,
    pub(crate) is_change: bool,
}

fn cut_actor(actor: &Actor) -> Actor {
    match actor {
        Actor::Node => Actor::Node,
        Actor::Operator(name) => Actor::Operator(cut(name).to_owned()),
    }
}

fn cut(text: &str) -> &str {
    let end = text.floor_char_boundary(WHAT_BYTES_MAX);
    &text[..end]
}
