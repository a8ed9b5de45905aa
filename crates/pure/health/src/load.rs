//! Load that a replica reports, with the staleness of each number.

use std::time::{Duration, Instant};

use spillway_types::{LoadReport, Reading};

use crate::time::trust;

/// Reporting periods for which a number is trusted fully.
const FULL_FOR_PERIODS: u32 = 2;

/// The newest value of each number that a replica reported.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    queued: Gauge,
    running: Gauge,
    kv_use: Gauge,
    gpu_use: Gauge,
    gpu_memory_use: Gauge,
    pending: Gauge,
    in_flight: u32,
    at: Option<Instant>,
}

/// Readings of a [`Load`] at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadReadings {
    pub(crate) queued: Reading,
    pub(crate) running: Reading,
    pub(crate) kv_use: Reading,
    pub(crate) gpu_use: Reading,
    pub(crate) gpu_memory_use: Reading,
    pub(crate) pending: Reading,
}

/// Rules by which trust in reports fades.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fading {
    /// Time between two reports.
    pub(crate) period: Duration,
    /// Time in which trust halves, once two reports should have come.
    pub(crate) half_life: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Gauge(Option<(f32, Instant)>);

impl Load {
    /// Takes over the numbers in `report` and keeps the others. `in_flight` is the number of
    /// requests known to be at the replica at that moment.
    pub(crate) fn record(&mut self, now: Instant, report: &LoadReport, in_flight: u32) {
        self.queued.set(now, report.queued, f32::MAX);
        self.running.set(now, report.running, f32::MAX);
        self.kv_use.set(now, report.kv_use, 1.0);
        self.gpu_use.set(now, report.gpu_use, 1.0);
        self.gpu_memory_use.set(now, report.gpu_memory_use, 1.0);
        self.pending.set(now, report.pending, f32::MAX);
        let counts = report.queued.or(report.running).or(report.pending);
        // The in-flight requests belong to these counts; a report of shares alone changes neither.
        if counts.is_some() {
            self.in_flight = in_flight;
        }
        self.at = Some(now);
    }

    pub(crate) fn readings(&self, now: Instant, fading: Fading) -> LoadReadings {
        LoadReadings {
            queued: self.queued.reading(now, fading),
            running: self.running.reading(now, fading),
            kv_use: self.kv_use.reading(now, fading),
            gpu_use: self.gpu_use.reading(now, fading),
            gpu_memory_use: self.gpu_memory_use.reading(now, fading),
            pending: self.pending.reading(now, fading),
        }
    }

    /// Returns the queue length for the token bucket and the reserve; `None` if it is unknown.
    pub(crate) fn queued(&self, now: Instant, fading: Fading) -> Option<f32> {
        let reading = self.queued.reading(now, fading);
        reading.is_known().then_some(reading.value)
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the time of the newest report.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.at
    }
}

impl Gauge {
    /// Takes a number over. Ignores numbers that no load can have: negative, infinite or not a
    /// number.
    fn set(&mut self, now: Instant, value: Option<f32>, max: f32) {
        if let Some(value) = value.filter(|value| value.is_finite() && *value >= 0.0) {
            self.0 = Some((value.min(max), now));
        }
    }

    fn reading(&self, now: Instant, fading: Fading) -> Reading {
        self.0.map_or(Reading::UNKNOWN, |(value, at)| {
            let age = now.saturating_duration_since(at);
            let full_for = fading.period.saturating_mul(FULL_FOR_PERIODS);
            Reading { value, trust: trust(age, full_for, fading.half_life) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fleet::{ms, start};

    const FADING: Fading =
        Fading { period: Duration::from_millis(500), half_life: Duration::from_secs(2) };

    fn queued(value: f32) -> LoadReport {
        LoadReport { queued: Some(value), ..LoadReport::default() }
    }

    #[test]
    fn numbers_are_fully_trusted_for_two_periods_and_then_fade() {
        let mut load = Load::default();
        load.record(start(), &queued(7.0), 3);
        let at = |after_ms| load.readings(start() + ms(after_ms), FADING).queued;
        assert_eq!(at(1_000), Reading { value: 7.0, trust: 1.0 });
        assert_eq!(at(3_000), Reading { value: 7.0, trust: 0.5 });
        assert_eq!(at(5_000).trust, 0.25);
        assert!(!at(15_000).is_known());
        assert_eq!(load.queued(start() + ms(15_000), FADING), None);
        assert_eq!(load.queued(start() + ms(5_000), FADING), Some(7.0));
    }

    #[test]
    fn each_number_has_an_age_of_its_own() {
        let mut load = Load::default();
        load.record(start(), &queued(7.0), 3);
        let later = start() + ms(3_000);
        load.record(later, &LoadReport { kv_use: Some(0.5), ..LoadReport::default() }, 9);
        let readings = load.readings(later, FADING);
        assert_eq!((readings.queued.trust, readings.kv_use.trust), (0.5, 1.0));
        assert_eq!(load.in_flight(), 3, "what was in flight belongs to the queue");
        load.record(later, &queued(1.0), 4);
        assert_eq!(load.in_flight(), 4);
        assert_eq!(load.at(), Some(later));
    }

    #[test]
    fn what_no_load_can_be_is_not_taken_over() {
        let mut load = Load::default();
        load.record(start(), &queued(7.0), 0);
        for nonsense in [f32::NAN, f32::INFINITY, -1.0] {
            load.record(start(), &queued(nonsense), 0);
            assert_eq!(load.readings(start(), FADING).queued.value, 7.0);
        }
        load.record(start(), &LoadReport { gpu_use: Some(3.0), ..LoadReport::default() }, 0);
        assert_eq!(load.readings(start(), FADING).gpu_use.value, 1.0, "a share is no more than 1");
    }
}
