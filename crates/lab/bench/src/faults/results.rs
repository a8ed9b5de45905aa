//! Results of all runs.

use serde::Serialize;

use super::{
    account::Account, config::Health, fault::Fault, herd::Herd, machine::Conditions, matrix::Cell,
    mixed::Mixed, slow::Slow,
};
use crate::origin::Origin;

/// Result of an attempt to measure.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResultOutcome<T> {
    /// The run was measured.
    Measured(T),
    /// The binary lacks a feature that the run needs.
    Unavailable(String),
    /// The run failed, which is a result too.
    Broken(String),
}

/// Result of one run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ResultRow<K, T> {
    /// Policy of the run.
    pub(crate) policy: String,
    /// Key that distinguishes the rows of one policy.
    pub(crate) about: K,
    /// Result.
    pub(crate) outcome: ResultOutcome<T>,
}

/// Slow start of new replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SlowStart {
    /// `health.slow_start_ms = 0`, or a binary without slow start.
    Off,
    /// `health.slow_start_ms = 10000`.
    On,
}

/// Results of all parts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Results {
    /// Origin of the results.
    pub(crate) origin: Origin,
    /// Seed of all randomness.
    pub(crate) seed: u64,
    /// Requests per second.
    pub(crate) rate_per_s: f64,
    /// Seconds of each cell of the matrix, and of the mixed part.
    pub(crate) seconds: (u16, u16),
    /// Number of runs at a time.
    pub(crate) jobs: u8,
    /// Settings of `[health]`; `None` if the binary has no health checks.
    pub(crate) health: Option<Health>,
    /// Results of each policy with each fault.
    pub(crate) matrix: Vec<ResultRow<Fault, Cell>>,
    /// Results with faults in random order.
    pub(crate) mixed: Vec<ResultRow<(), Mixed>>,
    /// Results with one slow replica.
    pub(crate) slow: Vec<ResultRow<(), Slow>>,
    /// Results with ten cold replicas.
    pub(crate) herd: Vec<ResultRow<SlowStart, Herd>>,
}

/// Common part of all kinds of runs.
pub(crate) trait Run {
    /// Returns the results of the requests.
    fn account(&self) -> &Account;
    /// Returns the load of the machine during the run.
    fn conditions(&self) -> &Conditions;
}

macro_rules! run {
    ($($kind:ty),*) => {$(
        impl Run for $kind {
            fn account(&self) -> &Account {
                &self.account
            }
            fn conditions(&self) -> &Conditions {
                &self.conditions
            }
        }
    )*};
}

run!(Cell, Mixed, Slow, Herd);

impl<T> ResultOutcome<T> {
    /// Returns the measured run; `None` if there is none.
    pub(crate) fn measured(&self) -> Option<&T> {
        match self {
            Self::Measured(value) => Some(value),
            Self::Unavailable(_) | Self::Broken(_) => None,
        }
    }
}

impl Results {
    /// Lists all measured runs with their names.
    pub(crate) fn runs(&self) -> Vec<(String, &dyn Run)> {
        let mut runs: Vec<(String, &dyn Run)> = Vec::new();
        collect(&self.matrix, |row| row.about.name(), &mut runs);
        collect(&self.mixed, |_| "mixed".to_owned(), &mut runs);
        collect(&self.slow, |_| "slow".to_owned(), &mut runs);
        collect(&self.herd, |_| "herd".to_owned(), &mut runs);
        runs
    }

    /// Lists all failed runs with their reasons.
    pub(crate) fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        collect_broken(&self.matrix, &mut broken);
        collect_broken(&self.mixed, &mut broken);
        collect_broken(&self.slow, &mut broken);
        collect_broken(&self.herd, &mut broken);
        broken
    }
}

fn collect<'a, K, T: Run>(
    rows: &'a [ResultRow<K, T>],
    about: impl Fn(&ResultRow<K, T>) -> String,
    runs: &mut Vec<(String, &'a dyn Run)>,
) {
    for row in rows {
        if let ResultOutcome::Measured(run) = &row.outcome {
            runs.push((format!("{} × {}", row.policy, about(row)), run));
        }
    }
}

fn collect_broken<K, T>(rows: &[ResultRow<K, T>], broken: &mut Vec<String>) {
    for row in rows {
        if let ResultOutcome::Broken(why) = &row.outcome {
            broken.push(format!("{}: {why}", row.policy));
        }
    }
}

#[cfg(test)]
#[path = "results_test.rs"]
pub(crate) mod tests;
