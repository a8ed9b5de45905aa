//! Attempt at a request: the chosen replica and the reason for it.

use std::fmt;

use serde::Serialize;
use spillway_types::{Prediction, ReplicaSlot};

/// Replica to send a request to, and the reason for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attempt {
    /// Slot of the replica.
    pub slot: ReplicaSlot,
    /// Reason of the choice.
    pub reason: Reason,
    /// Prediction behind the choice, if the policy predicts.
    pub prediction: Option<Prediction>,
}

/// Reason why a replica was chosen, for logs, metrics and explanations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The group has no other replica.
    Only,
    /// Chance drew the replica.
    Drawn,
    /// The replica had its turn.
    Turn,
    /// The replica carried less, for its weight, than the other one of a drawn pair.
    LighterOfTwo,
    /// The replica had the least of what the policy counts: load, time or work, for its weight.
    Lightest,
    /// The replica was predicted to take the least time, including all that counts as time.
    Soonest,
    /// The replica has the longest part of the prompt in its cache.
    Cached,
    /// The replica has the adapter that the request names in memory.
    Adapter,
    /// The request's key prefers the replica to all others.
    Preferred,
    /// Earlier requests of the same session went there.
    Session,
    /// The replica is in slow start, and gets its reduced share.
    WarmingUp,
    /// The candidates that the policy looked at first were busy or tried before.
    Substitute,
    /// No replica of one's own could serve the request in time: a hosted API did.
    Overflow,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 13] = [
        Self::Only,
        Self::Drawn,
        Self::Turn,
        Self::LighterOfTwo,
        Self::Lightest,
        Self::Soonest,
        Self::Cached,
        Self::Adapter,
        Self::Preferred,
        Self::Session,
        Self::WarmingUp,
        Self::Substitute,
        Self::Overflow,
    ];

    /// Returns the name used in logs and metric labels, e.g. `lighter_of_two`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Only => "only",
            Self::Drawn => "drawn",
            Self::Turn => "turn",
            Self::LighterOfTwo => "lighter_of_two",
            Self::Lightest => "lightest",
            Self::Soonest => "soonest",
            Self::Cached => "cached",
            Self::Adapter => "adapter",
            Self::Preferred => "preferred",
            Self::Session => "session",
            Self::WarmingUp => "warming_up",
            Self::Substitute => "substitute",
            Self::Overflow => "overflow",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
