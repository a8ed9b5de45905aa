//! Start times of requests: each after the last answer (closed loop), or at a fixed rate whatever
//! the answers do (open loop).

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::{io::unix::AsyncFd, sync::Semaphore};

/// Pace of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ArrivalPace {
    /// Closed loop: each connection sends its next request after the last answer.
    Closed,
    /// Open loop: this many requests per second in total, answered or not.
    Rate(f64),
}

/// Source of due times for all connections, until it is stopped.
#[derive(Debug)]
pub(crate) struct Arrivals {
    schedule: Option<Schedule>,
    due: Semaphore,
    next: AtomicU64,
    is_stopped: AtomicBool,
}

impl Arrivals {
    /// Starts the arrivals now.
    pub(crate) fn new(pace: ArrivalPace) -> Self {
        let schedule = match pace {
            ArrivalPace::Closed => None,
            ArrivalPace::Rate(per_second) => Some(Schedule::new(Instant::now(), per_second)),
        };
        Self {
            schedule,
            due: Semaphore::new(0),
            next: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Returns the number of the next request and the time from which its latency counts; `None`
    /// after [`Self::stop`].
    ///
    /// At a fixed rate this waits until the request is due. If all connections were busy at that
    /// time, the returned time lies in the past: the wait is part of the latency, as it is for a
    /// user. Otherwise a stalled server would hide its stall by receiving fewer requests.
    pub(crate) async fn next(&self) -> Option<(u64, Instant)> {
        if self.schedule.is_some() {
            self.due.acquire().await.ok()?.forget();
        }
        // A closed loop has no semaphore that could end it, so it asks the flag.
        if self.is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let now = || Instant::now();
        Some((number, self.schedule.map_or_else(now, |schedule| schedule.due(number))))
    }

    /// Makes requests due at the fixed rate. Returns only on an error, or at once in a closed loop.
    ///
    /// Uses a timerfd because the runtime's timers have a resolution of 1 ms, which is more than
    /// the latencies to measure.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let Some(schedule) = self.schedule else { return Ok(()) };
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        #[expect(deprecated, reason = "its successor is unsafe; an OwnedFd upholds what it asks")]
        let timer = AsyncFd::new(timer)?;
        let interval = Timespec::try_from(schedule.gap).context("gap between requests")?;
        let first = schedule.start.saturating_duration_since(Instant::now());
        // Zero would disarm the timer.
        let first = Timespec::try_from(first.max(Duration::from_nanos(1)))?;
        let times = Itimerspec { it_interval: interval, it_value: first };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times)?;
        loop {
            let mut ready = timer.readable().await?;
            let mut expirations = [0_u8; 8];
            let read = ready.try_io(|fd| Ok(rustix::io::read(fd, &mut expirations)?));
            // An error is not fatal: another wake-up may find the timer not expired yet.
            if read.is_ok_and(|result| result.is_ok()) {
                // The timer counts its expirations since the last read, so none is lost in a stall.
                let count = u64::from_ne_bytes(expirations);
                self.due.add_permits(usize::try_from(count)?);
            }
        }
    }

    /// Ends the arrivals: every waiting [`Self::next`] returns `None`.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        // Wakes all connections that wait for a request.
        self.due.close();
    }
}

/// Due times at a fixed rate.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    start: Instant,
    gap: Duration,
}

impl Schedule {
    fn new(start: Instant, per_second: f64) -> Self {
        // At least a microsecond: no machine here is faster, and a gap of zero would disarm the
        // timer.
        let gap = Duration::from_secs_f64((1.0 / per_second).clamp(1e-6, 3600.0));
        Self { start, gap }
    }

    fn due(&self, number: u64) -> Instant {
        let nanos = u64::try_from(self.gap.as_nanos()).unwrap_or(u64::MAX);
        self.start + Duration::from_nanos(nanos.saturating_mul(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_do_not_depend_on_when_they_are_asked_for() {
        let start = Instant::now();
        let schedule = Schedule::new(start, 500.0);
        assert_eq!(schedule.due(0), start);
        assert_eq!(schedule.due(1000), start + Duration::from_secs(2));
    }

    #[tokio::test]
    async fn the_backlog_of_a_stall_keeps_its_due_times() {
        let arrivals = Arrivals::new(ArrivalPace::Rate(1000.0));
        let start = arrivals.schedule.unwrap().start;
        // Effect of the timer if it expired five times while no connection was free.
        arrivals.due.add_permits(5);
        for number in 0..5 {
            let due = start + Duration::from_millis(number);
            assert_eq!(arrivals.next().await, Some((number, due)));
        }
        arrivals.stop();
        assert_eq!(arrivals.next().await, None);
    }

    #[tokio::test]
    async fn the_timer_keeps_the_rate() {
        let arrivals = Arrivals::new(ArrivalPace::Rate(2000.0));
        let consume = async {
            for _ in 0..100 {
                arrivals.next().await.unwrap();
            }
            arrivals.schedule.unwrap().start.elapsed()
        };
        tokio::select! {
            result = arrivals.run() => panic!("the timer ended: {result:?}"),
            // 99 gaps of half a millisecond: never sooner, however slow the machine.
            elapsed = consume => assert!(elapsed >= Duration::from_micros(49_500), "{elapsed:?}"),
        }
    }
}
