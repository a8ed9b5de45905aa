//! What a trial's nodes and replicas are like.

/// What differs between trials.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gear {
    /// The machine that replicas emulate, and how much faster it is.
    pub(crate) profile: &'static str,
    pub(crate) time_scale: &'static str,
    /// Requests that a node has at its replica at most.
    pub(crate) places: u32,
    /// How long a node that stops serves on.
    pub(crate) drain_notice_ms: u32,
    /// More lines of `[[listener]]`.
    pub(crate) listener: &'static str,
}

impl Default for Gear {
    /// Replicas that are never what a request waits for.
    fn default() -> Self {
        Self { profile: "l4", time_scale: "0.01", places: 64, drain_notice_ms: 0, listener: "" }
    }
}
