//! Reasons for not carrying out a command.

use serde::{Deserialize, Serialize};

use crate::RecordKey;

/// Refusal of a command. The same command gets the same refusal until the state changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{cause}: {remedy}")]
pub struct CommandError {
    /// Kind of refusal, for programs.
    pub code: RefusalCode,
    /// Cause, in words for people.
    pub cause: String,
    /// Remedy, in words for people.
    pub remedy: String,
}

/// Kinds of refusals. The order is part of the format: new kinds go to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RefusalCode {
    /// A name, number or text can't be used.
    Invalid,
    /// A table is full, or a list or batch is too long.
    LimitReached,
    /// All records together are as large as they may be.
    StateFull,
    /// The record that the command is about does not exist.
    Unknown,
    /// Other records need the record.
    InUse,
    /// Only nodes of the replica's own region, or the node itself, may propose this.
    NotOwner,
    /// The proposer has no right to do this, or the record can't be changed on its own.
    NotPermitted,
    /// The command is about an earlier registration, key or statement.
    StaleEpoch,
    /// A node of this name is known with another disk.
    WipedDisk,
    /// The disk belonged to a node that was removed, or belongs to another one.
    RetiredDisk,
    /// The cluster is not formed yet.
    NotFormed,
    /// The command is for another cluster than this one.
    OtherCluster,
    /// The join token is missing, unknown, used up, expired, for another region, or older than the
    /// removal of the node.
    TokenRefused,
    /// The request id was used before, for another command.
    RequestIdReused,
    /// A node of the cluster is too old for the command, or a node that joins is too old for the
    /// cluster.
    WireVersion,
    /// The record cannot go from its present state or value to the new one.
    Transition,
    /// A model would be tried twice, an alias would lead to an alias, or a split to a split.
    Loop,
    /// The entry's index was applied before.
    AlreadyApplied,
}

/// Error of a command: a refusal, or a condition that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ApplyError {
    /// The command is refused.
    #[error(transparent)]
    Refused(#[from] CommandError),
    /// The record has another version than the command expects. Read the record and try again.
    #[error("{key} has another version than expected")]
    Conflict {
        /// The record.
        key: RecordKey,
        /// The record's present version; None if it does not exist.
        current: Option<u64>,
    },
}

impl CommandError {
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
