//! Kinds of trials of the control plane, and their networks.

use std::path::{Path, PathBuf};

use super::cluster::TrialCluster;
use super::report::TrialReport;
use super::{boot, bridge, commit, crash, failover, grow, linear, quorum, slowdisk};
use crate::wan::{Topology, config};

/// Kind of trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TrialPart {
    /// Time of a commit, and commits a second.
    Commit,
    /// The leader is killed, cut off, and cut off in one direction.
    Failover,
    /// The leader and one follower lose each other.
    Bridge,
    /// No part of the cluster has a majority: always on five regions.
    Quorum,
    /// Two regions join by token and are removed again, under load: on five regions, or on `nat`.
    Grow,
    /// Concurrent clients over kills and cuts, with a check of linearizability.
    Linear,
    /// All nodes start for the first time.
    Boot,
    /// All nodes are killed while they write.
    Crash,
    /// A node's disk takes half a second more for each force.
    Slowdisk,
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

/// Settings of a trial.
#[derive(Clone, Debug)]
pub struct TrialPlan {
    /// Kind of trial.
    pub part: TrialPart,
    /// Network.
    pub wan: Wan,
    /// Number of trials; with `linear` the number of faults, with `commit` the seconds of full
    /// load.
    pub trials: usize,
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

impl TrialPlan {
    pub(crate) fn say(&self, line: &str) {
        (self.progress)(line);
    }
}

impl Wan {
    /// Returns the name used on the command line and in the report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Three => "three",
            Self::Uniform => "uniform",
            Self::Five => "five",
            Self::Nat => "nat",
        }
    }

    pub(crate) fn topology(self) -> anyhow::Result<Topology> {
        let text = match self {
            Self::Three => include_str!("../../wans/three.toml"),
            Self::Uniform => include_str!("../../wans/uniform.toml"),
            Self::Five => include_str!("../../wans/five.toml"),
            Self::Nat => include_str!("../../wans/nat.toml"),
        };
        Ok(config::parse(text, Path::new("."))?)
    }
}

impl TrialPart {
    /// Returns the network that this part runs on: the one it needs, else the one asked for.
    #[must_use]
    pub fn wan(self, asked: Wan) -> Wan {
        match (self, asked) {
            (Self::Quorum, _) => Wan::Five,
            // Three voters become five; behind translation one becomes three.
            (Self::Grow, wan) if wan != Wan::Nat => Wan::Five,
            (_, wan) => wan,
        }
    }

    /// Returns the name used on the command line and in the report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Failover => "failover",
            Self::Bridge => "bridge",
            Self::Quorum => "quorum",
            Self::Grow => "grow",
            Self::Linear => "linear",
            Self::Boot => "boot",
            Self::Crash => "crash",
            Self::Slowdisk => "slowdisk",
        }
    }
}

/// Makes the network and the cluster, runs the trial, and ends both.
///
/// # Errors
/// Returns an error if the trial could not be run. A trial that ran and missed its aim is in the
/// report.
pub async fn run(plan: &TrialPlan) -> anyhow::Result<TrialReport> {
    let wan = plan.part.wan(plan.wan);
    let edges: &[usize] = if plan.part == TrialPart::Quorum { &[quorum::EDGE] } else { &[] };
    let programs = (plan.binary.as_path(), plan.launcher.as_path());
    let mut cluster = TrialCluster::new(wan.topology()?, programs, edges)?;
    let ran = match plan.part {
        TrialPart::Commit => commit::run(plan, &mut cluster).await,
        TrialPart::Failover => failover::run(plan, &mut cluster).await,
        TrialPart::Bridge => bridge::run(plan, &mut cluster).await,
        TrialPart::Quorum => quorum::run(plan, &mut cluster).await,
        TrialPart::Grow => grow::run(plan, &mut cluster).await,
        TrialPart::Linear => linear::run(plan, &mut cluster).await,
        TrialPart::Boot => boot::run(plan, &mut cluster).await,
        TrialPart::Crash => crash::run(plan, &mut cluster).await,
        TrialPart::Slowdisk => slowdisk::run(plan, &mut cluster).await,
    };
    if ran.is_err() || plan.keep {
        let folder = cluster.keep_folder();
        plan.say(&format!("logs and configs are kept in {}", folder.display()));
    }
    ran
}
