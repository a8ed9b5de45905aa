//! Course of a load over time.

use std::f64::consts::TAU;

use serde::Deserialize;

use super::Session;
use crate::text::mix;

/// Course of a load over a run, as factors of the load that a workload names.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Course {
    /// Constant load.
    Steady,
    /// Constant load from the first second, and nothing before counts as warm-up.
    Cold,
    /// So much of the load until the caches are warm, and then all of it.
    Ramp {
        /// Factor until [`RAMP_S`].
        before: f64,
    },
    /// Twice the load for [`BURST_S`] seconds from [`BURST_AT_S`] on.
    Burst,
    /// Days of [`DAY_S`] seconds, which begin later from region to region.
    Day,
}

/// Seconds until a ramp is over.
const RAMP_S: f64 = 120.0;
/// Beginning and length of a burst in seconds, and its factor.
const BURST_AT_S: f64 = 120.0;
const BURST_S: f64 = 20.0;
const BURST_FACTOR: f64 = 2.0;
/// Length of a day in seconds: some days fit into a run.
const DAY_S: f64 = 80.0;
/// Highest load of an hour over the lowest one. SkyWalker (<https://arxiv.org/abs/2505.24095>)
/// found at least 2.88 in each region that it looked at.
const DAY_RATIO: f64 = 2.88;

impl Course {
    /// Returns the highest factor.
    pub(crate) fn peak(self) -> f64 {
        match self {
            Self::Steady | Self::Cold | Self::Ramp { .. } => 1.0,
            Self::Burst => BURST_FACTOR,
            // The mean of a day is 1.
            Self::Day => 2.0 * DAY_RATIO / (DAY_RATIO + 1.0),
        }
    }

    /// Returns the moment at which the load has changed and routers should recover from it, in seconds
    /// from the beginning; `None` if there is none.
    pub(crate) fn disturbed_s(self) -> Option<f64> {
        match self {
            Self::Cold => Some(0.0),
            Self::Ramp { .. } => Some(RAMP_S),
            Self::Burst => Some(BURST_AT_S + BURST_S),
            Self::Steady | Self::Day => None,
        }
    }

    /// Leaves so many of the sessions out, which come at the highest load all the time, that the load
    /// takes this course.
    pub(crate) fn thin(self, sessions: Vec<Session>, regions: usize, seed: u64) -> Vec<Session> {
        let mut rng = fastrand::Rng::with_seed(mix(seed, 0x636F_7572));
        let mut stays = |session: &Session| {
            let at_s = session.start.since_start().as_secs_f64();
            let share = self.factor(at_s, session.region as f64 / regions as f64) / self.peak();
            share >= 1.0 || rng.f64() < share
        };
        sessions.into_iter().filter(|session| stays(session)).collect()
    }

    /// Returns the factor at a moment. `phase` is the part of a day by which a region is late.
    fn factor(self, at_s: f64, phase: f64) -> f64 {
        match self {
            Self::Steady | Self::Cold => 1.0,
            Self::Ramp { before } => {
                if at_s < RAMP_S {
                    before
                } else {
                    1.0
                }
            }
            Self::Burst => {
                let is_burst = (BURST_AT_S..BURST_AT_S + BURST_S).contains(&at_s);
                if is_burst { BURST_FACTOR } else { 1.0 }
            }
            Self::Day => {
                let swing = (DAY_RATIO - 1.0) / (DAY_RATIO + 1.0);
                1.0 + swing * (TAU * (at_s / DAY_S - phase)).sin()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Demand, WorkloadKind};

    const RATE: f64 = 100.0;

    /// Returns the sessions a second from one moment until another, in a region of three.
    fn rate(course: Course, from_s: f64, until_s: f64, region: usize) -> f64 {
        let demand = Demand { rates_per_s: vec![RATE * course.peak(); 3], seconds: 300.0, seed: 1 };
        let sessions = course.thin(WorkloadKind::Hot.sessions(&demand), 3, 1);
        let is_there = |session: &&Session| {
            let at_s = session.start.since_start().as_secs_f64();
            session.region == region && (from_s..until_s).contains(&at_s)
        };
        sessions.iter().filter(is_there).count() as f64 / (until_s - from_s)
    }

    fn check(seen: f64, expected: f64) {
        assert!((seen / expected - 1.0).abs() < 0.1, "{seen} instead of {expected} a second");
    }

    #[test]
    fn a_load_rises_and_falls_as_its_course_says() {
        let ramp = Course::Ramp { before: 0.6 };
        check(rate(ramp, 0.0, 120.0, 0), 0.6 * RATE);
        check(rate(ramp, 120.0, 300.0, 0), RATE);
        check(rate(Course::Burst, 120.0, 140.0, 1), 2.0 * RATE);
        check(rate(Course::Burst, 140.0, 300.0, 1), RATE);
        check(rate(Course::Cold, 0.0, 100.0, 2), RATE);
    }

    #[test]
    fn peaks_of_a_day_come_later_from_region_to_region() {
        let lowest = 2.0 * RATE / (DAY_RATIO + 1.0);
        for region in 0..3 {
            let late_s = DAY_S * region as f64 / 3.0;
            // A quarter of a day after its beginning the load is highest, three quarters after
            // lowest.
            let peak_s = late_s + DAY_S * 0.25;
            check(rate(Course::Day, peak_s - 5.0, peak_s + 5.0, region), lowest * DAY_RATIO);
            check(rate(Course::Day, peak_s + 35.0, peak_s + 45.0, region), lowest);
        }
    }
}
