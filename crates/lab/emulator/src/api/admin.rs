//! Control endpoints of the emulator itself: faults, options, stats and usage.

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::{ApiCall, ApiError, Reply, json};
use crate::body::ReplyBody;
use crate::fault::{Fault, FaultError};
use crate::options::ReplyOptions;
use crate::replica::EmulatedReplica;

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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OptionsRequest {
    options: ReplyOptions,
    /// Index of the replica in the process; the replica that received the request if left out.
    replica: Option<u16>,
}

pub(crate) fn stats(call: &ApiCall) -> Reply {
    Ok(json(StatusCode::OK, &call.replica.stats()))
}

pub(crate) fn usage(call: &ApiCall) -> Reply {
    Ok(json(StatusCode::OK, &call.replica.ledger.usage()))
}

pub(crate) fn options(call: &ApiCall) -> Reply {
    Ok(options_of(&call.replica))
}

pub(crate) fn set_options(call: &ApiCall) -> Reply {
    let request: OptionsRequest = call.json()?;
    let target = target(call, request.replica)?;
    target.set_options(request.options);
    Ok(options_of(&target))
}

fn options_of(replica: &EmulatedReplica) -> Response<ReplyBody> {
    let body = json!({ "replica": replica.index, "options": replica.options() });
    json(StatusCode::OK, &body)
}

/// Returns the replica that a control request is about.
fn target(call: &ApiCall, index: Option<u16>) -> Result<Arc<EmulatedReplica>, ApiError> {
    let index = index.unwrap_or(call.replica.index);
    let unknown = || ApiError::not_found(format!("there is no replica {index}"));
    call.replica.sibling(index).ok_or_else(unknown)
}

pub(crate) fn fault(call: &ApiCall) -> Reply {
    let replica = &call.replica;
    Ok(json(StatusCode::OK, &json!({ "replica": replica.index, "fault": replica.fault() })))
}

pub(crate) async fn set_fault(call: &ApiCall) -> Reply {
    let request: FaultRequest = call.json()?;
    let target = target(call, request.replica)?;
    let index = target.index;
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
