//! Answers of all endpoints.

mod audit;
mod backup;
mod command;
mod create;
mod diff;
mod explain;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod limits;
mod read;
mod status;
mod steering;
mod trie;
mod watch;
mod write;

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_control_plane::ControlPlane;
use spillway_raft::{Consistency, Read};
use tokio::sync::Semaphore;

use crate::access::Credential;
use crate::call::AdminCall;
use crate::config::AdminConfig;
use crate::endpoint::Operation;
use crate::error::{ApiError, LeaderHint};
use crate::own_limits::OwnLimits;
use crate::reply::Reply;

pub(crate) use audit::AuditPage;
pub(crate) use command::{RegionWeight, ReplicaWeight};
pub(crate) use diff::DryRun;
pub(crate) use explain::{ExplainOrder, Explanation, explain};
pub(crate) use limits::{LimitItem, Limits, alone as limits_alone};
pub(crate) use read::{Many, One};
pub(crate) use status::{LeaderAnswer, StatusAnswer, TransferOrder};
pub(crate) use steering::{SteeringAnswer, steering};
pub(crate) use trie::TrieAnswer;
pub(crate) use watch::{Event, Lost};
pub(crate) use write::Written;

/// Services and state that answers are made from.
pub(crate) struct Cluster<'a> {
    pub(crate) control_plane: Arc<ControlPlane>,
    pub(crate) config: &'a AdminConfig,
    pub(crate) watchers: &'a Arc<Semaphore>,
    pub(crate) backups: &'a Arc<Semaphore>,
    /// Credential of the caller.
    pub(crate) credential: &'a Credential,
    /// Limits of this node's config file.
    pub(crate) own_limits: Option<&'a dyn OwnLimits>,
}

/// Freshness of an answer.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Freshness {
    /// Index of the last entry that the answer has seen; 0 before the first.
    pub(crate) index: u64,
    /// Greatest possible age, in milliseconds; null if this node was never in contact with a
    /// leader.
    pub(crate) age_ms: Option<u64>,
    /// `linearizable` or `stale`.
    pub(crate) consistency: String,
}

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
        Operation::OpenApi | Operation::Explain | Operation::Steering => {
            Err(ApiError::internal("this is answered without a cluster"))
        }
    }
}

impl Cluster<'_> {
    /// Returns the leader, as far as this node knows.
    pub(crate) fn leader(&self) -> Option<LeaderHint> {
        let (node, region) = self.control_plane.leader()?;
        Some(LeaderHint { node: node.to_string(), region: region.to_string() })
    }
}

impl Freshness {
    pub(crate) fn of<R>(read: &Read<R>, consistency: Consistency) -> Self {
        let name = match consistency {
            Consistency::Linearizable => "linearizable",
            Consistency::Stale => "stale",
        };
        Self {
            index: read.index.unwrap_or(0),
            age_ms: read.age.map(whole_ms),
            consistency: name.to_owned(),
        }
    }
}

pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
