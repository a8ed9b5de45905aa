//! Problems of a node or its cluster, in words, with the next step.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_docs::Page;

/// Kind of a problem: a label of the metric `spillway_health_problem`, and an anchor of
/// docs/guides/health.md.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// The node serves no requests.
    NotServing,
    /// Requests fail.
    RequestsFailing,
    /// Requests are refused for lack of room.
    RequestsRefused,
    /// A replica takes no requests.
    ReplicaAway,
    /// A replica is ejected again and again.
    ReplicaFlaps,
    /// A replica is much slower than others.
    ReplicaSlow,
    /// A replica lacks models.
    ModelMissing,
    /// Discovery of replicas fails.
    DiscoveryFails,
    /// A region is lost.
    RegionLost,
    /// A region's replies fail.
    RegionFailing,
    /// A region has no free slots, and requests wait.
    RegionFull,
    /// The log of the control plane is stopped, not formed, or without a quorum.
    ControlPlane,
    /// Disks or states of nodes are not what the cluster knows.
    StateTrouble,
    /// A node is silent, or its log is stopped.
    NodeAway,
    /// Another node reports a problem of its own.
    NodeReports,
    /// Nodes run different versions.
    VersionSkew,
    /// The clock of a node differs from those of others.
    ClockWrong,
    /// The disk of the data folder is full or does not answer.
    Disk,
    /// Usage can't be written.
    UsageLost,
    /// A certificate ends soon, has ended, or is not valid yet.
    Certificate,
    /// The config file on disk is refused.
    ConfigRefused,
    /// A client is refused for a limit of its own.
    ClientLimited,
}

impl ProblemKind {
    /// All kinds.
    pub const ALL: [Self; 22] = [
        Self::NotServing,
        Self::RequestsFailing,
        Self::RequestsRefused,
        Self::ReplicaAway,
        Self::ReplicaFlaps,
        Self::ReplicaSlow,
        Self::ModelMissing,
        Self::DiscoveryFails,
        Self::RegionLost,
        Self::RegionFailing,
        Self::RegionFull,
        Self::ControlPlane,
        Self::StateTrouble,
        Self::NodeAway,
        Self::NodeReports,
        Self::VersionSkew,
        Self::ClockWrong,
        Self::Disk,
        Self::UsageLost,
        Self::Certificate,
        Self::ConfigRefused,
        Self::ClientLimited,
    ];

    /// Returns the name used in JSON and metric labels, e.g. `requests_failing`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotServing => "not_serving",
            Self::RequestsFailing => "requests_failing",
            Self::RequestsRefused => "requests_refused",
            Self::ReplicaAway => "replica_away",
            Self::ReplicaFlaps => "replica_flaps",
            Self::ReplicaSlow => "replica_slow",
            Self::ModelMissing => "model_missing",
            Self::DiscoveryFails => "discovery_fails",
            Self::RegionLost => "region_lost",
            Self::RegionFailing => "region_failing",
            Self::RegionFull => "region_full",
            Self::ControlPlane => "control_plane",
            Self::StateTrouble => "state_trouble",
            Self::NodeAway => "node_away",
            Self::NodeReports => "node_reports",
            Self::VersionSkew => "version_skew",
            Self::ClockWrong => "clock_wrong",
            Self::Disk => "disk",
            Self::UsageLost => "usage_lost",
            Self::Certificate => "certificate",
            Self::ConfigRefused => "config_refused",
            Self::ClientLimited => "client_limited",
        }
    }

    /// Returns the page of the docs about such problems.
    fn page(self) -> Page {
        match self {
            Self::NotServing | Self::NodeReports => Page::PROBLEM_KINDS,
            Self::RequestsFailing => Page::FAILING_REQUESTS,
            Self::RequestsRefused | Self::RegionFull => Page::SHEDDING,
            Self::ReplicaAway => Page::REPLICA_DOWN,
            Self::ReplicaFlaps | Self::ReplicaSlow => Page::SLOW_REPLICA,
            Self::ModelMissing => Page::MODEL_NOT_FOUND,
            Self::DiscoveryFails => Page::HANGING_NAME_SERVER,
            Self::ClockWrong => Page::WRONG_CLOCK,
            Self::RegionLost => Page::LOST_REGION,
            Self::RegionFailing => Page::FAILING_REGION,
            Self::ControlPlane | Self::StateTrouble | Self::NodeAway => Page::DISASTER_RECOVERY,
            Self::VersionSkew => Page::UPGRADE,
            Self::Disk => Page::FULL_DISK,
            Self::UsageLost => Page::USAGE,
            Self::Certificate => Page::ENDING_CERTIFICATE,
            Self::ConfigRefused => Page::REFUSED_CONFIG,
            Self::ClientLimited => Page::HOT_TENANT,
        }
    }

    /// Returns the view of the console about such problems, as the end of its address.
    fn view(self) -> Option<&'static str> {
        Some(match self {
            Self::RequestsFailing | Self::RequestsRefused => "#/requests",
            Self::ReplicaAway | Self::ReplicaFlaps | Self::ReplicaSlow | Self::ModelMissing => {
                "#/replicas"
            }
            Self::DiscoveryFails => "#/replicas",
            Self::ControlPlane
            | Self::StateTrouble
            | Self::NodeAway
            | Self::NodeReports
            | Self::VersionSkew
            | Self::ClockWrong
            | Self::Disk => "#/control",
            Self::ClientLimited => "#/limits",
            Self::NotServing
            | Self::RegionLost
            | Self::RegionFailing
            | Self::RegionFull
            | Self::UsageLost
            | Self::Certificate
            | Self::ConfigRefused => return None,
        })
    }
}

/// Urgency of a problem.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Urgency {
    /// Clients notice, or will soon: somebody looks at once.
    Page,
    /// Somebody looks in working hours.
    Ticket,
    /// Nothing has to be done.
    Info,
}

/// A problem that a node knows of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Kind of the problem.
    pub kind: ProblemKind,
    /// Urgency of the problem.
    pub urgency: Urgency,
    /// Problem in one line.
    pub title: String,
    /// Cause, and what it means for clients.
    pub cause: String,
    /// Next step.
    pub remedy: String,
    /// Page of the docs about it, below `docs/`, with an anchor where there is one. The node has it at
    /// `/docs/`, ending with `.html` instead of `.md`.
    pub doc: String,
    /// View of the console about it, as the end of its address; null without one.
    pub view: Option<String>,
}

impl Problem {
    /// Makes a problem from its title, cause and remedy.
    pub(super) fn new(
        kind: ProblemKind,
        urgency: Urgency,
        title: impl Into<String>,
        [cause, remedy]: [&str; 2],
    ) -> Self {
        Self {
            kind,
            urgency,
            title: title.into(),
            cause: cause.to_owned(),
            remedy: remedy.to_owned(),
            doc: kind.page().source(),
            view: kind.view().map(str::to_owned),
        }
    }

    /// Replaces the view of the console.
    pub(super) fn at(self, view: String) -> Self {
        Self { view: Some(view), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_serde_writes() {
        for kind in ProblemKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }

    #[test]
    fn every_kind_is_in_the_table_of_incidents() {
        let page = include_str!("../../../../../docs/guides/incidents.md");
        for kind in ProblemKind::ALL {
            let cell = format!("`{}`", kind.name());
            assert!(
                page.lines().any(|line| line.starts_with("| `") && line.contains(&cell)),
                "{cell}"
            );
        }
    }
}
