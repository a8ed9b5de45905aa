//! Load of a replica as policies read it: numbers, each with a degree of trust.

/// A number that loses trust with age. Without trust the number is unknown, which never means zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// The number as it was measured; finite and not negative.
    pub value: f32,
    /// 1 for a fresh measurement, falling to 0 with age.
    pub trust: f32,
}

impl Reading {
    /// A reading of which nothing is known.
    pub const UNKNOWN: Self = Self { value: 0.0, trust: 0.0 };

    /// Returns the value weighted by its trust; `prior`, the usual value among peers, fills the
    /// rest.
    #[must_use]
    #[inline]
    pub fn or(self, prior: f32) -> f32 {
        let trust = self.trust.clamp(0.0, 1.0);
        prior + (self.value - prior) * trust
    }

    /// Returns true if anything is known.
    #[must_use]
    pub fn is_known(self) -> bool {
        self.trust > 0.0
    }
}

/// Known load of one replica, as of the last update (every 100 ms).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Signals {
    /// Milliseconds from sending a request to the reply's first byte: a moving average that follows
    /// peaks at once and decays slowly.
    pub latency_ms: Reading,
    /// 99th percentile of those milliseconds over the last seconds.
    pub p99_ms: Reading,
    /// Requests waiting at the replica, from all its clients.
    pub queued: Reading,
    /// Requests that the replica works on, from all its clients.
    pub running: Reading,
    /// Share of the KV cache in use, 0 to 1.
    pub kv_use: Reading,
    /// Share of time the GPU is busy, 0 to 1.
    pub gpu_use: Reading,
    /// Share of the GPU's memory in use, 0 to 1.
    pub gpu_memory_use: Reading,
    /// Work ahead of a new request, by the replica's own count.
    pub pending: Reading,
    /// Requests known to be in flight at the replica when `queued`, `running` and `pending` were
    /// reported: this node's, and those reported by the region's other nodes.
    pub in_flight_at_report: u32,
    /// Tokens in the replica's token bucket as of the update.
    pub bucket_tokens: f32,
    /// Requests ever started at the replica as of the update.
    pub started_at: u64,
}

impl Signals {
    /// Signals of a replica of which nothing is known.
    pub const UNKNOWN: Self = Self {
        latency_ms: Reading::UNKNOWN,
        p99_ms: Reading::UNKNOWN,
        queued: Reading::UNKNOWN,
        running: Reading::UNKNOWN,
        kv_use: Reading::UNKNOWN,
        gpu_use: Reading::UNKNOWN,
        gpu_memory_use: Reading::UNKNOWN,
        pending: Reading::UNKNOWN,
        in_flight_at_report: 0,
        bucket_tokens: 0.0,
        started_at: 0,
    };
}

impl Default for Signals {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_fades_into_what_is_usual() {
        let reading = |trust| Reading { value: 8.0, trust };
        assert_eq!(reading(1.0).or(2.0), 8.0);
        assert_eq!(reading(0.5).or(2.0), 5.0);
        assert_eq!(reading(0.0).or(2.0), 2.0);
        assert!(!Reading::UNKNOWN.is_known());
    }
}
