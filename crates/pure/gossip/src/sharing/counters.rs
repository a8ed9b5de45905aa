//! Counters of shared prompts.

/// Counts since the start. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharingCounters {
    /// Prompts shared with the region's other nodes.
    pub told: u64,
    /// Blocks sent with them; the rest was known.
    pub blocks_told: u64,
    /// Datagrams made, each of which goes to one node or to all others.
    pub frames: u64,
    /// Bytes of those datagrams, once each.
    pub frame_bytes: u64,
    /// Prompts received from other nodes.
    pub heard: u64,
    /// Entries that follow on blocks not known here, so that their sender was asked.
    pub lacked: u64,
    /// Questions of others that were answered.
    pub answered: u64,
    /// Entries with a key that is not in use.
    pub other_epochs: u64,
    /// Datagrams that were refused.
    pub refused: u64,
    /// Entries that found no room to wait, or answered a question too many.
    pub dropped: u64,
}
