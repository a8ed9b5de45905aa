//! What a region has to do for one model, and what it could do.

use serde::{Deserialize, Serialize};

/// The load of one model in one region, over all its replicas and nodes.
///
/// What is not known is `None`, and unknown never means idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelLoad {
    /// Requests that wait, in nodes and at replicas.
    pub queued: f32,
    /// Requests being worked on.
    pub running: f32,
    /// Requests that can be worked on at once without any waiting; `None` if nobody knows.
    pub capacity: Option<f32>,
    /// Requests that end each second, over the last seconds; `None` before any did.
    pub rate_per_s: Option<f32>,
    /// Share of the KV cache in use where the next request would go, 0 to 1.
    pub kv_use: Option<f32>,
    /// How long a request that came now would wait for its turn, milliseconds; `None` if nobody
    /// knows.
    pub wait_ms: Option<f32>,
    /// Whether guests are welcome.
    pub shed: ShedState,
}

impl ModelLoad {
    /// What a region tells others of a model that is configured there and has no replica that takes
    /// requests now. It keeps the model's name known everywhere.
    #[must_use]
    pub fn unserved() -> Self {
        Self { capacity: Some(0.0), shed: ShedState::Shedding, ..Self::default() }
    }

    /// Whether the region has no replica of the model that takes requests now.
    #[must_use]
    pub fn is_unserved(&self) -> bool {
        self.capacity == Some(0.0) && self.shed == ShedState::Shedding && self.running == 0.0
    }
}

/// What a region does with more requests for a model.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ShedState {
    /// It takes its own and guests.
    #[default]
    Open,
    /// It takes its own only: what is left is reserved for them.
    Reserved,
    /// It turns away its own too.
    Shedding,
}
