//! Moments as numbers.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the milliseconds from the beginning of 1970 (UTC) to `at`; 0 for any time before.
#[must_use]
pub fn unix_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_before_1970_counts_as_its_beginning() {
        assert_eq!(unix_ms(UNIX_EPOCH + Duration::from_micros(1_999)), 1);
        assert_eq!(unix_ms(UNIX_EPOCH), 0);
        assert_eq!(unix_ms(UNIX_EPOCH - Duration::from_secs(1)), 0);
    }
}
