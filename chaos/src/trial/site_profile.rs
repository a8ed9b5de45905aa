//! Settings of the nodes and replicas of a trial.

/// Settings that differ between trials.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SiteProfile {
    /// Profile of the machine that replicas emulate; the next field is the factor on its times.
    pub(crate) profile: &'static str,
    pub(crate) time_scale: f64,
    /// Most requests that a node has at its replica at a time.
    pub(crate) slots: u32,
    /// Time in milliseconds for which a draining node still takes new requests.
    pub(crate) drain_notice_ms: u32,
    /// More lines of `[[listener]]` in the config.
    pub(crate) listener: &'static str,
}

impl Default for SiteProfile {
    /// Returns settings with replicas so fast that no request waits for them.
    fn default() -> Self {
        Self { profile: "l4", time_scale: 0.01, slots: 64, drain_notice_ms: 0, listener: "" }
    }
}
