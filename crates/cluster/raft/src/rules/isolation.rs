//! Behaviour of a leader while no quorum answers. Pure.
//!
//! A leader whose messages arrive, but that receives none, would keep all other nodes from electing
//! a new leader for as long as it speaks: every append renews its lease. So it falls silent once
//! its lease has ended, for long enough that the others can elect. Then it tries again for a while,
//! in case the others could not elect a leader.

use std::time::Duration;

use super::timing::Timing;

/// Permission of a leader to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voice {
    /// A quorum has answered within the lease. // => Silent
    Confirmed,
    /// None has; the others get time to elect another leader. // => (Confirmed | Trying)
    Silent,
    /// None has for longer; perhaps one does now. // => (Confirmed | Silent)
    Trying,
}

impl Voice {
    /// Returns the permission when the last answer of a quorum is `age` old.
    pub(crate) fn of(age: Duration, timing: &Timing) -> Self {
        let Some(overdue) = age.checked_sub(timing.lease()) else { return Self::Confirmed };
        // The leases of the others end, they wait for their election timers, ask for votes, vote
        // and announce the result.
        let phase = timing.lease() + timing.election_max + 2 * timing.heartbeat;
        if (overdue.as_millis() / phase.as_millis().max(1)).is_multiple_of(2) {
            Self::Silent
        } else {
            Self::Trying
        }
    }

    pub(crate) fn may_speak(self) -> bool {
        self != Self::Silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_falls_silent_after_its_lease_and_tries_again_later() {
        let timing = Timing::for_rtt(Duration::from_millis(220));
        let voice = |age_ms| Voice::of(Duration::from_millis(age_ms), &timing);
        assert_eq!(voice(0), Voice::Confirmed);
        assert_eq!(voice(1_299), Voice::Confirmed);
        assert_eq!(voice(1_300), Voice::Silent);
        // The others need a lease, an election timer and the election: 3.4 s at most.
        assert_eq!(voice(1_300 + 3_399), Voice::Silent);
        assert_eq!(voice(1_300 + 3_400), Voice::Trying);
        assert_eq!(voice(1_300 + 6_799), Voice::Trying);
        assert_eq!(voice(1_300 + 6_800), Voice::Silent);
        assert!(Voice::Confirmed.may_speak() && Voice::Trying.may_speak());
        assert!(!Voice::Silent.may_speak());
    }
}
