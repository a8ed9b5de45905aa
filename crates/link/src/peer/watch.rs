//! Notices that nothing of what is sent arrives.
//!
//! QUIC's idle time counts what is received too: a node that hears its peer and is not heard by it
//! would keep the connection for as long as the peer's own goes on.

use std::time::{Duration, Instant};

/// Watches whether a connection gets anything acknowledged.
#[derive(Debug)]
pub(super) struct AckWatch {
    seen: Seen,
    /// When the last acknowledgement came, or nothing waited for one.
    at: Instant,
}

/// What a connection says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// The smoothed round trip, in nanoseconds: each new acknowledgement moves it. The count of
    /// acknowledgements would not do, since a peer repeats the last one with all it sends.
    rtt: Duration,
    /// Frames that ask for an acknowledgement: nearly all that control connections have.
    asked: u64,
}

impl Seen {
    fn of(connection: &quinn::Connection) -> Self {
        let stats = connection.stats();
        let sent = stats.frame_tx;
        let asked = sent.ping + sent.datagram + sent.stream;
        Self { rtt: stats.path.rtt, asked }
    }
}

impl AckWatch {
    pub(super) fn new(connection: &quinn::Connection, now: Instant) -> Self {
        Self { seen: Seen::of(connection), at: now }
    }

    /// How long this node has asked for acknowledgements in vain.
    pub(super) fn silence(&mut self, connection: &quinn::Connection, now: Instant) -> Duration {
        self.silence_of(Seen::of(connection), now)
    }

    fn silence_of(&mut self, seen: Seen, now: Instant) -> Duration {
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
            AckWatch { seen: Seen { rtt: Duration::from_nanos(5), asked: 5 }, at: start };
        let mut silence_s = |rtt_ns: u64, asked: u64, after_s: u64| {
            let seen = Seen { rtt: Duration::from_nanos(rtt_ns), asked };
            watch.silence_of(seen, start + Duration::from_secs(after_s)).as_secs()
        };
        // Nothing was asked for ten seconds.
        assert_eq!(silence_s(5, 5, 10), 0);
        // Asked, and answered by the time it is looked at.
        assert_eq!(silence_s(6, 6, 11), 0);
        // Asked twice in vain.
        assert_eq!(silence_s(6, 7, 12), 1);
        assert_eq!(silence_s(6, 8, 14), 3);
        // One answer ends it.
        assert_eq!(silence_s(7, 9, 15), 0);
    }
}
