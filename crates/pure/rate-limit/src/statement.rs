//! Statements of nodes about the shares that they have and need.

use serde::{Deserialize, Serialize};
use spillway_types::NodeName;

use crate::{LimitKind, Scope, Units};

/// Process of a node. A lease belongs to a process, because another process knows neither how
/// long it has been held nor what was charged to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Run {
    /// Name of the node.
    pub node: NodeName,
    /// Number larger than that of any earlier process of the node.
    pub incarnation: u64,
}

/// Statement of a process: renews all its leases, gives back units of some, and asks for more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// Process that makes the statement.
    pub run: Run,
    /// Number that grows with every statement of a process; older statements are refused.
    pub serial: u64,
    /// Length of the leases in milliseconds, counted from just before the statement was made.
    pub length_ms: u32,
    /// Limits with changes; at most [`LINES_MAX`].
    pub lines: Vec<ShareLine>,
    /// Processes whose leases ended; at most [`OVERDUE_MAX`].
    pub overdue: Vec<Overdue>,
    /// True if the process is about to end; it gets nothing more.
    pub is_last: bool,
}

/// Line of a statement about one limit. From before the statement is made, the process keeps to
/// `floor` and `lease`: units that it had beyond them are free for others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareLine {
    /// Scope of the limit.
    pub scope: Scope,
    /// Units that the node keeps of its floor.
    pub floor: Units,
    /// Units that the process keeps of its lease.
    pub lease: Units,
    /// Units that the process needs of leases.
    pub need: Units,
}

/// Report of a process whose leases ended: by the clock of the process that makes the statement,
/// `run` made none since `serial` for as long as its leases last and its charges count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overdue {
    /// Process whose leases ended.
    pub run: Run,
    /// Serial of the statement with which the leases began. If the process has made another one
    /// since, nothing ended.
    pub serial: u64,
    /// Kinds whose leases ended, in the order of [`LimitKind::ALL`].
    pub kinds: [bool; 3],
}

/// Most limits in one statement; the next statement has the rest. With names of usual length they
/// take about 10 KiB.
pub const LINES_MAX: usize = 256;
/// Most overdue processes in one statement.
pub const OVERDUE_MAX: usize = 64;

impl Statement {
    /// Returns about how many bytes the statement takes in the log.
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
