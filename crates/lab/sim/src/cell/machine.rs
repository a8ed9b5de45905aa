//! Machines that the replicas of a cell run on.

use serde::Deserialize;
use spillway_engine::EngineConfig;

use crate::Slo;
use crate::scenario::{a100, h100, l4};

/// Machine of each replica of a cell, with its model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Machine {
    /// One L4, whose small cache makes caches matter.
    #[default]
    L4,
    /// One A100.
    A100,
    /// Two H100 with a larger model.
    H100,
}

impl Machine {
    /// Returns the settings of the engine.
    pub(super) fn engine(self) -> EngineConfig {
        match self {
            Self::L4 => l4(),
            Self::A100 => a100(),
            Self::H100 => h100(),
        }
    }

    /// Returns the objective by which requests are judged.
    pub(super) fn slo(self) -> Slo {
        match self {
            Self::L4 => Slo::L4,
            // A step of either takes 10 ms without any load, and both read prompts about as fast.
            Self::A100 | Self::H100 => Slo::A100,
        }
    }
}
