//! Who did what.

use serde::{Deserialize, Serialize};
use spillway_types::NodeName;

use crate::limits::{OPERATOR_AUDIT_MAX, SYSTEM_AUDIT_MAX};
use crate::state::table::{Table, Valued};
use crate::{Actor, Digest, Entry, Outcome};

/// Records by index, oldest first.
pub type AuditRing = Table<u64, AuditRecord>;

/// Long names are cut: a refused command may have any.
const WHAT_BYTES_MAX: usize = 256;

/// One thing that somebody did, or tried to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// When, milliseconds since 1970.
    pub stamp_ms: u64,
    /// In whose name.
    pub actor: Actor,
    /// The node that proposed it.
    pub node: NodeName,
    /// What, in words, without secrets.
    pub what: String,
    /// What came of it.
    pub outcome: Outcome,
}

impl Valued for AuditRecord {}

/// Both trails. Nodes have one of their own, so that what they do can't push out what operators did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Audit {
    pub(crate) operators: AuditRing,
    pub(crate) system: AuditRing,
}

impl Audit {
    /// Writes down what came of an entry. What operators do is always written down; what nodes do,
    /// if it changed something or was refused; what they do all the time, if a watcher sees it.
    pub(crate) fn record(&mut self, index: u64, stamp_ms: u64, entry: &Entry, seen: Seen<'_>) {
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

    /// Writes down an order of a node that may not give it, in the nodes' trail: it is no operator's
    /// until somebody has the right.
    pub(crate) fn record_refused(
        &mut self,
        index: u64,
        stamp_ms: u64,
        entry: &Entry,
        outcome: &Outcome,
    ) {
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

/// What came of an entry, as far as the audit cares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
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
