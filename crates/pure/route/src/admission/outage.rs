//! Retry-After of a client while no replica that could serve it is in reach.

use std::time::{Duration, Instant};

/// Length of an outage in which no replica is in reach, measured by the requests refused for it.
///
/// The end of an outage is unknown. Most are short, so the first clients are asked to retry soon,
/// and later ones later. A client that retries twice outlasts an outage of some seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outage {
    /// First and last request that was refused.
    seen: Option<(Instant, Instant)>,
}

impl Outage {
    /// Notes that a request is refused at `now`. Returns the seconds after which the client should
    /// retry: 1 to 30, with random jitter so that clients refused together don't come back
    /// together.
    pub fn turn_away(&mut self, now: Instant, rng: &mut fastrand::Rng) -> u32 {
        // A refusal long after the last one begins a new outage.
        let since = self.since(now).unwrap_or(now);
        self.seen = Some((since, now));
        let half_s = (now.saturating_duration_since(since) / 2).min(WAIT_MAX).as_secs_f32();
        let spread_s = half_s.max(SPREAD_MIN_S) * rng.f32();
        1 + (half_s + spread_s) as u32
    }

    /// Ends the outage: a replica is in reach.
    pub fn end(&mut self) {
        self.seen = None;
    }

    /// Returns true if this value can be dropped without loss.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        self.since(now).is_none()
    }

    fn since(&self, now: Instant) -> Option<Instant> {
        let (since, last) = self.seen?;
        (now.saturating_duration_since(last) <= FORGET).then_some(since)
    }
}

/// Longest half of an outage that counts: after its end a replica should not wait long for its
/// clients.
const WAIT_MAX: Duration = Duration::from_secs(15);

/// Least jitter in seconds; the header knows whole seconds only.
const SPREAD_MIN_S: f32 = 2.0;

/// Age of the last refusal that ends an outage: longer than the longest time that clients are asked
/// to wait.
const FORGET: Duration = Duration::from_secs(40);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_world::NOW;

    fn told(outage: Outage, after_s: u64) -> (u32, u32) {
        let mut rng = fastrand::Rng::with_seed(3);
        let now = *NOW + Duration::from_secs(after_s);
        let all = (0..1_000).map(|_| outage.clone().turn_away(now, &mut rng));
        let all: Vec<u32> = all.collect();
        (all.iter().min().copied().unwrap_or(0), all.iter().max().copied().unwrap_or(0))
    }

    #[test]
    fn the_longer_it_lasts_the_later_clients_are_told_to_come() {
        let mut outage = Outage::default();
        assert_eq!(told(outage, 0), (1, 2));
        outage.turn_away(*NOW, &mut fastrand::Rng::with_seed(1));
        assert_eq!(told(outage, 1), (1, 3));
        assert_eq!(told(outage, 10), (6, 10));
        outage.turn_away(*NOW + Duration::from_secs(30), &mut fastrand::Rng::with_seed(1));
        assert_eq!(told(outage, 60), (16, 30));
    }

    #[test]
    fn it_is_over_when_somebody_is_in_reach_or_nobody_asks() {
        let mut outage = Outage::default();
        let mut rng = fastrand::Rng::with_seed(1);
        outage.turn_away(*NOW, &mut rng);
        assert!(!outage.is_over(*NOW + FORGET));
        assert!(outage.is_over(*NOW + FORGET * 2));
        assert_eq!(told(outage, 100), (1, 2));
        outage.turn_away(*NOW + Duration::from_secs(10), &mut rng);
        outage.end();
        assert_eq!(told(outage, 11), (1, 2));
    }
}
