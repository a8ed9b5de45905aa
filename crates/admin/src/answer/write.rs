//! Writes: carries commands out.

use std::time::Duration;

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_cluster_state::{Actor, Command, Outcome, RecordKey, RequestId};
use spillway_control_plane::ControlPlane;
use spillway_raft::{ProposeError, Proposed};
use tokio::time::{Instant, sleep, timeout};

use super::{Cluster, diff};
use crate::call::AdminCall;
use crate::error::ApiError;
use crate::fault;
use crate::reply::{Reply, json};
use crate::secrets::random;

/// Time between two attempts of a write whose outcome is unknown.
const PAUSE: Duration = Duration::from_millis(100);

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
    let attempts = Attempts { command, actor: actor(call), request };
    let proposed = attempts.settle(&cluster.control_plane, cluster.config.time_limit).await;
    let done = proposed.map_err(|error| fault::of_propose(error, cluster.leader()))?;
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

/// A command with its request id: however often it is proposed, it is carried out once.
struct Attempts {
    command: Command,
    actor: Actor,
    request: RequestId,
}

impl Attempts {
    /// Proposes until the outcome is known. A leader that is lost with the command in its log
    /// leaves the outcome open; the next leader answers the same request id with it.
    async fn settle(
        self,
        control_plane: &ControlPlane,
        limit: Duration,
    ) -> Result<Proposed<Outcome>, ProposeError> {
        let by = Instant::now() + limit;
        let mut is_open = false;
        loop {
            let left = by.saturating_duration_since(Instant::now());
            match self.propose(control_plane, left).await {
                Ok(done) => return Ok(done),
                Err(ProposeError::Unknown) => is_open = true,
                // No log has the command.
                Err(error) if !is_open => return Err(error),
                // An earlier attempt may still be carried out: its outcome has to be learned.
                Err(_) => {}
            }
            if Instant::now() + PAUSE >= by {
                return Err(ProposeError::Unknown);
            }
            sleep(PAUSE).await;
        }
    }

    async fn propose(
        &self,
        control_plane: &ControlPlane,
        limit: Duration,
    ) -> Result<Proposed<Outcome>, ProposeError> {
        let (command, actor) = (self.command.clone(), self.actor.clone());
        let proposing = control_plane.propose(command, actor, Some(self.request), limit);
        timeout(limit, proposing).await.unwrap_or(Err(ProposeError::Unknown))
    }
}
