//! Why a command was not carried out.

use serde::{Deserialize, Serialize};

use crate::RecordKey;

/// A command was refused. The same command meets with the same answer until the state changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{cause}: {remedy}")]
pub struct Refusal {
    /// For programs.
    pub code: RefusalCode,
    /// What is wrong.
    pub cause: String,
    /// What to do about it.
    pub remedy: String,
}

/// The kinds of refusals. New ones are added at the end: their order is part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RefusalCode {
    /// A name, number or text can't be used.
    Invalid,
    /// There are as many of these as there may be.
    LimitReached,
    /// All records together are as large as they may be.
    StateFull,
    /// What the command is about does not exist.
    Unknown,
    /// Other records need it.
    InUse,
    /// Only nodes of the replica's own region may say this.
    NotOwner,
    /// Only operators may do this, or only nodes.
    NotPermitted,
    /// It is about an earlier registration of the replica.
    StaleEpoch,
    /// A node of this name is known with another disk.
    WipedDisk,
    /// The disk belonged to a node that was removed, or belongs to another one.
    RetiredDisk,
    /// The cluster has not been formed.
    NotFormed,
    /// Another cluster was formed, or is meant.
    OtherCluster,
    /// The join token is unknown, used up, too old, or for another region.
    TokenRefused,
    /// The request id stood for another command.
    RequestIdReused,
    /// A node is too old for the command, or the cluster too new for the node.
    WireVersion,
    /// It cannot go from its state to that one.
    Transition,
    /// It would lead back to itself.
    Loop,
    /// The entry's index was applied before.
    AlreadyApplied,
}

/// How a command may fail: it is refused, or what it expects is not so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Fault {
    /// It is refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The record has another version than the command expects. Read it and try again.
    #[error("{key} has another version than expected")]
    Conflict {
        /// Which record.
        key: RecordKey,
        /// The version it has; none if it does not exist.
        current: Option<u64>,
    },
}

impl Refusal {
    pub(crate) fn new(
        code: RefusalCode,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { code, cause: cause.into(), remedy: remedy.into() }
    }

    pub(crate) fn invalid(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(RefusalCode::Invalid, cause, remedy)
    }

    pub(crate) fn unknown(key: &RecordKey) -> Self {
        Self::new(RefusalCode::Unknown, format!("{key} does not exist"), "list what exists")
    }
}
