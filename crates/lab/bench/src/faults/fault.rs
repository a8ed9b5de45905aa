//! Faults of replicas, and the settings that cause them.

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

/// Factor by which a slowed replica is slower.
pub(crate) const SLOWDOWN: f64 = 10.0;

/// Number of events that still arrive before a stream is cut or stalls: the role and two tokens.
const EVENTS_BEFORE_END: u64 = 3;

/// Fault, one column of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[value(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    /// No fault, for comparison.
    None,
    /// Port closed and every connection reset.
    Killed,
    /// Accepts and reads, never answers.
    Hung,
    /// Ten times slower.
    Slowed,
    /// Answers every inference request with 500.
    #[value(name = "status_500")]
    #[serde(rename = "status_500")]
    Status500,
    /// Killed and healed every two seconds.
    Flapping,
    /// Streams break off after a few events, whole replies after half of their body.
    Cut,
    /// Streams and replies stop as with `Cut`, but the connection stays open and silent.
    Stalled,
    /// Answers every inference request with 429 and `Retry-After: 1`.
    Busy,
    /// A replica joins by a reload.
    Added,
    /// A replica leaves by a reload and comes back by another.
    Drained,
    /// A replica is drained and resumed over the admin listener.
    DrainedByAdmin,
}

impl Fault {
    /// Returns the name used on the command line and in tables.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns the emulator's setting; `None` if the fault does not change the replica itself.
    pub(crate) fn setting(self) -> Option<Value> {
        match self {
            Self::None | Self::Added | Self::Drained | Self::DrainedByAdmin => None,
            Self::Killed | Self::Flapping => Some(json!({"kind": "crash"})),
            Self::Hung => Some(json!({"kind": "hang"})),
            Self::Slowed => Some(json!({"kind": "slow", "factor": SLOWDOWN})),
            Self::Status500 => Some(json!({"kind": "status", "code": 500})),
            Self::Cut => Some(json!({"kind": "cut", "after_events": EVENTS_BEFORE_END})),
            Self::Stalled => Some(json!({"kind": "stall", "after_events": EVENTS_BEFORE_END})),
            Self::Busy => Some(json!({"kind": "status", "code": 429, "retry_after_s": 1})),
        }
    }

    /// Returns the part of its former share up to which a replica counts as out of use. Leaves room
    /// for trial requests, and for twice the capacity of a slowed replica.
    pub(crate) fn tolerated_part(self) -> f64 {
        match self {
            Self::Slowed => 0.05 + 2.0 / SLOWDOWN,
            _ => 0.05,
        }
    }

    /// Returns true if the gateway should leave the replica out while the fault lasts.
    pub(crate) fn takes_out(self) -> bool {
        !matches!(self, Self::None | Self::Flapping | Self::Added)
    }
}
