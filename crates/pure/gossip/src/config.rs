//! Limits of the gossip: how often nodes send, and when a silent node counts as gone.

/// Periods and limits of the gossip. All nodes of a cluster have equal ones, except while they
/// change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GossipConfig {
    /// Time between reports while a value moves by [`Self::moved_permille`], milliseconds. Shorter
    /// makes load fresher and costs bytes in proportion.
    pub fast_ms: u32,
    /// Time between a speaker's reports to other regions while a value moves that much,
    /// milliseconds. A report goes to every node there: most of a speaker's bytes are these.
    pub region_fast_ms: u32,
    /// Time between reports while values change less than that, milliseconds.
    pub slow_ms: u32,
    /// Time between datagrams while nothing changes, milliseconds. A ninth of [`Self::silence_ms`]:
    /// with 120 ms instead, and every fifth datagram lost, a living region looks silent twenty
    /// times as often. More than 250 ms is too long for any useful limit of silence.
    pub heartbeat_ms: u32,
    /// Silence after which a region is not asked to serve, milliseconds, counted from its last
    /// datagram. A region that reports that it has received nothing from us for so long is not
    /// asked either, and a node of the own region loses its claims.
    pub silence_ms: u32,
    /// Silence after which a node of the own region is not its speaker any more, milliseconds. Less
    /// than half of [`Self::silence_ms`], so that other regions do not notice a change of speakers;
    /// at least three heartbeats.
    pub sibling_silence_ms: u32,
    /// Smallest change of a value that is worth [`Self::fast_ms`], as a share of the value in
    /// permille. Small values count as some usual ones: 2 requests are 100.
    pub moved_permille: u32,
    /// Changes up to this share, in permille, are not reported: an error that readers accept, in
    /// addition to that of rounding. Claims are always reported exactly.
    pub ignored_permille: u32,
    /// Least time between two questions to one node of the own region for what is missing,
    /// milliseconds.
    pub ask_sibling_ms: u32,
    /// Least time between two questions to one node of another region, milliseconds: longer than
    /// the longest round trip, or answers come doubled.
    pub ask_region_ms: u32,
    /// Length of a datagram with its frame, bytes: what QUIC carries on any path.
    pub datagram_bytes_max: usize,
    /// Datagrams of one report. Entries that find no room go first in the next report.
    pub parts_max: usize,
    /// Maximum number of models and replicas of one node that are sent or kept. Further ones are
    /// left out.
    pub entries_max: usize,
    /// Nodes of the cluster. Further ones are left out.
    pub members_max: usize,
    /// Datagrams that wait for [`crate::GossipMachine::poll_transmit`]; beyond that, the oldest are
    /// dropped.
    pub transmit_max: usize,
    /// Events that wait for [`crate::GossipMachine::poll_event`]; beyond that, the oldest are dropped.
    pub events_max: usize,
}

impl GossipConfig {
    /// Returns the defaults for nodes that may be silent for `silence_ms`. The time after which a
    /// node stops to be the speaker keeps its share of that.
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

impl Default for GossipConfig {
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
        let sibling_ms = |silence_ms| GossipConfig::for_silence(silence_ms).sibling_silence_ms;
        assert_eq!([900, 9_000, u32::MAX, 100].map(sibling_ms), [400, 4_000, 1_908_874_353, 300]);
        assert_eq!(GossipConfig::for_silence(900), GossipConfig::default());
    }
}
