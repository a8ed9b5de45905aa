//! Kinds of trials of the data path.

use std::path::PathBuf;
use std::time::Duration;

use super::stage::LoadStage;
use super::{abuse, kill, overload, region, retry_after, rolling, sick, storm};
use crate::trial::TrialReport;

/// Kind of trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LoadTrial {
    /// Twice and five times the load that replicas can serve.
    Overload,
    /// Clients that come again after a Retry-After.
    Comeback,
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

/// Settings of a trial.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// Kind of trial.
    pub trial: LoadTrial,
    /// Number of rounds.
    pub rounds: usize,
    /// True for a quarter of the usual times, to see if the trial works.
    pub is_short: bool,
    /// Path of the `spillway` program.
    pub binary: PathBuf,
    /// Path of the `spillway-chaos` program, which cleans up if this process is killed.
    pub launcher: PathBuf,
    /// Seed of all randomness.
    pub seed: u64,
    /// True if logs and configs are kept.
    pub keep: bool,
    /// Reports progress to a person.
    pub progress: fn(&str),
}

impl LoadPlan {
    pub(crate) fn say(&self, line: &str) {
        (self.progress)(line);
    }

    /// Returns the duration of a phase: `usual`, or a quarter of it.
    pub(crate) fn time(&self, usual: Duration) -> Duration {
        if self.is_short { usual / 4 } else { usual }
    }

    /// Ends a stage and keeps its folder if the plan says so.
    pub(crate) fn done(&self, mut stage: LoadStage) {
        if self.keep {
            let folder = stage.keep_folder();
            self.say(&format!("logs and configs are kept in {}", folder.display()));
        }
    }
}

impl LoadTrial {
    /// Returns the name used on the command line and in the report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Overload => "overload",
            Self::Comeback => "comeback",
            Self::Storm => "storm",
            Self::Sick => "sick",
            Self::Kill => "kill",
            Self::Region => "region",
            Self::Rolling => "rolling",
            Self::Abuse => "abuse",
        }
    }
}

/// Runs the trial.
///
/// # Errors
/// Returns an error if the trial could not be run. A trial that ran and missed its aim is in the
/// report.
pub async fn run(plan: &LoadPlan) -> anyhow::Result<TrialReport> {
    match plan.trial {
        LoadTrial::Overload => overload::run(plan).await,
        LoadTrial::Comeback => retry_after::run(plan).await,
        LoadTrial::Storm => storm::run(plan).await,
        LoadTrial::Sick => sick::run(plan).await,
        LoadTrial::Kill => kill::run(plan).await,
        LoadTrial::Region => region::run(plan).await,
        LoadTrial::Rolling => rolling::run(plan).await,
        LoadTrial::Abuse => abuse::run(plan).await,
    }
}
