//! Inputs of a concurrency limit.

use crate::spill::GuestLack;

/// Load of a replica since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadSample {
    /// Most requests of this node that were in flight there at a time.
    pub in_flight: u32,
    /// Requests of the region's other nodes there, by their last report.
    pub elsewhere: u32,
    /// Requests that the other nodes have there, and requests that wait in them and could go there.
    pub wanted_elsewhere: u32,
    /// Requests of this node that were allowed there, by [`own_part`](super::own_part).
    pub allowed: u32,
    /// Requests of this node in flight there whose reply has not begun, now.
    pub unbegun: u32,
    /// Resource that guests lacked since the last look; `None` if none was refused.
    pub guest_lack: Option<GuestLack>,
    /// Queue that the replica reports.
    pub queue: QueueSample,
    /// Replies to this node that began.
    pub began: u32,
    /// Mean time to first token of the replies for which it is known, best divided by the time
    /// predicted for an idle replica: only changes count. `None` if it is known for none.
    pub first_token: Option<f32>,
}

impl LoadSample {
    /// Returns true if other nodes of the region hold back requests that could go there.
    pub(super) fn is_kept_away_elsewhere(&self) -> bool {
        self.wanted_elsewhere > self.elsewhere
    }
}

/// Queue that a replica reported, as of the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum QueueSample {
    /// No report, or one that is too old.
    #[default]
    Untold,
    /// No report since the last look; the one before still counts.
    Old,
    /// A report since the last look.
    New {
        /// Requests that wait in the replica, from all its clients.
        queued: f32,
        /// Requests that run in the replica, from all its clients; `None` if it does not report
        /// them.
        running: Option<f32>,
        /// Share of the KV cache in use, 0 to 1; `None` if it is not reported.
        kv_use: Option<f32>,
    },
}
