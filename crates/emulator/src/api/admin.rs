//! Control endpoints of the emulator itself: `/emulator/fault` and `/emulator/stats`.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use crate::fault::{Fault, FaultError};
use crate::replica::EmulatedReplica;

use super::{ApiCall, ApiError, Reply, json};

/// Delay before a crash, so that the replica can answer the request that orders it.
const CRASH_DELAY: Duration = Duration::from_millis(20);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultRequest {
    fault: Fault,
    /// Index of the replica in the process; the replica that received the request if left out.
    replica: Option<u16>,
    /// Milliseconds after which the replica is healed; never if left out.
    for_ms: Option<u64>,
}

pub(crate) fn stats(call: &ApiCall) -> Reply {
    Ok(json(StatusCode::OK, &call.replica.stats()))
}

pub(crate) fn fault(call: &ApiCall) -> Reply {
    let replica = &call.replica;
    Ok(json(StatusCode::OK, &json!({ "replica": replica.index, "fault": replica.fault() })))
}

pub(crate) async fn set_fault(call: &ApiCall) -> Reply {
    let request: FaultRequest = call.json()?;
    let index = request.replica.unwrap_or(call.replica.index);
    let target = call.replica.sibling(index);
    let target =
        target.ok_or_else(|| ApiError::not_found(format!("there is no replica {index}")))?;
    request.fault.check().map_err(|error| ApiError::invalid(error.to_string(), Some("fault")))?;
    let own_crash = index == call.replica.index && request.fault == Fault::Crash;
    let delay = own_crash.then_some(CRASH_DELAY);
    // Applied on its own task: a client that disconnects must not leave a fault half set.
    let task = call.replica.tasks.spawn(apply(Arc::clone(&target), request, delay));
    if own_crash {
        return Ok(json(StatusCode::ACCEPTED, &json!({ "replica": index })));
    }
    match task.await {
        Ok(Ok(())) => {
            let body = json!({ "replica": index, "fault": target.fault() });
            Ok(json(StatusCode::OK, &body))
        }
        Ok(Err(error)) => Err(ApiError::internal(error.to_string())),
        Err(error) => Err(ApiError::internal(error.to_string())),
    }
}

async fn apply(
    target: Arc<EmulatedReplica>,
    request: FaultRequest,
    delay: Option<Duration>,
) -> Result<(), FaultError> {
    if let Some(delay) = delay {
        tokio::time::sleep(delay).await;
    }
    let change = target.set_fault(request.fault).await?;
    if let Some(for_ms) = request.for_ms {
        target.heal_later(change, Duration::from_millis(for_ms));
    }
    Ok(())
}
