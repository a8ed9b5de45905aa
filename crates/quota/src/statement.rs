//! What a node says of the shares it has and needs.

use serde::{Deserialize, Serialize};
use spillway_types::NodeName;

use crate::{LimitKind, Scope, Units};

/// A process of a node. A lease belongs to a process: another one does not know how long it has been
/// held, nor what was charged to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Run {
    /// Which node.
    pub node: NodeName,
    /// Larger than at any start of the node before.
    pub incarnation: u64,
}

/// What a process says: it renews all its leases, and gives and takes of some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// Who says it.
    pub run: Run,
    /// Grows with every statement of a process; older ones are refused.
    pub serial: u64,
    /// For how long, from before it was said, the process uses its leases.
    pub length_ms: u32,
    /// What changes; at most [`LINES_MAX`].
    pub lines: Vec<ShareLine>,
    /// Processes whose leases ended; at most [`OVERDUE_MAX`].
    pub overdue: Vec<Overdue>,
    /// The process is about to end: it gets nothing more.
    pub is_last: bool,
}

/// One limit in a statement. From before it is said the process keeps to `floor` and `lease`: what
/// it had more is for others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareLine {
    /// Whose limit.
    pub scope: Scope,
    /// What the node keeps of its floor.
    pub floor: Units,
    /// What the process keeps of its lease.
    pub lease: Units,
    /// What it needs of leases.
    pub need: Units,
}

/// The process that says this has known `run` unrenewed since `serial`, by its own clock, for as long
/// as that lease lasts and what was charged to it counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overdue {
    /// Whose leases ended.
    pub run: Run,
    /// With which statement they began. If the process has said something since, nothing ended.
    pub serial: u64,
    /// For which kinds that is so, in the order of [`LimitKind::ALL`].
    pub kinds: [bool; 3],
}

/// Limits that one statement may speak of; the next one goes on. With names of usual length they
/// take about 10 KiB.
pub const LINES_MAX: usize = 256;
/// Processes that one statement may call overdue.
pub const OVERDUE_MAX: usize = 64;

impl Statement {
    /// About how long it is in the log.
    #[must_use]
    pub fn bytes_about(&self) -> usize {
        let lines = self.lines.iter().map(ShareLine::bytes_about);
        64 + lines.sum::<usize>() + self.overdue.len() * 96
    }
}

impl ShareLine {
    pub(crate) fn bytes_about(&self) -> usize {
        let name = match &self.scope {
            Scope::Global => 0,
            Scope::Tenant(name) => name.as_str().len(),
            Scope::Model(name) => name.as_str().len(),
            Scope::Key(id) => id.len(),
        };
        // Nine numbers of at most nine bytes; most are short.
        name + 2 + LimitKind::ALL.len() * 3 * 9
    }
}
