//! Attempt at a request: the chosen replica and the reason for it.

use std::fmt;

use serde::Serialize;
use spillway_types::{Prediction, ReplicaSlot, reasons};

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

reasons! {
    /// Reason why a replica was chosen, for logs, metrics and explanations.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Reason {
        /// No other replica serves this request.
        Only = "only";
        /// The policy drew the replica at random.
        Drawn = "drawn";
        /// It was the replica's turn.
        Turn = "turn";
        /// Of two replicas drawn at random, this one had less load for its weight.
        LighterOfTwo = "lighter_of_two";
        /// The replica had the least load for its weight, by the policy's measure.
        Lightest = "lightest";
        /// The replica had the lowest predicted cost, which is mostly the time to the first token.
        Soonest = "soonest";
        /// The replica has the longest part of the prompt in its cache.
        Cached = "cached";
        /// The replica has the request's adapter in memory.
        Adapter = "adapter";
        /// The request's key hashes to the replica.
        Preferred = "preferred";
        /// Earlier requests of the session went to the replica.
        Session = "session";
        /// The replica is in slow start and gets a reduced share.
        WarmingUp = "warming_up";
        /// The replicas that the policy considered first were busy or already tried.
        Substitute = "substitute";
        /// No other replica could serve the request in time, so an overflow replica was asked.
        Overflow = "overflow";
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
