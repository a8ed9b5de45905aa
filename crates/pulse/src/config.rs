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
