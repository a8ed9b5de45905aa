//! Settings of routing policies, as a route states them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_route::{Goal, PredictedTuning};
use spillway_types::settings;

settings! {
    /// Settings of the policy `predicted_latency`.
    pub(crate) struct PredictedLatencySection {
        /// Time to minimise: to the first token, or to the end of the reply if clients don't read it
        /// as it is generated.
        goal: GoalName = GoalName::FirstToken,
    }
}

/// Names of [`Goal`].
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GoalName {
    /// The first token.
    FirstToken,
    /// The whole reply.
    Total,
}

impl From<PredictedLatencySection> for PredictedTuning {
    fn from(section: PredictedLatencySection) -> Self {
        let goal = match section.goal {
            GoalName::FirstToken => Goal::FirstToken,
            GoalName::Total => Goal::Total,
        };
        Self { goal, ..Self::default() }
    }
}
