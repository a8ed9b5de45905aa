//! What the fine index holds and has done.

/// Figures of a [`FineIndex`](crate::FineIndex), for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Different blocks that are known at any replica.
    pub blocks: u64,
    /// Blocks at replicas: a block that three replicas hold counts three times.
    pub pairs: u64,
    /// Bytes of all tables.
    pub bytes: u64,
    /// Replicas that have a number.
    pub holders: u64,
    /// Blocks at replicas that were forgotten to make room, since the start.
    pub evictions: u64,
    /// Blocks at replicas that were forgotten because replies showed that they were gone, or failed
    /// requests that they never were there.
    pub corrections: u64,
    /// Replicas whose blocks were all forgotten at once, since the start.
    pub flushes: u64,
    /// Blocks that found no room at all and were left out, since the start.
    pub refused: u64,
}
