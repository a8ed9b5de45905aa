//! Results of entries.

use serde::{Deserialize, Serialize};
use spillway_codec::Wire;

use crate::{ApplyError, CommandError, Record, RecordKey};

/// Result of applying one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The answer to the proposer.
    pub outcome: Outcome,
    /// Changed records in the order of changes, for watchers and the node's own view. Empty for a
    /// repeated request, even if its outcome is [`Outcome::Applied`].
    pub changes: Vec<Change>,
}

/// The answer to an entry's proposer. It is kept for retries, so it is small.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The command was carried out.
    Applied {
        /// Index of the entry, which is the version of every record that it changed.
        version: u64,
        /// Number of parts of a batch that were left out, e.g. for an old epoch. The records show
        /// which.
        skipped: u32,
    },
    /// Everything was already as the command asks.
    Unchanged,
    /// The record has another version than expected. Read the record and try again.
    Conflict {
        /// The record.
        key: RecordKey,
        /// The record's present version; None if it does not exist.
        current: Option<u64>,
    },
    /// The command was refused, and no record changed.
    Refused(CommandError),
}

/// A record that an entry changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The record.
    pub key: RecordKey,
    /// The kind of change.
    pub kind: ChangeKind,
}

/// The kind of change of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// The record is new.
    Created,
    /// The record has another value.
    Updated,
    /// The record was removed.
    Removed,
}

/// Difference that a command would make to one record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeDiff {
    /// The record.
    pub key: RecordKey,
    /// The record as it is; None if it does not exist.
    pub before: Option<Record>,
    /// The record as it would be; None if it would be removed.
    pub after: Option<Record>,
}

impl Wire for Outcome {
    const KIND: u16 = 0x0303;
    const VERSION: u16 = 1;
    /// A refusal names at most two records and has two sentences.
    const BYTES_MAX: usize = 8 * 1024;
}

impl From<ApplyError> for Outcome {
    fn from(fault: ApplyError) -> Self {
        match fault {
            ApplyError::Refused(refusal) => Self::Refused(refusal),
            ApplyError::Conflict { key, current } => Self::Conflict { key, current },
        }
    }
}
