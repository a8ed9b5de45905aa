//! Everything that was found.

use serde::Serialize;

use super::{
    account::Account,
    config::Health,
    fault::Fault,
    herd::Herd,
    machine::{Conditions, Origin},
    matrix::Cell,
    mixed::Mixed,
    slow::Slow,
};

/// What came of one attempt to measure.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome<T> {
    /// It was measured.
    Measured(T),
    /// This binary lacks what it takes.
    Unavailable(String),
    /// Something went wrong, which is a result too.
    Broken(String),
}

/// One run and what it was about.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row<K, T> {
    /// The policy.
    pub(crate) policy: String,
    /// What else tells rows apart.
    pub(crate) about: K,
    /// What came of it.
    pub(crate) outcome: Outcome<T>,
}

/// Whether new replicas are spared at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SlowStart {
    /// `health.slow_start_ms = 0`, or a binary that knows no slow start.
    Off,
    /// `health.slow_start_ms = 10000`.
    On,
}

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Results {
    /// Where it comes from.
    pub(crate) origin: Origin,
    /// Seed of everything that was drawn.
    pub(crate) seed: u64,
    /// Requests per second.
    pub(crate) rate_per_s: f64,
    /// Seconds of each cell of the matrix, and of the mixed part.
    pub(crate) seconds: (u16, u16),
    /// Runs at a time.
    pub(crate) jobs: u8,
    /// Settings of `[health]`; none if the binary has no health checks.
    pub(crate) health: Option<Health>,
    /// Policy × fault.
    pub(crate) matrix: Vec<Row<Fault, Cell>>,
    /// Faults in random order.
    pub(crate) mixed: Vec<Row<(), Mixed>>,
    /// One slow replica.
    pub(crate) slow: Vec<Row<(), Slow>>,
    /// Ten cold replicas.
    pub(crate) herd: Vec<Row<SlowStart, Herd>>,
}

/// What every kind of run has.
pub(crate) trait Run {
    /// What became of its requests.
    fn account(&self) -> &Account;
    /// What the machine did meanwhile.
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

impl<T> Outcome<T> {
    /// What was measured, if it was.
    pub(crate) fn measured(&self) -> Option<&T> {
        match self {
            Self::Measured(value) => Some(value),
            Self::Unavailable(_) | Self::Broken(_) => None,
        }
    }
}

impl Results {
    /// All runs that were measured, with names.
    pub(crate) fn runs(&self) -> Vec<(String, &dyn Run)> {
        let mut runs: Vec<(String, &dyn Run)> = Vec::new();
        collect(&self.matrix, |row| row.about.name(), &mut runs);
        collect(&self.mixed, |_| "mixed", &mut runs);
        collect(&self.slow, |_| "slow", &mut runs);
        collect(&self.herd, |_| "herd", &mut runs);
        runs
    }

    /// All attempts that went wrong, with the reason.
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
    rows: &'a [Row<K, T>],
    about: impl Fn(&Row<K, T>) -> &'static str,
    runs: &mut Vec<(String, &'a dyn Run)>,
) {
    for row in rows {
        if let Outcome::Measured(run) = &row.outcome {
            runs.push((format!("{} × {}", row.policy, about(row)), run));
        }
    }
}

fn collect_broken<K, T>(rows: &[Row<K, T>], broken: &mut Vec<String>) {
    for row in rows {
        if let Outcome::Broken(why) = &row.outcome {
            broken.push(format!("{}: {why}", row.policy));
        }
    }
}

#[cfg(test)]
#[path = "results_test.rs"]
pub(crate) mod tests;
