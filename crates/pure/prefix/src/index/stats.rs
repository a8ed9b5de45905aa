//! Content and activity of the fine index.

/// Figures of a [`FineIndex`](crate::FineIndex), for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Number of different blocks that have a record. Far from the beginning of a prompt one record
    /// represents several blocks.
    pub blocks: u64,
    /// Number of records, each of a block at a replica: a block that three replicas hold counts three
    /// times.
    pub pairs: u64,
    /// Bytes of all tables.
    pub bytes: u64,
    /// Number of replicas that have a number.
    pub holders: u64,
    /// Pairs forgotten to make room, since the start.
    pub evictions: u64,
    /// Pairs forgotten, since the start, because replies showed that they were gone or failed
    /// requests that they never existed.
    pub corrections: u64,
    /// Replicas whose blocks were all forgotten at once, since the start.
    pub flushes: u64,
    /// Pairs that found no room and were left out, since the start.
    pub refused: u64,
}
