//! Carries commands out.

use std::time::Duration;

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_agreement::Agreement;
use spillway_consensus::{ProposeError, Proposed};
use spillway_control::{Actor, Command, Outcome, RecordKey, RequestId};
use tokio::time::{Instant, sleep, timeout};

use super::{Cluster, diff};
use crate::call::Call;
use crate::error::ApiError;
use crate::fault;
use crate::reply::{Reply, json};
use crate::secrets::random;

/// Between two attempts of a write whose outcome is not known.
const PAUSE: Duration = Duration::from_millis(100);

/// What a write came to.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Written {
    /// The entry's place in the log: a read that has seen it has seen the write.
    pub(crate) index: u64,
    /// `applied`, or `unchanged` if everything was so already.
    pub(crate) outcome: String,
    /// The version of what was written; none if nothing was.
    pub(crate) version: Option<u64>,
}

/// Carries `command` out, or says what it would do.
pub(super) async fn write(
    cluster: &Cluster<'_>,
    call: &Call,
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
    call: &Call,
    about: &RecordKey,
    command: Command,
) -> Result<Written, ApiError> {
    let request = match call.request {
        Some(request) => request,
        None => RequestId::unkeyed(random()?),
    };
    let attempts = Attempts { command, actor: actor(call), request };
    let proposed = attempts.settle(&cluster.agreement, cluster.config.time_limit).await;
    let done = proposed.map_err(|error| fault::of_propose(error, cluster.leader()))?;
    let (outcome, version) = match done.outcome {
        Outcome::Applied { version, .. } => ("applied", Some(version)),
        Outcome::Unchanged => ("unchanged", None),
        Outcome::Conflict { key, current } => return Err(fault::of_conflict(&key, current)),
        Outcome::Refused(refusal) => return Err(fault::of_refusal(refusal, about)),
    };
    Ok(Written { index: done.index, outcome: outcome.to_owned(), version })
}

pub(super) fn actor(call: &Call) -> Actor {
    Actor::Operator(call.caller.name.clone())
}

/// A command under one request id, so that however often it is proposed, it is carried out once.
struct Attempts {
    command: Command,
    actor: Actor,
    request: RequestId,
}

impl Attempts {
    /// Proposes until it is known what came of it. A leader that is lost with the command in its
    /// log leaves that open; the next leader answers the same request id with what happened.
    async fn settle(
        self,
        agreement: &Agreement,
        limit: Duration,
    ) -> Result<Proposed<Outcome>, ProposeError> {
        let by = Instant::now() + limit;
        let mut is_open = false;
        loop {
            let left = by.saturating_duration_since(Instant::now());
            match self.propose(agreement, left).await {
                Ok(done) => return Ok(done),
                Err(ProposeError::Unknown) => is_open = true,
                // Nothing of it is in any log.
                Err(error) if !is_open => return Err(error),
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
        agreement: &Agreement,
        limit: Duration,
    ) -> Result<Proposed<Outcome>, ProposeError> {
        let (command, actor) = (self.command.clone(), self.actor.clone());
        let proposing = agreement.propose(command, actor, Some(self.request), limit);
        timeout(limit, proposing).await.unwrap_or(Err(ProposeError::Unknown))
    }
}
