//! Observation of the clients that ask whether the node is ready. By it, a node that ends knows how
//! long load balancers take to notice.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of polls that are remembered of each poller. Fewer are no regular check: a person looks, too.
const POLLS: usize = 3;
/// Most pollers that are remembered.
const POLLERS_MAX: usize = 16;
/// Time after its last poll for which a fast poller counts as there.
const THERE_MIN: Duration = Duration::from_secs(2);
/// Time after its last poll for which a slow poller counts as there.
const THERE_MAX: Duration = Duration::from_secs(60);
/// Shortest and longest notice.
const NOTICE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Times of the last polls of this node's readiness, by address. Locked by health checks alone.
#[derive(Debug, Default)]
pub struct ReadinessPolls(Mutex<Vec<Poller>>);

#[derive(Debug)]
struct Poller {
    address: IpAddr,
    polls: VecDeque<Instant>,
}

impl ReadinessPolls {
    /// Notes a poll from an address. One that was silent for the longest makes room for a new one.
    pub fn note(&self, address: IpAddr, now: Instant) {
        let mut pollers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = pollers.iter().position(|poller| poller.address == address);
        let mut poller = match place {
            Some(place) => pollers.remove(place),
            None => Poller { address, polls: VecDeque::with_capacity(POLLS) },
        };
        if poller.polls.len() == POLLS {
            poller.polls.pop_front();
        }
        poller.polls.push_back(now);
        if pollers.len() == POLLERS_MAX {
            pollers.remove(0);
        }
        // In the order of their last polls.
        pollers.push(poller);
    }

    /// Returns how long to serve on after a refusal is first answered, so that pollers notice it
    /// before connections are refused: three periods and a half of the slowest, since most balancers
    /// leave a server out after two or three failed checks. Returns zero if nothing polls regularly.
    #[must_use]
    pub fn notice(&self, now: Instant) -> Duration {
        let pollers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pollers.iter().map(|poller| poller.notice(now)).max().unwrap_or_default()
    }
}

impl Poller {
    fn notice(&self, now: Instant) -> Duration {
        let polls = &self.polls;
        let (Some(last), POLLS) = (polls.back(), polls.len()) else { return Duration::ZERO };
        // The longest, as several checkers behind one address may take turns.
        let gaps = polls.iter().zip(polls.iter().skip(1));
        let period = gaps.map(|(a, b)| b.saturating_duration_since(*a)).max().unwrap_or_default();
        let notice = period * 7 / 2;
        if now.saturating_duration_since(*last) > notice.clamp(THERE_MIN, THERE_MAX) {
            return Duration::ZERO;
        }
        notice.clamp(NOTICE.0, NOTICE.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// Returns the notice in ms, so long after polls at these times in ms.
    fn notice(polls: &[u64], after_ms: u64) -> u128 {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let observed = ReadinessPolls::default();
        polls.iter().for_each(|ms| observed.note(address(1), at(*ms)));
        let last = polls.last().copied().unwrap_or(0);
        observed.notice(at(last + after_ms)).as_millis()
    }

    #[test]
    fn a_balancer_gets_three_periods_and_a_half_within_bounds() {
        assert_eq!(notice(&[0, 100, 200], 90), 1_000);
        assert_eq!(notice(&[0, 2_000, 4_000], 1_900), 7_000);
        assert_eq!(notice(&[0, 4_000, 8_000, 12_000], 3_900), 14_000);
        assert_eq!(notice(&[0, 10_000, 20_000], 9_000), 30_000);
        assert_eq!(notice(&[0, 30_000, 60_000], 29_000), 30_000);
        // Two balancers that take turns are as slow as each.
        assert_eq!(notice(&[0, 1_000, 5_000, 6_000, 10_000], 0), 14_000);
    }

    #[test]
    fn nothing_is_waited_for_that_does_not_poll() {
        assert_eq!(notice(&[], 0), 0);
        assert_eq!(notice(&[0, 1_000], 0), 0, "a person looked twice");
        assert_eq!(notice(&[0, 20, 40, 60], 2_100), 0, "a script waited for the start");
        assert_eq!(notice(&[0, 2_000, 4_000], 8_000), 0, "the balancer is gone");
        assert_eq!(notice(&[0, 50_000, 100_000], 61_000), 0);
    }

    #[test]
    fn the_slowest_poller_decides_however_often_others_poll() {
        let start = Instant::now();
        let observed = ReadinessPolls::default();
        for second in 0..=30 {
            let now = start + Duration::from_secs(second);
            observed.note(address(1), now);
            if second % 6 == 0 {
                observed.note(address(2), now);
            }
        }
        let now = start + Duration::from_secs(30);
        assert_eq!(observed.notice(now), Duration::from_secs(21));
        // Strangers that look once do not displace an address that polls.
        for stranger in 10..200 {
            observed.note(address(stranger), now);
            observed.note(address(2), now);
        }
        assert!(observed.0.lock().expect("no panic").len() <= POLLERS_MAX);
        assert!(observed.notice(now) > Duration::ZERO);
    }
}
