//! Troubles of a cluster's state that a person has to know of.

use std::fmt;
use std::time::Duration;

use spillway_types::NodeName;

/// Trouble of this node's state or of another node's, as this node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A node runs on a disk that is older than what the node has confirmed to others.
    DiskFromPast {
        /// The node.
        node: NodeName,
        /// True for this node, which gives no vote during that time.
        is_own: bool,
    },
    /// A node's state differs from that of the others at the same index.
    StateDiffers {
        /// The node.
        node: NodeName,
        /// True for this node, which has stopped taking part.
        is_own: bool,
    },
    /// Two processes use the name of one node.
    TwoProcesses {
        /// The node.
        node: NodeName,
    },
    /// This node receives from a leader and has not applied entries that the leader had committed.
    Behind {
        /// Time for which it is missing.
        lacking: Duration,
    },
}

impl Trouble {
    /// Words for the kinds of trouble, in metrics.
    pub const KINDS: [&str; 4] = ["disk_from_the_past", "state_differs", "two_processes", "behind"];

    /// Returns the name of this kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        let at = match self {
            Self::DiskFromPast { .. } => 0,
            Self::StateDiffers { .. } => 1,
            Self::TwoProcesses { .. } => 2,
            Self::Behind { .. } => 3,
        };
        Self::KINDS[at]
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DiskFromPast { node, is_own: true } => write!(
                f,
                "the disk of {node} is from the past: it lacks what this node has confirmed. The \
                 node does not vote until a leader has brought it up to date. If the voters that \
                 are away are gone for good: `spillway nodes trust-disk {node}`"
            ),
            Self::DiskFromPast { node, is_own: false } => write!(
                f,
                "the disk of {node} is from the past: it lacks what that node has confirmed"
            ),
            Self::StateDiffers { node, is_own: true } => {
                write!(f, "the state of {node} differs from the cluster's: it takes no part")
            }
            Self::StateDiffers { node, is_own: false } => write!(
                f,
                "the state of {node} differs from this node's at the same entry: see the status of \
                 both"
            ),
            Self::TwoProcesses { node } => write!(
                f,
                "two processes speak as {node}: stop the one that runs on a copy of its folder"
            ),
            Self::Behind { lacking } => write!(
                f,
                "this node hears a leader and has lacked for {} s what that leader committed",
                lacking.as_secs()
            ),
        }
    }
}
