//! Writes: carries commands out.

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_cluster_state::{Actor, Command, Outcome, RecordKey, RequestId};

use super::cluster::Cluster;
use super::diff;
use crate::call::AdminCall;
use crate::error::ApiError;
use crate::fault;
use crate::reply::{Reply, json};
use crate::secrets::random;

/// Result of a write.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Written {
    /// Index of the entry in the log: a read that has seen this index has seen the write.
    pub(crate) index: u64,
    /// `applied`, or `unchanged` if the command changed nothing.
    pub(crate) outcome: String,
    /// Version of the written record; null if nothing was written.
    pub(crate) version: Option<u64>,
}

/// Carries `command` out, or, for a dry run, shows its changes.
pub(super) async fn write(
    cluster: &Cluster<'_>,
    call: &AdminCall,
    about: &RecordKey,
    command: Command,
) -> Result<Reply, ApiError> {
    if call.query.is_dry_run {
        return diff::dry_run(cluster, call, about, &command).await;
    }
    Ok(json(StatusCode::OK, &carry_out(cluster, call, about, command).await?))
}

pub(super) async fn carry_out(
    cluster: &Cluster<'_>,
    call: &AdminCall,
    about: &RecordKey,
    command: Command,
) -> Result<Written, ApiError> {
    let request = match call.request {
        Some(request) => request,
        // A random id makes the attempts of this call one request.
        None => RequestId::unkeyed(random()?),
    };
    let limit = cluster.config.time_limit;
    let proposed = cluster.control_plane.propose(command, actor(call), Some(request), limit);
    let done = proposed.await.map_err(|error| fault::of_propose(error, cluster.leader()))?;
    // A client that makes or revokes a key may try it at once, at the node that has answered.
    if matches!(about, RecordKey::Key(_) | RecordKey::Tenant(_)) {
        cluster.settle(done.index).await;
    }
    let (outcome, version) = match done.outcome {
        Outcome::Applied { version, .. } => ("applied", Some(version)),
        Outcome::Unchanged => ("unchanged", None),
        Outcome::Conflict { key, current } => return Err(fault::of_conflict(&key, current)),
        Outcome::Refused(refusal) => return Err(fault::of_refusal(refusal, about)),
    };
    Ok(Written { index: done.index, outcome: outcome.to_owned(), version })
}

pub(super) fn actor(call: &AdminCall) -> Actor {
    Actor::Operator(call.caller.name.clone())
}
