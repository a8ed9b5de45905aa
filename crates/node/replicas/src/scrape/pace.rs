//! Pace at which a page is read.

use std::time::Duration;

/// Period as a multiple of the time of a scrape: a page costs its server no more than a twentieth
/// of one core.
const PERIOD_PER_SCRAPE: u32 = 20;
/// Shortest period: the load that routing uses is at most this old, plus one way over the network.
/// Pages of servers nearby take less than 5 ms, and get this period.
const PERIOD_MIN: Duration = Duration::from_millis(100);
/// Longest period, because older load says little about the present. A page that takes longer than
/// 50 ms thus costs its server more than a twentieth of one core, but never more than a half.
const PERIOD_MAX: Duration = Duration::from_secs(1);

/// Pauses between the scrapes of one page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScrapePace {
    fixed: Option<Duration>,
}

impl ScrapePace {
    /// Makes a pace of `fixed`, or one that adapts to the page.
    pub(crate) fn new(fixed: Option<Duration>) -> Self {
        Self { fixed }
    }

    /// Returns the pause after a scrape that took `took`. Periods count from start to start.
    pub(crate) fn pause(self, took: Duration) -> Duration {
        let period = self.fixed.unwrap_or_else(|| {
            took.saturating_mul(PERIOD_PER_SCRAPE).clamp(PERIOD_MIN, PERIOD_MAX)
        });
        // At least as long as the scrape, so that a slow page is read half of the time at most.
        period.saturating_sub(took).max(took.min(PERIOD_MAX))
    }

    /// Returns the pause after a scrape that failed, which spares a server that is gone.
    pub(crate) fn pause_after_failure(self) -> Duration {
        self.fixed.unwrap_or(PERIOD_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period_ms(fixed_ms: Option<u64>, took_ms: u64) -> u128 {
        let took = Duration::from_millis(took_ms);
        let pace = ScrapePace::new(fixed_ms.map(Duration::from_millis));
        (took + pace.pause(took)).as_millis()
    }

    #[test]
    fn fast_pages_are_read_ten_times_a_second() {
        assert_eq!(period_ms(None, 0), 100);
        assert_eq!(period_ms(None, 5), 100);
    }

    #[test]
    fn slower_pages_take_a_twentieth_of_the_time_down_to_once_a_second() {
        assert_eq!(period_ms(None, 10), 200);
        assert_eq!(period_ms(None, 40), 800);
        assert_eq!(period_ms(None, 50), 1000);
        assert_eq!(period_ms(None, 300), 1000);
    }

    #[test]
    fn no_page_is_read_more_than_half_of_the_time() {
        assert_eq!(period_ms(None, 900), 1800);
        assert_eq!(period_ms(Some(50), 40), 80);
    }

    #[test]
    fn a_fixed_period_is_kept_and_failures_are_not_hurried() {
        assert_eq!(period_ms(Some(250), 2), 250);
        assert_eq!(ScrapePace::new(None).pause_after_failure(), PERIOD_MAX);
        let fixed = Duration::from_millis(250);
        assert_eq!(ScrapePace::new(Some(fixed)).pause_after_failure(), fixed);
    }
}
