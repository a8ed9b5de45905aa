//! Time-outs of client connections. Pure: readings and times in, a verdict out.

use std::time::{Duration, Instant};

use spillway_transport::Limits;

use crate::client::greet::ClientProtocol;
use crate::client::meter::MeterReading;
use crate::close_reason::CloseReason;

/// Time for a slow head or an unread reply while memory is full: the connection holds memory that
/// others need.
const PATIENCE_WHILE_FULL: Duration = Duration::from_secs(2);

/// Watchdog of one connection, fed with regular readings.
#[derive(Debug)]
pub(super) struct Watchdog {
    head_timeout: Duration,
    idle_timeout: Duration,
    stall_timeout: Duration,
    resets_max: u32,
    reset_window: Duration,
    version: ClientProtocol,
    last: MeterReading,
    /// Start of the time without requests in flight.
    idle_since: Option<Instant>,
    /// Bytes read when the connection became idle: more of them mean that a head has begun.
    idle_read_bytes: u64,
    head_since: Option<Instant>,
    blocked_since: Option<Instant>,
    window_start: Instant,
    window_abandoned: u32,
    is_at_rest: bool,
}

impl Watchdog {
    pub(super) fn new(limits: &Limits, version: ClientProtocol, now: Instant) -> Self {
        Self {
            head_timeout: limits.head_timeout,
            idle_timeout: limits.idle_timeout_ms.duration(),
            stall_timeout: limits.stall_timeout_ms.duration(),
            resets_max: limits.resets_per_connection_max,
            reset_window: limits.reset_window,
            version,
            last: MeterReading::default(),
            idle_since: Some(now),
            idle_read_bytes: 0,
            head_since: None,
            blocked_since: None,
            window_start: now,
            window_abandoned: 0,
            is_at_rest: false,
        }
    }

    /// Returns the interval at which [`Watchdog::check`] must be called for its bounds to hold.
    pub(super) fn interval(&self) -> Duration {
        (self.head_timeout.min(self.idle_timeout).min(self.stall_timeout) / 2)
            .max(Duration::from_millis(10))
    }

    /// Checks a new reading. Call it each [`Watchdog::interval`], and at once when a request
    /// was abandoned. `is_full` is true while the process has used up its memory.
    pub(super) fn check(
        &mut self,
        reading: MeterReading,
        is_full: bool,
        now: Instant,
    ) -> Option<CloseReason> {
        let patience = if is_full { PATIENCE_WHILE_FULL } else { Duration::MAX };
        let verdict = self
            .resets(reading, now)
            .or_else(|| self.stalled(reading, patience, now))
            .or_else(|| self.waiting(reading, patience, now));
        let has_rest = reading.in_flight == 0
            && !reading.write_blocked
            && reading.read_bytes == reading.settled_bytes;
        self.is_at_rest = has_rest && reading == self.last;
        self.last = reading;
        verdict
    }

    /// Returns true if at the last two checks nothing was under way, and nothing came between them.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_at_rest
    }

    fn resets(&mut self, reading: MeterReading, now: Instant) -> Option<CloseReason> {
        if now.saturating_duration_since(self.window_start) >= self.reset_window {
            self.window_start = now;
            // As of the last check, so that what was abandoned since then counts in the new window.
            self.window_abandoned = self.last.abandoned;
        }
        let recent = reading.abandoned - self.window_abandoned;
        (recent > self.resets_max).then_some(CloseReason::Resets)
    }

    fn stalled(
        &mut self,
        reading: MeterReading,
        patience: Duration,
        now: Instant,
    ) -> Option<CloseReason> {
        let (is_blocked, has_moved) = match self.version {
            ClientProtocol::Http1 => {
                (reading.write_blocked, reading.written_bytes != self.last.written_bytes)
            }
            // A client can keep the socket busy with pings while it takes no reply, so its windows
            // count. One stream that is read vouches for the other streams of the connection.
            ClientProtocol::Http2 => {
                (reading.pieces_waiting > 0, reading.pieces_taken != self.last.pieces_taken)
            }
        };
        if !is_blocked || has_moved {
            self.blocked_since = None;
        }
        if !is_blocked {
            return None;
        }
        let since = *self.blocked_since.get_or_insert(now);
        let stall_timeout = self.stall_timeout.min(patience);
        (now.saturating_duration_since(since) >= stall_timeout).then_some(CloseReason::Stalled)
    }

    fn waiting(
        &mut self,
        reading: MeterReading,
        patience: Duration,
        now: Instant,
    ) -> Option<CloseReason> {
        if reading.in_flight > 0 {
            self.idle_since = None;
            self.head_since = None;
            return None;
        }
        // A request that came and ended between two checks also restarts the idle time.
        if self.idle_since.is_none() || reading.requests != self.last.requests {
            self.idle_since = Some(now);
            self.idle_read_bytes = reading.settled_bytes;
            self.head_since = None;
        }
        // Between requests HTTP/2 sends pings and window updates: bytes need not belong to a head.
        if self.version == ClientProtocol::Http1 && reading.read_bytes > self.idle_read_bytes {
            let since = *self.head_since.get_or_insert(now);
            let late = now.saturating_duration_since(since) >= self.head_timeout.min(patience);
            return late.then_some(CloseReason::SlowHead);
        }
        let idle = self.idle_since.map(|since| now.saturating_duration_since(since));
        (idle >= Some(self.idle_timeout)).then_some(CloseReason::Idle)
    }
}

#[cfg(test)]
mod tests {
    use spillway_types::Millis;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits() -> Limits {
        Limits {
            head_timeout: 10 * SECOND,
            idle_timeout_ms: Millis(75_000),
            stall_timeout_ms: Millis(60_000),
            resets_per_connection_max: 100,
            ..Limits::default()
        }
    }

    /// Feeds one reading per interval and returns when and why the watchdog gave up.
    fn run(
        reading: impl Fn(Duration) -> MeterReading,
        for_at_most: Duration,
    ) -> Option<(Duration, CloseReason)> {
        run_as((ClientProtocol::Http1, false), reading, for_at_most)
    }

    fn run_as(
        (version, is_full): (ClientProtocol, bool),
        reading: impl Fn(Duration) -> MeterReading,
        for_at_most: Duration,
    ) -> Option<(Duration, CloseReason)> {
        let start = Instant::now();
        let mut watchdog = Watchdog::new(&limits(), version, start);
        let mut passed = Duration::ZERO;
        while passed <= for_at_most {
            if let Some(reason) = watchdog.check(reading(passed), is_full, start + passed) {
                return Some((passed, reason));
            }
            passed += watchdog.interval();
        }
        None
    }

    #[test]
    fn a_silent_connection_is_closed_after_the_idle_time() {
        let (after, reason) = run(|_| MeterReading::default(), 100 * SECOND).expect("closed");
        assert_eq!(reason, CloseReason::Idle);
        assert!(after >= 75 * SECOND && after <= 80 * SECOND, "{after:?}");
    }

    #[test]
    fn a_head_that_drips_is_closed_after_the_head_time_though_bytes_keep_coming() {
        let dripping = |passed: Duration| MeterReading {
            read_bytes: passed.as_secs(),
            ..MeterReading::default()
        };
        let (after, reason) = run(dripping, 100 * SECOND).expect("closed");
        assert_eq!(reason, CloseReason::SlowHead);
        assert!(after <= 20 * SECOND, "{after:?}");
    }

    #[test]
    fn a_request_may_wait_for_its_reply_as_long_as_it_likes() {
        let waiting = |_| MeterReading {
            read_bytes: 9,
            requests: 1,
            in_flight: 1,
            ..MeterReading::default()
        };
        assert_eq!(run(waiting, 7200 * SECOND), None);
    }

    #[test]
    fn a_client_that_takes_no_bytes_is_cut_off_and_a_slow_one_is_not() {
        let busy = MeterReading {
            requests: 1,
            in_flight: 1,
            write_blocked: true,
            ..MeterReading::default()
        };
        let (after, reason) = run(|_| busy, 200 * SECOND).expect("closed");
        assert_eq!(reason, CloseReason::Stalled);
        assert!(after >= 60 * SECOND && after <= 65 * SECOND, "{after:?}");
        let slow = |passed: Duration| MeterReading { written_bytes: passed.as_secs() / 20, ..busy };
        assert_eq!(run(slow, 600 * SECOND), None);
    }

    #[test]
    fn an_http2_client_is_judged_by_the_pieces_it_takes_and_not_by_its_pings() {
        let pinging = |passed: Duration| MeterReading {
            requests: 1,
            in_flight: 1,
            pieces_waiting: 1,
            read_bytes: passed.as_secs(),
            written_bytes: passed.as_secs(),
            ..MeterReading::default()
        };
        let (after, reason) =
            run_as((ClientProtocol::Http2, false), pinging, 200 * SECOND).expect("closed");
        assert_eq!(reason, CloseReason::Stalled);
        assert!(after >= 60 * SECOND && after <= 65 * SECOND, "{after:?}");
        let slow = |passed: Duration| MeterReading {
            pieces_taken: passed.as_secs() / 20,
            ..pinging(passed)
        };
        assert_eq!(run_as((ClientProtocol::Http2, false), slow, 600 * SECOND), None);
        let idle =
            |passed: Duration| MeterReading { pieces_waiting: 0, in_flight: 0, ..pinging(passed) };
        let (after, reason) =
            run_as((ClientProtocol::Http2, false), idle, 200 * SECOND).expect("closed");
        assert_eq!((reason, after), (CloseReason::Idle, 75 * SECOND), "pings are no request head");
    }

    #[test]
    fn abandoning_requests_fast_closes_and_slowly_does_not() {
        let fast = |passed: Duration| MeterReading {
            requests: 1,
            in_flight: 1,
            abandoned: u32::try_from(passed.as_secs() * 30).expect("small"),
            ..MeterReading::default()
        };
        let (_, reason) = run(fast, 100 * SECOND).expect("closed");
        assert_eq!(reason, CloseReason::Resets);
        let slow = |passed: Duration| MeterReading {
            requests: 1,
            in_flight: 1,
            abandoned: u32::try_from(passed.as_secs() * 3).expect("small"),
            ..MeterReading::default()
        };
        assert_eq!(run(slow, 600 * SECOND), None);
    }

    #[test]
    fn while_memory_is_full_slow_heads_and_unread_replies_are_cut_off_sooner() {
        let http1 = (ClientProtocol::Http1, true);
        let dripping = |passed: Duration| MeterReading {
            read_bytes: passed.as_secs(),
            ..MeterReading::default()
        };
        let (after, reason) = run_as(http1, dripping, 100 * SECOND).expect("closed");
        assert_eq!(reason, CloseReason::SlowHead);
        assert!(after <= 10 * SECOND, "{after:?}");
        let unread = |_| MeterReading {
            requests: 1,
            in_flight: 1,
            write_blocked: true,
            ..MeterReading::default()
        };
        let (after, reason) = run_as(http1, unread, 100 * SECOND).expect("closed");
        assert_eq!(reason, CloseReason::Stalled);
        assert!(after <= 10 * SECOND, "{after:?}");
        let waiting = |_| MeterReading { requests: 1, in_flight: 1, ..MeterReading::default() };
        assert_eq!(run_as(http1, waiting, 600 * SECOND), None);
    }

    #[test]
    fn back_to_back_requests_are_not_idle_time() {
        let busy = |passed: Duration| MeterReading {
            requests: passed.as_secs(),
            read_bytes: passed.as_secs() * 100,
            ..MeterReading::default()
        };
        assert_eq!(run(busy, 600 * SECOND), None);
    }
}
