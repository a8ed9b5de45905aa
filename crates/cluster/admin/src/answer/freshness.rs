//! Freshness of answers.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_raft::{Consistency, Read};

/// Freshness of an answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Freshness {
    /// Index of the last entry that the answer has seen; 0 before the first.
    pub(crate) index: u64,
    /// Greatest possible age, in milliseconds; null if this node was never in contact with a
    /// leader.
    pub(crate) age_ms: Option<u64>,
    /// `linearizable` or `stale`.
    pub(crate) consistency: String,
}

impl Freshness {
    pub(crate) fn of<R>(read: &Read<R>, consistency: Consistency) -> Self {
        let name = match consistency {
            Consistency::Linearizable => "linearizable",
            Consistency::Stale => "stale",
        };
        Self {
            index: read.index.unwrap_or(0),
            age_ms: read.age.map(whole_ms),
            consistency: name.to_owned(),
        }
    }
}

pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
