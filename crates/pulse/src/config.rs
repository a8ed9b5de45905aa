//! How often to speak, and when silence counts.

/// Periods and limits of the gossip. The same for all nodes of a cluster, but while it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Time between reports while a value moves by [`Self::moved_permille`], milliseconds. Shorter
    /// makes load fresher and costs bytes in proportion.
    pub fast_ms: u32,
    /// The same for what a speaker tells other regions: it is sent to every node there, so that a
    /// speaker's bytes are mostly these.
    pub region_fast_ms: u32,
    /// Time between reports while values change less than that.
    pub slow_ms: u32,
    /// Time between datagrams while nothing changes. A ninth of [`Self::silence_ms`]: with 120 ms
    /// instead, and every fifth datagram lost, a region that lives looks silent twenty times as
    /// often. Longer than 250 ms is too long for any silence worth having.
    pub heartbeat_ms: u32,
    /// A region that was not heard for so long is not asked to serve, and neither is one that says
    /// that it did not hear us for so long; a node of the own region loses its claims. The region
    /// is out this long after its last datagram.
    pub silence_ms: u32,
    /// A node of the own region that was not heard for so long is not its speaker any more. Less
    /// than half of [`Self::silence_ms`], so that nobody elsewhere notices a change of speakers; at
    /// least three heartbeats.
    pub sibling_silence_ms: u32,
    /// How much a value has to change since it was last told to be worth [`Self::fast_ms`], as a
    /// share of it in permille. Small values count as some usual ones: 2 requests are 100.
    pub moved_permille: u32,
    /// Changes up to this share are not told at all: the error that readers live with, beside that
    /// of rounding. Claims are always told exactly.
    pub ignored_permille: u32,
    /// Least time between two questions to the same node of the own region for what is missing.
    pub ask_sibling_ms: u32,
    /// The same for other regions: longer than the longest round trip, or answers come doubled.
    pub ask_region_ms: u32,
    /// Length of a datagram, with its frame. What QUIC carries on any path.
    pub datagram_bytes_max: usize,
    /// Datagrams a report may be spread over; what does not fit waits for the next one, which takes
    /// it first.
    pub parts_max: usize,
    /// Models, and replicas, that are told or kept of one node. Further ones are left out.
    pub entries_max: usize,
    /// Nodes of the cluster. Further ones are left out.
    pub members_max: usize,
    /// Datagrams that wait for [`crate::Pulse::poll_transmit`]; then the oldest go.
    pub transmit_max: usize,
    /// Events that wait for [`crate::Pulse::poll_event`]; then the oldest go.
    pub events_max: usize,
}

impl Config {
    /// Returns the defaults for nodes that may be silent for `silence_ms`: a node of the own region keeps
    /// speaking for it for the same share of that time as by default.
    #[must_use]
    pub fn for_silence(silence_ms: u32) -> Self {
        let defaults = Self::default();
        let share = u64::from(defaults.sibling_silence_ms) * u64::from(silence_ms);
        let scaled = share / u64::from(defaults.silence_ms);
        let least = 3 * defaults.heartbeat_ms;
        let sibling_silence_ms = u32::try_from(scaled).unwrap_or(u32::MAX).max(least);
        Self { silence_ms, sibling_silence_ms, ..defaults }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            fast_ms: 50,
            region_fast_ms: 60,
            slow_ms: 100,
            heartbeat_ms: 100,
            silence_ms: 900,
            sibling_silence_ms: 400,
            moved_permille: 100,
            ignored_permille: 20,
            ask_sibling_ms: 50,
            ask_region_ms: 250,
            datagram_bytes_max: 1_150,
            parts_max: 4,
            entries_max: 2_048,
            members_max: 1_024,
            transmit_max: 8_192,
            events_max: 256,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speaker_of_a_region_is_silent_for_long_where_nodes_may_be() {
        let sibling_ms = |silence_ms| Config::for_silence(silence_ms).sibling_silence_ms;
        assert_eq!([900, 9_000, u32::MAX, 100].map(sibling_ms), [400, 4_000, 1_908_874_353, 300]);
        assert_eq!(Config::for_silence(900), Config::default());
    }
}
