//! Load of the machine during a run.

use std::time::Duration;

use serde::Serialize;
use spillway_harness::quantile;

use super::exchange::Observation;
use crate::procfs::{MachineTime, TreeUsage, tree_usage};

/// Interval between two samples.
const SAMPLE: Duration = Duration::from_secs(1);

/// Largest mean share of all cores in use; above it a run measures the machine instead of the
/// gateway.
const BUSY_MEAN_MAX: f64 = 0.85;

/// Share of all cores from which a second counts as saturated; the next constant is the largest
/// part of saturated seconds in a valid run.
const BUSY_SECOND: f64 = 0.97;
const BUSY_SECONDS_PART_MAX: f64 = 0.15;

/// Largest p99 of late sending in milliseconds. Above it the arrivals are not those that were
/// planned.
const LATE_P99_MAX_MS: f64 = 30.0;

/// Load of the machine during one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Conditions {
    /// Mean share of all cores in use, by any process.
    pub(crate) busy_mean: f64,
    /// Share of all cores in use in the busiest second.
    pub(crate) busy_max: f64,
    /// Mean share of all cores used by load, gateway and replicas.
    pub(crate) own_mean: f64,
    /// p99 of the time in milliseconds by which requests were sent late.
    pub(crate) late_p99_ms: f64,
    /// Reasons why the run is no evidence about speed; empty if it is valid.
    pub(crate) spoilt: Vec<String>,
}

/// Sampler of the machine's load, once a second.
#[derive(Debug)]
pub(crate) struct MachineWatch {
    first: (MachineTime, TreeUsage),
    last: MachineTime,
    busy: Vec<f64>,
}

impl MachineWatch {
    /// Starts the measurement now.
    ///
    /// # Errors
    /// Returns an error if `/proc` cannot be read.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let now = MachineTime::now()?;
        Ok(Self { first: (now, tree_usage(std::process::id())?), last: now, busy: Vec::new() })
    }

    /// Takes samples forever.
    ///
    /// # Errors
    /// Returns an error if `/proc` cannot be read.
    pub(crate) async fn run(&mut self) -> anyhow::Result<std::convert::Infallible> {
        loop {
            tokio::time::sleep(SAMPLE).await;
            let now = MachineTime::now()?;
            self.busy.extend(now.busy_since(&self.last));
            self.last = now;
        }
    }

    /// Returns the load of the machine since the start.
    ///
    /// # Errors
    /// Returns an error if `/proc` cannot be read.
    pub(crate) fn finish(self, observations: &[Observation]) -> anyhow::Result<Conditions> {
        let (first, first_usage) = self.first;
        let (now, usage) = (MachineTime::now()?, tree_usage(std::process::id())?);
        let passed_s = now.cpu_s_since(&first);
        let own_mean = usage.cpu_s_since(&first_usage) / passed_s.max(f64::MIN_POSITIVE);
        let busy_mean = now.busy_since(&first).unwrap_or_default();
        let late = observations.iter().map(|seen| seen.sent.saturating_sub(seen.due));
        let late_p99_ms = quantile(late.map(|late| late.as_secs_f64() * 1000.0), 0.99);
        Ok(conditions(busy_mean, own_mean, &self.busy, late_p99_ms.unwrap_or_default()))
    }
}

fn conditions(busy_mean: f64, own_mean: f64, seconds: &[f64], late_p99_ms: f64) -> Conditions {
    let mut spoilt = Vec::new();
    if busy_mean > BUSY_MEAN_MAX {
        spoilt.push(format!("the machine was {:.0} % busy", busy_mean * 100.0));
    }
    // The mean hides a few full seconds, in which latency is no measure of the gateway.
    let full = seconds.iter().filter(|busy| **busy >= BUSY_SECOND).count();
    if full as f64 > seconds.len() as f64 * BUSY_SECONDS_PART_MAX {
        spoilt.push(format!("the machine was saturated in {full} of {} s", seconds.len()));
    }
    if late_p99_ms > LATE_P99_MAX_MS {
        spoilt.push(format!("requests were sent up to {late_p99_ms:.0} ms late"));
    }
    let busy_max = seconds.iter().copied().fold(0.0, f64::max);
    Conditions { busy_mean, busy_max, own_mean, late_p99_ms, spoilt }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saturated_machine_spoils_a_run_and_a_short_peak_does_not() {
        let calm = [vec![0.5; 18], vec![0.99; 2]].concat();
        let on_time = 2.0;
        assert_eq!(conditions(0.5, 0.4, &calm, on_time).spoilt, Vec::<String>::new());
        assert!((conditions(0.5, 0.4, &calm, on_time).busy_max - 0.99).abs() < 1e-9);
        let peaks = [vec![0.5; 10], vec![0.99; 10]].concat();
        assert_eq!(conditions(0.75, 0.4, &peaks, on_time).spoilt.len(), 1);
        assert_eq!(conditions(0.9, 0.4, &calm, on_time).spoilt.len(), 1);
        assert_eq!(conditions(0.5, 0.4, &calm, 31.0).spoilt.len(), 1);
    }
}
