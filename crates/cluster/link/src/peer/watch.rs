//! Detector of a path on which sent packets do not arrive.
//!
//! Received packets also reset QUIC's idle timeout: a node that receives packets from its peer, but
//! whose own packets do not arrive, would keep the connection for as long as the peer keeps its
//! own.

use std::time::{Duration, Instant};

/// Detector of a connection whose packets are not acknowledged.
#[derive(Debug)]
pub(super) struct AckWatch {
    seen: AckStats,
    /// Time of the last acknowledgement, or when none was awaited.
    at: Instant,
}

/// Statistics of a connection that show acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AckStats {
    /// Smoothed round trip: each new acknowledgement changes it by some nanoseconds. The count of
    /// acknowledgements does not help, because a peer repeats the last one in all it sends.
    rtt: Duration,
    /// Number of frames that ask for an acknowledgement: nearly all frames of control connections.
    asked: u64,
}

impl AckStats {
    fn of(connection: &quinn::Connection) -> Self {
        let stats = connection.stats();
        let sent = stats.frame_tx;
        let asked = sent.ping + sent.datagram + sent.stream;
        Self { rtt: stats.path.rtt, asked }
    }
}

impl AckWatch {
    pub(super) fn new(connection: &quinn::Connection, now: Instant) -> Self {
        Self { seen: AckStats::of(connection), at: now }
    }

    /// Returns the time for which acknowledgements have been missing.
    pub(super) fn silence(&mut self, connection: &quinn::Connection, now: Instant) -> Duration {
        self.silence_of(AckStats::of(connection), now)
    }

    fn silence_of(&mut self, seen: AckStats, now: Instant) -> Duration {
        // An acknowledgement came, or none was awaited: the silence starts from zero.
        if seen.rtt != self.seen.rtt || seen.asked == self.seen.asked {
            self.seen = seen;
            self.at = now;
        }
        now.saturating_duration_since(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_asking_in_vain_counts_as_silence() {
        let start = Instant::now();
        let mut watch =
            AckWatch { seen: AckStats { rtt: Duration::from_nanos(5), asked: 5 }, at: start };
        let mut silence_s = |rtt_ns: u64, asked: u64, after_s: u64| {
            let seen = AckStats { rtt: Duration::from_nanos(rtt_ns), asked };
            watch.silence_of(seen, start + Duration::from_secs(after_s)).as_secs()
        };
        // Nothing was awaited for ten seconds.
        assert_eq!(silence_s(5, 5, 10), 0);
        // An acknowledgement was awaited and came before the next look.
        assert_eq!(silence_s(6, 6, 11), 0);
        // Acknowledgements were awaited twice and did not come.
        assert_eq!(silence_s(6, 7, 12), 1);
        assert_eq!(silence_s(6, 8, 14), 3);
        // One acknowledgement ends the silence.
        assert_eq!(silence_s(7, 9, 15), 0);
    }
}
