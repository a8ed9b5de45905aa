//! Kinds of trials of the data path.

use super::{abuse, kill, overload, region, retry_after, rolling, sick, storm};
use crate::plan::{TrialPlan, name_of};
use crate::trial::TrialReport;

/// Kind of trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LoadTrial {
    /// Twice and five times the load that replicas can serve.
    Overload,
    /// Clients that come again after a Retry-After.
    RetryAfter,
    /// Replicas that fail: the retries that this adds.
    Storm,
    /// A tenant or replica that misbehaves, and the others.
    Sick,
    /// A replica killed every two seconds.
    Kill,
    /// A region killed under load.
    Region,
    /// All nodes restarted under load, one after the other.
    Rolling,
    /// Attackers that try to exhaust the node.
    Abuse,
}

impl LoadTrial {
    /// Returns the name used on the command line and in the report.
    #[must_use]
    pub fn name(self) -> String {
        name_of(self)
    }
}

/// Runs the rounds of `trial`.
///
/// # Errors
/// Returns an error if the trial could not be run. A trial that ran and missed its aim is in the
/// report.
pub async fn run(trial: LoadTrial, plan: &TrialPlan) -> anyhow::Result<TrialReport> {
    match trial {
        LoadTrial::Overload => overload::run(plan).await,
        LoadTrial::RetryAfter => retry_after::run(plan).await,
        LoadTrial::Storm => storm::run(plan).await,
        LoadTrial::Sick => sick::run(plan).await,
        LoadTrial::Kill => kill::run(plan).await,
        LoadTrial::Region => region::run(plan).await,
        LoadTrial::Rolling => rolling::run(plan).await,
        LoadTrial::Abuse => abuse::run(plan).await,
    }
}
