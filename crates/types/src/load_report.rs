//! What a replica says about its own load.

use serde::{Deserialize, Serialize};

/// One report, scraped, pushed or sent along with a reply. What a server does not tell is `None`,
/// and unknown never means idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoadReport {
    /// Requests that wait for their turn.
    pub queued: Option<f32>,
    /// Requests being worked on.
    pub running: Option<f32>,
    /// Share of the KV cache in use, 0 to 1.
    pub kv_use: Option<f32>,
    /// Share of time the GPU was busy, 0 to 1.
    pub gpu_use: Option<f32>,
    /// Share of the GPU's memory in use, 0 to 1.
    pub gpu_memory_use: Option<f32>,
    /// Work ahead of a new request by the replica's own count, in units of its choice.
    pub pending: Option<f32>,
}

impl LoadReport {
    /// Fills what this report leaves open from `older`.
    #[must_use]
    pub fn over(self, older: Self) -> Self {
        Self {
            queued: self.queued.or(older.queued),
            running: self.running.or(older.running),
            kv_use: self.kv_use.or(older.kv_use),
            gpu_use: self.gpu_use.or(older.gpu_use),
            gpu_memory_use: self.gpu_memory_use.or(older.gpu_memory_use),
            pending: self.pending.or(older.pending),
        }
    }
}
