//! Settings of a run of trials, and the networks that trials run on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::wan::{Topology, config};

/// Settings of a run of trials of one kind.
#[derive(Clone, Debug)]
pub struct TrialPlan {
    /// Number of trials. With `linear` the number of faults, with `commit` the seconds of full load,
    /// with load the rounds.
    pub trials: usize,
    /// True for a quarter of the usual times, to see if a trial of load works.
    pub is_short: bool,
    /// Path of the `spillway` program.
    pub binary: PathBuf,
    /// Path of the `spillway-chaos` program, which cleans up if this process is killed.
    pub launcher: PathBuf,
    /// Seed of all randomness.
    pub seed: u64,
    /// True if logs, configs and data are kept after a success, too.
    pub keep: bool,
    /// Reports progress to a person.
    pub progress: fn(&str),
}

/// Network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Wan {
    /// Three regions at 80, 220 and 170 ms.
    Three,
    /// Three regions at 80 ms each.
    Uniform,
    /// Five regions, 40 to 250 ms apart.
    Five,
    /// As `three`, each region behind address translation.
    Nat,
}

impl TrialPlan {
    /// Reports progress.
    pub(crate) fn say(&self, line: &str) {
        (self.progress)(line);
    }

    /// Returns the duration of a phase: `usual`, or a quarter of it.
    pub(crate) fn time(&self, usual: Duration) -> Duration {
        if self.is_short { usual / 4 } else { usual }
    }

    /// Returns the paths of `spillway` and `spillway-chaos`.
    pub(crate) fn programs(&self) -> (&Path, &Path) {
        (&self.binary, &self.launcher)
    }
}

impl Wan {
    /// Returns the name used on the command line and in the report.
    #[must_use]
    pub fn name(self) -> String {
        name_of(self)
    }

    pub(crate) fn topology(self) -> anyhow::Result<Topology> {
        let text = match self {
            Self::Three => include_str!("../wans/three.toml"),
            Self::Uniform => include_str!("../wans/uniform.toml"),
            Self::Five => include_str!("../wans/five.toml"),
            Self::Nat => include_str!("../wans/nat.toml"),
        };
        Ok(config::parse(text, Path::new("."))?)
    }
}

/// Returns the name of a value on the command line.
pub(crate) fn name_of<V: clap::ValueEnum>(value: V) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
