//! Errors of the log's operations.

use std::time::Duration;

use spillway_codec::EncodeError;
use spillway_types::NodeId;
use thiserror::Error;

use crate::disk::DiskError;
use crate::ids::RandomnessError;

/// A node's log can't start.
#[derive(Debug, Error)]
pub enum RaftStartError {
    /// The node's folder can't be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A setting contradicts another one.
    #[error("the log's settings: {0}")]
    Config(String),
    /// The log on disk can't be taken into use.
    #[error("the log can't start: {0}")]
    Log(String),
}

/// A command was not carried out, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProposeError {
    /// Nothing was written, and nothing can be without a majority of the voters. Trying again does
    /// no harm.
    #[error("no quorum can be reached")]
    NoQuorum {
        /// Node that may be the leader.
        leader: Option<NodeId>,
    },
    /// A leader was given the command and has not reported the outcome: the command may be applied,
    /// now, later or never. Only a command that does no harm when it is applied twice may be tried
    /// again.
    #[error("it is not known whether the command was or will be carried out")]
    Unknown,
    /// The command is longer than any node takes.
    #[error("the command is longer than the {bytes_max} bytes it may have")]
    TooLarge {
        /// Limit in bytes.
        bytes_max: usize,
    },
    /// This node has written too much by itself.
    #[error("too many entries; there is room in {retry_after:?}")]
    Budget {
        /// Time until there is room again.
        retry_after: Duration,
    },
    /// The leader's version can't read the command.
    #[error("the leader's version can't read the command: upgrade all nodes before it is used")]
    TooNew,
    /// The command can't be carried between nodes: a mistake of the program.
    #[error("the command can't be carried: {0}")]
    Malformed(String),
    /// This node's log has stopped; the reason is in its status.
    #[error("the log of this node has stopped: {0}")]
    Stopped(String),
}

impl ProposeError {
    /// Returns true if a log may have the command, so that it may be carried out, now or later.
    /// After every other error no log has it.
    #[must_use]
    pub fn may_be_written(&self) -> bool {
        match self {
            Self::Unknown => true,
            Self::NoQuorum { .. }
            | Self::TooLarge { .. }
            | Self::Budget { .. }
            | Self::TooNew
            | Self::Malformed(_)
            | Self::Stopped(_) => false,
        }
    }

    /// Returns true if the same command may be carried out when there is a leader again. If it
    /// [may be written](Self::may_be_written) already, it must do no harm twice.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::NoQuorum { .. } | Self::Unknown)
    }
}

impl From<EncodeError> for ProposeError {
    fn from(error: EncodeError) -> Self {
        match error {
            EncodeError::TooLong { .. } => Self::TooLarge { bytes_max: crate::COMMAND_BYTES_MAX },
            EncodeError::Payload { why } => Self::Malformed(why.into()),
        }
    }
}

/// A read could not be answered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// No majority of the voters can be reached: a stale read is still possible.
    #[error("no quorum can be reached")]
    NoQuorum {
        /// Node that may be the leader.
        leader: Option<NodeId>,
    },
    /// The state that the read has to see did not arrive in time.
    #[error("the state did not arrive in time")]
    TimedOut,
    /// This node's log has stopped.
    #[error("the log of this node has stopped: {0}")]
    Stopped(String),
}

/// The members were not changed, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// Only the leader changes members.
    #[error("this node is not the leader")]
    NotLeader {
        /// Node that may be the leader.
        leader: Option<NodeId>,
    },
    /// The change makes no sense, or another one is under way.
    #[error("{0}")]
    Refused(String),
    /// The change may have been made, or may still be made.
    #[error("it is not known whether the change was or will be made")]
    Unknown,
    /// This node's log has stopped.
    #[error("the log of this node has stopped: {0}")]
    Stopped(String),
}

/// No cluster was formed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormError {
    /// Seeds contradict each other. A person has to decide which is right.
    #[error("the cluster can't be formed: {0}")]
    Conflict(String),
    /// The log is not empty, or a member is missing.
    #[error("the cluster can't be formed: {0}")]
    Refused(String),
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The cluster can't be named.
    #[error(transparent)]
    Random(#[from] RandomnessError),
    /// This node's log has stopped.
    #[error("the log of this node has stopped: {0}")]
    Stopped(String),
}
