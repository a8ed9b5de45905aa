//! What came of an entry.

use serde::{Deserialize, Serialize};
use spillway_codec::Wire;

use crate::{Fault, Record, RecordKey, Refusal};

/// What applying one entry did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The answer to who proposed it.
    pub outcome: Outcome,
    /// Which records are not as they were, in the order of changes; for watchers and the node's own
    /// view. Empty for a repeated request, whatever its outcome says.
    pub changes: Vec<Change>,
}

/// The answer to who proposed an entry. It is remembered for retries, so it is small.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was carried out.
    Applied {
        /// The entry's index, which is the version of every record that it changed.
        version: u64,
        /// Parts of a batch that were left out, e.g. for an old epoch. Look at the records.
        skipped: u32,
    },
    /// Everything was so already.
    Unchanged,
    /// The record has another version than expected. Read it and try again.
    Conflict {
        /// Which record.
        key: RecordKey,
        /// Its version; none if it does not exist.
        current: Option<u64>,
    },
    /// It was refused, and no record changed.
    Refused(Refusal),
}

/// A record that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Which.
    pub key: RecordKey,
    /// What happened to it.
    pub kind: ChangeKind,
}

/// What happened to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Created,
    /// It is another.
    Updated,
    /// It is gone.
    Removed,
}

/// What a command would change about one record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeDiff {
    /// Which.
    pub key: RecordKey,
    /// How it is; none if it does not exist.
    pub before: Option<Record>,
    /// How it would be; none if it would be gone.
    pub after: Option<Record>,
}

impl Wire for Outcome {
    const KIND: u16 = 0x0303;
    const VERSION: u16 = 1;
    /// A refusal names two records at most and has two sentences.
    const BYTES_MAX: usize = 8 * 1024;
}

impl From<Fault> for Outcome {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(refusal) => Self::Refused(refusal),
            Fault::Conflict { key, current } => Self::Conflict { key, current },
        }
    }
}
