//! Kinds of trials of the control plane.

use super::cluster::TrialCluster;
use super::report::TrialReport;
use super::{boot, bridge, commit, crash, failover, grow, linear, quorum, slowdisk};
use crate::plan::{TrialPlan, Wan, name_of};

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
    pub fn name(self) -> String {
        name_of(self)
    }
}

/// Makes the network `wan` and the cluster, runs the trials of `part`, and ends both.
///
/// # Errors
/// Returns an error if the trials could not be run. A trial that ran and missed its aim is in the
/// report.
pub async fn run(part: TrialPart, wan: Wan, plan: &TrialPlan) -> anyhow::Result<TrialReport> {
    let edges: &[usize] = if part == TrialPart::Quorum { &[quorum::EDGE] } else { &[] };
    let topology = part.wan(wan).topology()?;
    let mut cluster = TrialCluster::new(topology, plan.programs(), edges)?;
    let ran = match part {
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
