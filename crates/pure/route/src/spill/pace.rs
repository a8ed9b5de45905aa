//! Pace of a region: the time until the turn of one more request comes.

use super::SpillTerms;
use super::cost::sound;
use super::guests::reserve;
use super::region::{RegionCandidate, RegionReport};

/// Milliseconds between two ends in a busy region if no region reported a rate: as in a region that
/// ends ten requests a second. It is short, so that a region of unknown speed is tried.
const TURN_PRIOR_MS: f32 = 100.0;

/// Means of the other regions: the stand-in for what one of them does not report.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionMeans {
    /// Milliseconds between two ends in a busy region.
    turn_ms: f32,
    /// Milliseconds until a guest's turn comes.
    wait_ms: f32,
}

impl RegionMeans {
    /// Reads the reports of all reachable other regions. The own region is left out: this decision
    /// is made because it is busy, which says nothing about others.
    pub(super) fn of(others: &[RegionCandidate], terms: &SpillTerms) -> Self {
        let (mut turn, mut wait) = (Average::default(), Average::default());
        for other in others.iter().filter(|other| other.access.is_possible()) {
            let turn_ms = other.report.turn_ms();
            turn.add(turn_ms);
            let turn_ms = turn_ms.unwrap_or(TURN_PRIOR_MS);
            let guest_reserve = reserve(other.report.load.capacity, terms);
            let ahead = other.report.ahead(turn_ms).map(|ahead| ahead + guest_reserve);
            wait.add(ahead.map(|ahead| ahead.max(0.0) * turn_ms));
        }
        Self { turn_ms: turn.or(TURN_PRIOR_MS), wait_ms: wait.or(sound(terms.unknown_wait_ms)) }
    }

    /// Returns the milliseconds between two ends in a region while it is busy.
    pub(super) fn turn_ms(&self, report: &RegionReport) -> f32 {
        report.turn_ms().unwrap_or(self.turn_ms)
    }

    /// Returns the requests that have to end in a region before a guest can begin; below 0, the
    /// slots left for guests. `turn_ms` passes there between two ends.
    pub(super) fn guests_ahead(
        &self,
        report: &RegionReport,
        turn_ms: f32,
        terms: &SpillTerms,
    ) -> f32 {
        match report.ahead(turn_ms) {
            Some(ahead) => ahead + reserve(report.load.capacity, terms),
            // Without a capacity the running requests say nothing; the waiting ones do.
            None => sound(report.load.queued).max(self.wait_ms / turn_ms),
        }
    }

    /// Returns the milliseconds until a slot in the own region comes free for a request behind
    /// `queued` others that are not in the report. At least one request has to end before.
    pub(super) fn own_wait_ms(&self, report: &RegionReport, queued: u32) -> f32 {
        let turn_ms = self.turn_ms(report);
        let ahead = report.ahead(turn_ms).unwrap_or_else(|| sound(report.load.queued));
        (ahead + report.change() + queued as f32).max(1.0) * turn_ms
    }
}

impl RegionReport {
    /// Returns the milliseconds between two ends when all slots are taken; `None` if no rate is
    /// known.
    ///
    /// Where slots are free, the rate is only the arrival rate. By Little's law a request then
    /// takes `running / rate`, and all slots together end `capacity` requests in that time.
    fn turn_ms(&self) -> Option<f32> {
        let rate_per_s = self.load.rate_per_s.map(sound).filter(|&rate| rate > 0.0)?;
        // Less than one running request means a nearly idle region, which shows nothing of their
        // duration.
        let running = sound(self.load.running).max(1.0);
        let busier =
            self.load.capacity.map_or(1.0, |capacity| (sound(capacity) / running).max(1.0));
        Some((1_000.0 / rate_per_s / busier).clamp(TURN_MIN_MS, TURN_MAX_MS))
    }

    /// Returns the risk, 0 to 0.5, that a guest finds no slot after all. `ahead` is predicted for
    /// the guest, and the report will be `age_ms` old when it arrives.
    ///
    /// In that time some requests come and some end there, and the difference strays from 0 by the
    /// square root of their number. Where no slot is predicted the odds are even, however old the
    /// report.
    pub(super) fn refusal_risk(&self, ahead: f32, age_ms: f32) -> f32 {
        let changes = 2.0 * self.load.rate_per_s.map_or(0.0, sound) * age_ms / 1_000.0;
        let left = (-ahead).max(0.0);
        0.5 * (-left * left / (2.0 * changes.max(1.0))).exp()
    }

    /// Returns the requests that had to end, when the report was made, before one more could begin;
    /// below 0, the slots that were left. `None` if unknown.
    fn ahead(&self, turn_ms: f32) -> Option<f32> {
        let beyond = |capacity: f32| self.taken() + 1.0 - sound(capacity);
        match (self.load.wait_ms.map(sound), self.load.capacity) {
            // A reported wait says more than the number of requests.
            (Some(wait_ms), _) if wait_ms > 0.0 => Some(wait_ms / turn_ms),
            // The region knows better than the sum over its replicas that nothing waits.
            (Some(_), capacity) => Some(capacity.map_or(0.0, |capacity| beyond(capacity).min(0.0))),
            (None, Some(capacity)) => Some(beyond(capacity)),
            (None, None) => None,
        }
    }
}

/// Longest time between two ends, in milliseconds: one request in ten minutes. Longer predictions
/// all mean the same, and sums stay finite.
const TURN_MAX_MS: f32 = 600_000.0;

/// Shortest time between two ends, in milliseconds: a million requests a second, which is as good
/// as no wait.
const TURN_MIN_MS: f32 = 0.001;

/// Mean of the known values.
#[derive(Clone, Copy, Debug, Default)]
struct Average {
    sum: f32,
    count: f32,
}

impl Average {
    fn add(&mut self, value: Option<f32>) {
        if let Some(value) = value {
            self.sum += value;
            self.count += 1.0;
        }
    }

    fn or(self, unknown: f32) -> f32 {
        if self.count > 0.0 { self.sum / self.count } else { unknown }
    }
}
