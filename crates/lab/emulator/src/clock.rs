//! Conversion between real time and virtual time, and the time of day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Clock with the time of the modelled machine. Its speed can change; its time never jumps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    real: Instant,
    shown: Duration,
    /// Real time divided by virtual time.
    scale: f64,
}

impl Clock {
    pub(crate) fn new(real: Instant, scale: f64) -> Self {
        Self { real, shown: Duration::ZERO, scale }
    }

    /// Returns the virtual time at `real`.
    pub(crate) fn virtual_at(&self, real: Instant) -> Duration {
        self.shown + real.saturating_duration_since(self.real).div_f64(self.scale)
    }

    /// Returns the real time at which the clock will show `shown`.
    pub(crate) fn real_at(&self, shown: Duration) -> Instant {
        self.real + shown.saturating_sub(self.shown).mul_f64(self.scale)
    }

    /// Changes the speed from `real` on.
    pub(crate) fn set_scale(&mut self, real: Instant, scale: f64) {
        *self = Self { real, shown: self.virtual_at(real), scale };
    }
}

/// Returns the seconds since 1970, for the `created` fields of the API.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "the values are exact in binary")]
    fn a_tenth_of_real_time_shows_ten_times_as_much() {
        let start = Instant::now();
        let clock = Clock::new(start, 0.125);
        let shown = clock.virtual_at(start + Duration::from_secs(1));
        assert_eq!(shown.as_secs_f64(), 8.0);
        assert_eq!(clock.real_at(shown), start + Duration::from_secs(1));
    }

    #[test]
    fn a_change_of_speed_does_not_move_the_hands() {
        let start = Instant::now();
        let mut clock = Clock::new(start, 1.0);
        let later = start + Duration::from_secs(10);
        clock.set_scale(later, 4.0);
        assert_eq!(clock.virtual_at(later), Duration::from_secs(10));
        assert_eq!(clock.virtual_at(later + Duration::from_secs(4)), Duration::from_secs(11));
        assert_eq!(clock.real_at(Duration::from_secs(12)), later + Duration::from_secs(8));
    }
}
