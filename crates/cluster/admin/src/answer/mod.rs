//! Answers of all endpoints.

mod audit;
mod backup;
mod cluster;
mod command;
mod create;
mod diff;
mod explain;
mod freshness;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod limits;
mod moved;
mod node_row;
mod overview;
mod problem;
mod problems;
mod put;
mod read;
mod requests;
mod rollout;
mod status;
mod steering;
mod trie;
mod trust;
mod usage;
mod verdict;
mod watch;
mod write;

use crate::call::AdminCall;
use crate::endpoint::Operation;
use crate::error::ApiError;
use crate::known_names::{meant, there_are};
use crate::reply::Reply;

pub(crate) use audit::AuditPage;
pub(crate) use cluster::Cluster;
pub(crate) use command::{RegionWeight, ReplicaWeight, RolloutOrder};
pub(crate) use diff::DryRun;
pub(crate) use explain::{ExplainOrder, Explanation, explain};
pub(crate) use freshness::Freshness;
pub(crate) use limits::{LimitItem, Limits, alone as limits_alone};
pub use overview::{HealthReport, health_report};
pub(crate) use overview::{
    NodeAnswer, RoutesAnswer, WorldAnswer, fleet, history, judged, node, routes, world,
};
pub use problem::{Problem, ProblemKind, Urgency};
pub(crate) use read::{Many, One};
pub(crate) use requests::{RequestsAnswer, requests};
pub(crate) use rollout::{GateAnswer, RolloutAnswer};
pub(crate) use status::{LeaderAnswer, StatusAnswer, TransferOrder};
pub(crate) use steering::{SteeringAnswer, steering};
pub(crate) use trie::TrieAnswer;
pub(crate) use trust::TrustAnswer;
pub(crate) use usage::usage;
pub use verdict::Health;
pub(crate) use watch::{Event, Lost};
pub(crate) use write::Written;

/// Carries a request out. For an unknown name, the error lists the known names, and the one that is
/// near.
pub(crate) async fn answer(cluster: &Cluster<'_>, call: &AdminCall) -> Result<Reply, ApiError> {
    carry_out(cluster, call).await.map_err(|error| match command::resource_of(call) {
        Some(resource) if error.is_missing() => {
            let (state, name) = (cluster.control_plane.published(), call.path.join("/"));
            let error = match there_are(&state, resource, &name) {
                Some(remedy) => error.with_names(remedy),
                None => error,
            };
            match meant(&state, resource, &name) {
                Some(meant) => error.with_meant(&meant),
                None => error,
            }
        }
        _ => error,
    })
}

/// Describes in words an order for which the log has no command.
pub(crate) fn text_of(call: &AdminCall) -> Option<String> {
    match call.endpoint.operation {
        // It holds all that the cluster knows, salts and hashes of keys too.
        Operation::Backup => Some("take a backup".to_owned()),
        Operation::TransferLeader => Some(status::transfer_text(call)),
        Operation::TrustDisk => {
            Some("trust the disk of this node, which is from the past".to_owned())
        }
        _ => None,
    }
}

async fn carry_out(cluster: &Cluster<'_>, call: &AdminCall) -> Result<Reply, ApiError> {
    match call.endpoint.operation {
        Operation::List(resource) => read::list(cluster, call, resource).await,
        Operation::Show(resource) => read::show(cluster, call, resource).await,
        Operation::Audit => audit::audit(cluster, call).await,
        Operation::Status => Ok(status::status(cluster)),
        Operation::Leader => Ok(status::leader(cluster)),
        Operation::TransferLeader => status::transfer(cluster, call).await,
        Operation::TrustDisk => trust::trust_disk(cluster, call).await,
        Operation::Watch => watch::watch(cluster, call).await,
        Operation::Backup => backup::backup(cluster).await,
        Operation::Trie => trie::trie(cluster, call).await,
        Operation::Rollout => rollout::rollout(cluster, call).await,
        Operation::RolloutGate => rollout::gate(cluster, call).await,
        Operation::CreateKey => create::key(cluster, call).await,
        Operation::CreateJoinToken => create::join_token(cluster, call).await,
        Operation::Put(_) | Operation::Patch(_) => put::put(cluster, call).await,
        Operation::Remove(_)
        | Operation::RevokeKey
        | Operation::SetNodeOperators
        | Operation::SetRegionState(_)
        | Operation::SetRegionWeight
        | Operation::SetReplicaState(_)
        | Operation::SetReplicaWeight
        | Operation::ChangeRollout(_)
        | Operation::RotatePrefixKey => {
            let (about, order) = command::command(cluster, call).await?;
            write::write(cluster, call, &about, order).await
        }
        // Answered before this function is called, since they need no cluster.
        Operation::OpenApi
        | Operation::Explain
        | Operation::Steering
        | Operation::Node
        | Operation::Live
        | Operation::World
        | Operation::History
        | Operation::Fleet
        | Operation::Routes
        | Operation::Usage
        | Operation::Requests
        | Operation::Reasons => Err(ApiError::internal("this is answered without a cluster")),
    }
}
