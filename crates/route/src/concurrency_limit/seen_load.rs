//! What a limit goes by.

/// What was seen of a replica since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SeenLoad {
    /// Most requests of this node that were in flight there at a time.
    pub in_flight: u32,
    /// Requests of the region's other nodes there, as they told last.
    pub elsewhere: u32,
    /// Requests that these nodes have there, and those that wait in them and could go there.
    pub wanted_elsewhere: u32,
    /// Requests of this node that were allowed there, by [`own_part`](super::own_part).
    pub allowed: u32,
    /// Requests of this node in flight there whose reply has not begun, now.
    pub unbegun: u32,
    /// What the replica says of its queue.
    pub queue: SeenQueue,
    /// Replies to this node that began.
    pub began: u32,
    /// Mean time to the first token of those of which it is known, best divided by what was predicted
    /// for an idle replica: only changes of it count. `None` if it is known of none.
    pub first_token: Option<f32>,
}

impl SeenLoad {
    /// Whether the region's other nodes hold requests back that could go there.
    pub(super) fn is_kept_away_elsewhere(&self) -> bool {
        self.wanted_elsewhere > self.elsewhere
    }
}

/// What a replica said of its queue, by the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum SeenQueue {
    /// Nothing, or so long ago that it says nothing of now.
    #[default]
    Untold,
    /// Nothing since the last look, and before that something that counts still.
    Old,
    /// It told since the last look.
    New {
        /// Requests that wait in it, from all its clients.
        queued: f32,
        /// Requests that it works on, likewise; `None` if it does not tell.
        running: Option<f32>,
    },
}
