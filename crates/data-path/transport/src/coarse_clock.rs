//! Coarse clock: the time of a task's wake-up, read once.
//!
//! A request asks for the time at more than twenty places, most of them in the same wake-up of its
//! connection's task, and reading a clock takes longer than most of the work between them. Inside
//! of [`once`] the clock is read at the first question. So a time is earlier than the moment by the
//! time that the wake-up has taken until then. That is short unless the wake-up read a large body:
//! code that continues after such a read asks for a new time with [`reread`].

use std::cell::Cell;
use std::time::{Duration, Instant};

#[derive(Clone, Copy)]
enum Clock {
    /// Outside of a wake-up each question reads the clock.
    Live,
    /// Inside of a wake-up, not read yet.
    Unread,
    /// Inside of a wake-up.
    Read(Instant),
}

thread_local! {
    static CLOCK: Cell<Clock> = const { Cell::new(Clock::Live) };
}

/// Runs a wake-up of a task: all that it asks for the time gets the same answer.
pub fn once<T>(wake_up: impl FnOnce() -> T) -> T {
    /// Puts the clock back, also after a panic.
    struct RestoreClock(Clock);
    impl Drop for RestoreClock {
        fn drop(&mut self) {
            CLOCK.set(self.0);
        }
    }
    let _restored = RestoreClock(CLOCK.replace(Clock::Unread));
    wake_up()
}

/// Returns the time of this wake-up; outside of [`once`] the time now.
#[must_use]
pub fn now() -> Instant {
    match CLOCK.get() {
        Clock::Live => Instant::now(),
        Clock::Read(at) => at,
        Clock::Unread => reread(),
    }
}

/// Reads the clock, to measure a part of a wake-up. [`now`] returns this time from here on.
#[must_use]
pub fn reread() -> Instant {
    let at = Instant::now();
    if !matches!(CLOCK.get(), Clock::Live) {
        CLOCK.set(Clock::Read(at));
    }
    at
}

/// Returns the time from `earlier` until [`now`]; none if `earlier` is later.
#[must_use]
pub fn since(earlier: Instant) -> Duration {
    now().saturating_duration_since(earlier)
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    /// Waits until the clock shows another time.
    fn next_time(than: Instant) -> Instant {
        loop {
            let now = Instant::now();
            if now > than {
                return now;
            }
        }
    }

    #[test]
    fn a_wake_up_has_one_time_and_the_next_one_another() {
        let before = Instant::now();
        let (first, second) = once(|| {
            let first = now();
            next_time(first);
            (first, now())
        });
        assert!(first >= before);
        assert_eq!(first, second);
        next_time(first);
        assert!(once(now) > first);
    }

    #[test]
    fn outside_of_wake_ups_the_clock_is_read() {
        let first = now();
        next_time(first);
        assert!(now() > first);
        // Also after one that ended by a panic.
        let ended = catch_unwind(|| once(|| -> () { std::panic::resume_unwind(Box::new(now())) }));
        assert!(ended.is_err());
        let after = now();
        next_time(after);
        assert!(now() > after);
    }

    #[test]
    fn a_time_read_again_is_that_of_the_rest_of_the_wake_up() {
        once(|| {
            let first = now();
            next_time(first);
            let again = reread();
            assert!(again > first);
            assert_eq!(now(), again);
        });
        let outside = reread();
        next_time(outside);
        assert!(now() > outside);
    }

    #[test]
    fn what_lies_ahead_is_no_time_ago() {
        let later = Instant::now() + Duration::from_secs(9);
        assert_eq!(since(later), Duration::ZERO);
        assert!(once(|| since(Instant::now() - Duration::from_secs(9))) >= Duration::from_secs(8));
    }
}
