//! Send times of reports: faster while values change, slower while nothing does.

use std::time::Instant;

use crate::GossipConfig;
use crate::time::ms;

/// The rhythm of one kind of report.
#[derive(Debug)]
pub(crate) struct Cadence {
    last: Instant,
    /// Time between reports while much changes.
    fast_ms: u32,
    /// Random time by which the next heartbeat goes earlier, milliseconds, so that nodes which
    /// started together do not send together forever.
    early_ms: u32,
    /// True if another node waits for the next report.
    hurried: bool,
}

impl Cadence {
    /// Creates a rhythm whose first report is due at once.
    pub(crate) fn new(fast_ms: u32, config: &GossipConfig, now: Instant) -> Self {
        // As if a report had been sent a heartbeat ago.
        let last = now.checked_sub(ms(config.heartbeat_ms)).unwrap_or(now);
        Self { last, fast_ms, early_ms: 0, hurried: false }
    }

    /// Returns when the next report is due, given the largest `change` since the last one, as a
    /// share of a value.
    pub(crate) fn due(&self, config: &GossipConfig, change: f32) -> Instant {
        let permille = change * 1_000.0;
        let period_ms = if self.hurried || permille >= config.moved_permille as f32 {
            self.fast_ms
        } else if permille > config.ignored_permille as f32 {
            // Never later than the next heartbeat.
            config.slow_ms.min(config.heartbeat_ms - self.early_ms)
        } else {
            config.heartbeat_ms - self.early_ms
        };
        self.last + ms(period_ms)
    }

    /// Makes the next report due as soon as if much had changed.
    pub(crate) fn hurry(&mut self) {
        self.hurried = true;
    }

    /// Starts the wait for the next report: one was sent at `now`.
    pub(crate) fn sent(&mut self, config: &GossipConfig, now: Instant, rng: &mut fastrand::Rng) {
        self.last = now;
        // Jitter of up to a tenth.
        self.early_ms = rng.u32(0..=config.heartbeat_ms / 10);
        self.hurried = false;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a test needs some starting moment")]
    fn start() -> Instant {
        Instant::now()
    }

    /// Milliseconds until the next report after one was sent.
    fn period_ms(cadence: &mut Cadence, change: f32, seed: u64) -> u128 {
        let now = start();
        cadence.sent(&GossipConfig::default(), now, &mut fastrand::Rng::with_seed(seed));
        (cadence.due(&GossipConfig::default(), change) - now).as_millis()
    }

    #[test]
    fn the_period_follows_the_change() {
        let config = GossipConfig { slow_ms: 80, ..GossipConfig::default() };
        let now = start();
        let mut cadence = Cadence::new(config.fast_ms, &config, now);
        cadence.sent(&config, now, &mut fastrand::Rng::with_seed(1));
        let due_ms = |cadence: &Cadence, change| (cadence.due(&config, change) - now).as_millis();
        assert!((90..=100).contains(&due_ms(&cadence, 0.0)));
        assert!((90..=100).contains(&due_ms(&cadence, 0.02)), "too small to be told");
        assert_eq!(due_ms(&cadence, 0.03), 80);
        assert_eq!(due_ms(&cadence, 0.1), 50);
        assert_eq!(due_ms(&cadence, 1.0), 50);
        cadence.hurry();
        assert_eq!(due_ms(&cadence, 0.0), 50);
        let later = now + Duration::from_millis(50);
        cadence.sent(&config, later, &mut fastrand::Rng::with_seed(1));
        assert!(due_ms(&cadence, 0.0) > 130, "the hurry is over");
    }

    #[test]
    fn heartbeats_spread() {
        let mut cadence = Cadence::new(50, &GossipConfig::default(), start());
        let periods: BTreeSet<u128> =
            (0..50).map(|seed| period_ms(&mut cadence, 0.0, seed)).collect();
        assert!(periods.len() > 5, "{periods:?}");
        assert!(periods.iter().all(|period| (90..=100).contains(period)), "{periods:?}");
    }

    #[test]
    fn the_first_report_is_due_at_once() {
        let now = start();
        assert_eq!(
            Cadence::new(50, &GossipConfig::default(), now).due(&GossipConfig::default(), 0.0),
            now
        );
    }
}
