//! Steering of new clients towards a node or a region, or away from it.

use crate::reasons;

/// Advice to whatever steers clients (DNS answers, routes, load balancers) about sending new ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Steering {
    /// Send clients.
    #[default]
    Send,
    /// Send clients although some are rejected: no other region does better.
    SendShedding,
    /// Send clients elsewhere.
    Away(AwayReason),
}

reasons! {
    /// Reason to send no clients.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum AwayReason {
        /// The node is about to stop.
        Draining = "draining";
        /// An operator drained or evacuated the region, or set its weight to 0.
        Ordered = "ordered";
        /// The node has not been ready since it started.
        Starting = "starting";
        /// No replica can be used, neither here nor in a reachable region.
        NoUsableReplica = "no_usable_replica";
        /// The node sheds too many requests for lack of room.
        Shedding = "shedding";
        /// A node of a newer version has a reason that this version does not know.
        Other = "other";
    }
}

impl Steering {
    /// Returns true if clients are to be sent.
    #[must_use]
    pub fn takes_clients(self) -> bool {
        self.reason().is_none()
    }

    /// Returns the reason to send none; `None` if clients are to be sent.
    #[must_use]
    pub fn reason(self) -> Option<AwayReason> {
        match self {
            Self::Send | Self::SendShedding => None,
            Self::Away(reason) => Some(reason),
        }
    }

    /// Returns the number that represents the advice between nodes and in memory. No number ever
    /// changes its meaning.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Send => 0,
            Self::SendShedding => 1,
            Self::Away(reason) => reason.code(),
        }
    }

    /// Returns the advice that a number represents. An unknown number is a reason of a newer
    /// version.
    #[must_use]
    pub fn of_code(code: u8) -> Self {
        match code {
            0 => Self::Send,
            1 => Self::SendShedding,
            code => {
                let known = AwayReason::ALL.into_iter().find(|reason| reason.code() == code);
                Self::Away(known.unwrap_or(AwayReason::Other))
            }
        }
    }
}

impl AwayReason {
    fn code(self) -> u8 {
        match self {
            Self::Draining => 2,
            Self::Ordered => 3,
            Self::Starting => 4,
            Self::NoUsableReplica => 5,
            Self::Shedding => 6,
            // Far from the others, which leaves the next numbers to new reasons.
            Self::Other => u8::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_meaning_and_unknown_ones_send_nobody() {
        let away = AwayReason::ALL.map(Steering::Away);
        for steering in [Steering::Send, Steering::SendShedding].into_iter().chain(away) {
            assert_eq!(Steering::of_code(steering.code()), steering);
        }
        assert_eq!(Steering::of_code(200), Steering::Away(AwayReason::Other));
        let taking: Vec<u8> =
            (0..=u8::MAX).filter(|code| Steering::of_code(*code).takes_clients()).collect();
        assert_eq!(taking, [0, 1]);
    }
}
