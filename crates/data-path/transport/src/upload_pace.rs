//! Pace at which clients send the bodies of their requests.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use spillway_protocol::{ErrorKind, GatewayError};
use tokio::time::{Instant, Sleep, sleep_until};

/// Slowest steady pace in bytes a second: a poor mobile network (EDGE) is several times faster. At it,
/// a body of 32 MiB holds its memory for 2.3 hours.
const BYTES_PER_S_MIN: u64 = 4 << 10;

/// Time that a client has left for the rest of its body. Pure: times come as arguments.
///
/// Waiting uses the time up, and bytes give it back, as long as they take at the slowest pace. So a
/// steady body may take hours, and one that drips ends like one that is silent.
#[derive(Clone, Copy, Debug)]
pub struct UploadPace {
    silence_max: Duration,
    left: Duration,
    /// Start of the present wait for the client. Waits for the replica cost the client no time.
    waits_since: Option<Instant>,
}

/// Timer of an [`UploadPace`].
#[derive(Debug)]
pub struct PaceTimer {
    pace: UploadPace,
    /// Timer; made at the first wait, since a complete body never needs it.
    timer: Option<Pin<Box<Sleep>>>,
}

impl UploadPace {
    /// Creates the pace of a body that may be silent for `silence_max`.
    #[must_use]
    pub fn new(silence_max: Duration) -> Self {
        Self { silence_max, left: silence_max, waits_since: None }
    }

    /// Returns the moment at which a body of which nothing more comes is too slow. Call it when the
    /// wait for more begins.
    #[must_use]
    pub fn due(&mut self, now: Instant) -> Instant {
        *self.waits_since.get_or_insert(now) + self.left
    }

    /// Notes a piece of the body. `now` is called if it was waited for.
    pub fn came(&mut self, bytes: usize, now: impl FnOnce() -> Instant) {
        let waited = self.waits_since.take().map(|since| now().saturating_duration_since(since));
        let earned = Duration::from_millis((bytes as u64).saturating_mul(1000) / BYTES_PER_S_MIN);
        let left = self.left.saturating_sub(waited.unwrap_or_default());
        self.left = left.saturating_add(earned).min(self.silence_max);
    }

    /// Returns the error for a body that is too slow.
    #[must_use]
    pub fn too_slow(&self) -> GatewayError {
        let silence_s = self.silence_max.as_secs_f32();
        let message = format!(
            "the request body came too slowly: it may pause for {silence_s} s, and must bring {} KiB \
             a second on average",
            BYTES_PER_S_MIN >> 10
        );
        GatewayError::new(ErrorKind::BodyTimeout, message)
    }
}

impl PaceTimer {
    /// Returns the timer of a body that may be silent for `silence_max`.
    pub fn new(silence_max: Duration) -> Self {
        Self { pace: UploadPace::new(silence_max), timer: None }
    }

    /// Notes a piece of the body.
    pub fn came(&mut self, bytes: usize) {
        self.pace.came(bytes, Instant::now);
    }

    /// Returns ready once the body is too slow. Call it while the client sends nothing.
    pub fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<GatewayError> {
        let is_new = self.pace.waits_since.is_none();
        let timer = match &mut self.timer {
            Some(timer) if !is_new => timer,
            timer => {
                let due = self.pace.due(Instant::now());
                let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
                timer.as_mut().reset(due);
                timer
            }
        };
        timer.as_mut().poll(cx).map(|()| self.pace.too_slow())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_secs(60);

    /// Returns the seconds after which a body that brings `bytes` each second is too slow; `None` if
    /// it is not within an hour.
    fn ends_after(bytes: usize) -> Option<u64> {
        let start = Instant::now();
        let mut pace = UploadPace::new(SILENCE);
        (1..3_600).find(|second| {
            let now = start + Duration::from_secs(*second);
            let is_late = pace.due(now - Duration::from_secs(1)) < now;
            pace.came(bytes, || now);
            is_late
        })
    }

    #[test]
    fn a_steady_body_may_take_an_hour_and_one_that_drips_ends_like_silence() {
        assert_eq!(ends_after(0), Some(61));
        assert_eq!(ends_after(1), Some(61));
        assert_eq!(ends_after(100), Some(62));
        assert_eq!(ends_after(2 << 10), Some(120));
        assert_eq!(ends_after(4 << 10), None);
        assert_eq!(ends_after(100_000), None);
    }

    #[test]
    fn much_at_once_buys_no_longer_silence() {
        let start = Instant::now();
        let mut pace = UploadPace::new(SILENCE);
        pace.came(30 << 20, || start);
        assert_eq!(pace.due(start), start + SILENCE);
    }

    #[test]
    fn a_wait_for_the_replica_costs_no_time() {
        let start = Instant::now();
        let mut pace = UploadPace::new(SILENCE);
        let hour = start + Duration::from_secs(3_600);
        pace.came(1, || start);
        assert_eq!(pace.due(hour), hour + SILENCE);
    }
}
