//! Timers of the log, by the round trips between the voters. Pure.

use std::time::Duration;

/// Nodes of one machine are this far apart for the timers: a busy processor must not look like a
/// dead leader.
const HEARTBEAT_MIN: Duration = Duration::from_millis(100);
/// Beyond this a path is broken, not long: half the way around the world and back takes 0.3 s.
const HEARTBEAT_MAX: Duration = Duration::from_millis(2_000);
/// Heartbeats are whole multiples of this, so that a round trip that wavers does not change them.
const STEP_MS: u64 = 10;

/// The timers of the log. They have to be about equal on all nodes of a cluster.
///
/// A follower that has received nothing from a leader for a lease, [`Self::election_max`], starts
/// an election after a further time between [`Self::election_min`] and [`Self::election_max`]. The
/// lease has room for three lost heartbeats. The time after it only has to keep the voters apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time between two heartbeats of a leader; also the limit of one answer, so it has room for
    /// the longest round trip and for one lost packet.
    pub heartbeat: Duration,
    /// Shortest time without a leader, after its lease, until another node starts an election.
    pub election_min: Duration,
    /// The longest such time, and the lease of a leader.
    pub election_max: Duration,
}

impl Timing {
    /// The timers for voters of which no two are further apart than `rtt_max`.
    #[must_use]
    pub fn for_rtt(rtt_max: Duration) -> Self {
        // The wait for an answer is three quarters of a heartbeat. The loss of a message is noticed
        // when the next one arrives, and the message is sent again, which takes about half a round
        // trip more.
        let answer = rtt_max.mul_f64(1.0 / 0.75);
        let repetition = rtt_max.mul_f64(0.48);
        let wanted_ms = (answer + repetition).as_millis() as u64;
        Self::of_heartbeat(Duration::from_millis(wanted_ms.div_ceil(STEP_MS) * STEP_MS))
    }

    /// The timers with that heartbeat, or the nearest that is possible.
    pub(crate) fn of_heartbeat(heartbeat: Duration) -> Self {
        let heartbeat = heartbeat.clamp(HEARTBEAT_MIN, HEARTBEAT_MAX);
        Self {
            heartbeat,
            election_min: heartbeat.mul_f64(1.25),
            election_max: heartbeat.mul_f64(3.25),
        }
    }

    /// Returns the time for which a leader may act without an answer of a quorum, and a follower
    /// waits at least.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.election_max
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn the_longest_round_trip_of_three_continents_gives_the_known_timers() {
        let timing = Timing::for_rtt(ms(220));
        assert_eq!(timing.heartbeat, ms(400));
        assert_eq!(timing.election_min, ms(500));
        assert_eq!(timing.election_max, ms(1_300));
        assert_eq!(timing.lease(), ms(1_300));
    }

    #[test]
    fn neighbours_and_broken_paths_have_limits() {
        assert_eq!(Timing::for_rtt(Duration::ZERO).heartbeat, ms(100));
        assert_eq!(Timing::for_rtt(ms(60_000)).heartbeat, ms(2_000));
        assert_eq!(Timing::of_heartbeat(Duration::MAX), Timing::for_rtt(ms(60_000)));
        assert_eq!(Timing::of_heartbeat(Duration::ZERO), Timing::for_rtt(ms(0)));
        assert_eq!(Timing::of_heartbeat(ms(400)), Timing::for_rtt(ms(220)));
    }

    proptest! {
        #[test]
        fn an_answer_and_a_repetition_fit_and_timers_stand_apart(rtt_ms in 0_u64..1_000) {
            let timing = Timing::for_rtt(ms(rtt_ms));
            prop_assert!(timing.heartbeat * 3 / 4 >= ms(rtt_ms));
            prop_assert!(timing.heartbeat >= ms(rtt_ms * 4 / 3) + ms(rtt_ms * 2 / 5));
            // Three heartbeats may be lost before a lease ends.
            prop_assert!(timing.lease() > 3 * timing.heartbeat);
            // Of four candidates each has more than half a round trip for itself.
            prop_assert!(timing.election_max - timing.election_min >= ms(rtt_ms * 3));
        }
    }
}
