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
mod overview;
mod read;
mod requests;
mod status;
mod steering;
mod trie;
mod usage;
mod verdict;
mod watch;
mod write;

use crate::call::AdminCall;
use crate::endpoint::Operation;
use crate::error::ApiError;
use crate::reply::Reply;

pub(crate) use audit::AuditPage;
pub(crate) use cluster::Cluster;
pub(crate) use command::{RegionWeight, ReplicaWeight};
pub(crate) use diff::DryRun;
pub(crate) use explain::{ExplainOrder, Explanation, explain};
pub(crate) use freshness::Freshness;
pub(crate) use limits::{LimitItem, Limits, alone as limits_alone};
pub(crate) use overview::{NodeAnswer, WorldAnswer, node, node_answer, world};
pub(crate) use read::{Many, One};
pub(crate) use requests::{RequestsAnswer, requests};
pub(crate) use status::{LeaderAnswer, StatusAnswer, TransferOrder};
pub(crate) use steering::{SteeringAnswer, steering};
pub(crate) use trie::TrieAnswer;
pub(crate) use usage::usage;
pub(crate) use watch::{Event, Lost};
pub(crate) use write::Written;

/// Carries a request out.
pub(crate) async fn answer(cluster: &Cluster<'_>, call: &AdminCall) -> Result<Reply, ApiError> {
    match call.endpoint.operation {
        Operation::List(resource) => read::list(cluster, call, resource).await,
        Operation::Show(resource) => read::show(cluster, call, resource).await,
        Operation::Audit => audit::audit(cluster, call).await,
        Operation::Status => Ok(status::status(cluster)),
        Operation::Leader => Ok(status::leader(cluster)),
        Operation::TransferLeader => status::transfer(cluster, call).await,
        Operation::Watch => watch::watch(cluster, call).await,
        Operation::Backup => backup::backup(cluster).await,
        Operation::Trie => trie::trie(cluster, call).await,
        Operation::CreateKey => create::key(cluster, call).await,
        Operation::CreateJoinToken => create::join_token(cluster, call).await,
        Operation::Put(_)
        | Operation::Remove(_)
        | Operation::RevokeKey
        | Operation::SetNodeOperators
        | Operation::SetRegionState(_)
        | Operation::SetRegionWeight
        | Operation::SetReplicaState(_)
        | Operation::SetReplicaWeight
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
        | Operation::Usage
        | Operation::Requests => Err(ApiError::internal("this is answered without a cluster")),
    }
}
