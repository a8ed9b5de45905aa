//! Which trials of load there are.

use std::path::PathBuf;
use std::time::Duration;

use super::stage::Stage;
use super::{abuse, comeback, kill, overload, region, rolling, sick, storm};
use crate::trial::Report;

/// A kind of trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Trial {
    /// Twice and five times the load that replicas can serve.
    Overload,
    /// Clients that come again when they were told to.
    Comeback,
    /// Replicas that fail: what retries add to it.
    Storm,
    /// One tenant or replica that misbehaves, and the others.
    Sick,
    /// A replica killed every two seconds.
    Kill,
    /// A region killed under load.
    Region,
    /// All nodes restarted under load, one after the other.
    Rolling,
    /// Clients that want to use up the node.
    Abuse,
}

/// What is tried.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The kind.
    pub trial: Trial,
    /// How often.
    pub rounds: usize,
    /// A quarter of the usual times, to see whether it works.
    pub is_short: bool,
    /// The `spillway` program.
    pub binary: PathBuf,
    /// The `spillway-chaos` program, which ends what is left if this one is killed.
    pub launcher: PathBuf,
    /// Of all chance in it.
    pub seed: u64,
    /// Whether logs and configs stay.
    pub keep: bool,
    /// Tells a person how far it is.
    pub progress: fn(&str),
}

impl Plan {
    pub(crate) fn say(&self, line: &str) {
        (self.progress)(line);
    }

    /// How long something lasts.
    pub(crate) fn time(&self, usual: Duration) -> Duration {
        if self.is_short { usual / 4 } else { usual }
    }

    /// Ends a stage.
    pub(crate) fn done(&self, mut stage: Stage) {
        if self.keep {
            let folder = stage.keep_folder();
            self.say(&format!("logs and configs are kept in {}", folder.display()));
        }
    }
}

impl Trial {
    /// Its name on the command line and in the report.
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

/// Tries it.
///
/// # Errors
/// If something could not be tried. What was tried and failed is in the report.
pub async fn run(plan: &Plan) -> anyhow::Result<Report> {
    match plan.trial {
        Trial::Overload => overload::run(plan).await,
        Trial::Comeback => comeback::run(plan).await,
        Trial::Storm => storm::run(plan).await,
        Trial::Sick => sick::run(plan).await,
        Trial::Kill => kill::run(plan).await,
        Trial::Region => region::run(plan).await,
        Trial::Rolling => rolling::run(plan).await,
        Trial::Abuse => abuse::run(plan).await,
    }
}
