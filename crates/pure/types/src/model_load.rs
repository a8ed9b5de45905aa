//! Load and capacity of a region for one model.

use serde::{Deserialize, Serialize};

/// The load of one model in one region, over all its replicas and nodes.
///
/// Unknown numbers are `None`, and `None` never means idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelLoad {
    /// Requests waiting, in nodes and at replicas; without those at one replica for which another
    /// has places left.
    pub queued: f32,
    /// Requests being worked on.
    pub running: f32,
    /// Requests that can be worked on at once without waiting; `None` if unknown.
    pub capacity: Option<f32>,
    /// Requests that end each second, over the last seconds; `None` before any did.
    pub rate_per_s: Option<f32>,
    /// Share of the KV cache in use at the replica that the next request would go to, 0 to 1.
    pub kv_use: Option<f32>,
    /// Milliseconds that a request arriving now would wait for its turn; `None` if unknown.
    pub wait_ms: Option<f32>,
    /// Replicas that take requests; 0 if unknown. A region without any reports a capacity of 0.
    pub replicas: u32,
    /// Prompt tokens still to be read at the replica that has the fewest; `None` if unknown.
    pub pending_tokens: Option<f32>,
    /// Which requests for the model the region accepts.
    pub shed: ShedState,
}

impl ModelLoad {
    /// Returns the report of a model that is configured in the region but has no replica that takes
    /// requests now. Sending it keeps the model's name known in all regions.
    #[must_use]
    pub fn unserved() -> Self {
        Self { capacity: Some(0.0), shed: ShedState::Shedding, ..Self::default() }
    }

    /// Returns true if the region has no replica of the model that takes requests now.
    #[must_use]
    pub fn is_unserved(&self) -> bool {
        self.capacity == Some(0.0) && self.shed == ShedState::Shedding && self.running == 0.0
    }

    /// Returns the requests that are worked on at each replica, on average; 0 if the number of
    /// replicas is unknown.
    #[must_use]
    pub fn running_each(&self) -> f32 {
        if self.replicas == 0 { 0.0 } else { self.running / self.replicas as f32 }
    }

    /// Returns true if nothing waits and more than half of a known capacity is free.
    #[must_use]
    pub fn is_half_empty(&self) -> bool {
        let taken = self.queued + self.running;
        self.queued == 0.0 && self.capacity.is_some_and(|capacity| taken * 2.0 < capacity)
    }
}

/// Which further requests for a model a region accepts.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ShedState {
    /// Requests of its own clients and of other regions.
    #[default]
    Open,
    /// Requests of its own clients alone: the room left is reserved for them.
    Reserved,
    /// No requests: the region rejects even its own clients.
    Shedding,
}
