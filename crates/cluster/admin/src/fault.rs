//! Answers for errors of the layers below.

use std::time::Duration;

use http::StatusCode;
use spillway_cluster_state::{ApplyError, CommandError, RecordKey, RefusalCode};
use spillway_raft::{ChangeError, ProposeError, ReadError};

use crate::error::{ApiError, Conflict, LeaderHint};
use crate::records::name_of;

/// Returns the answer to a write that was not carried out, or may not have been.
pub(crate) fn of_propose(error: ProposeError, leader: Option<LeaderHint>) -> ApiError {
    let cause = error.to_string();
    match error {
        ProposeError::NoQuorum { .. } => no_quorum(leader),
        ProposeError::Unknown => ApiError::new(
            StatusCode::GATEWAY_TIMEOUT,
            "unknown_outcome",
            cause,
            "send the same request again with the same Idempotency-Key, or read the record",
        ),
        ProposeError::TooLarge { .. } => {
            let remedy = "name fewer models or regions";
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", cause, remedy)
        }
        ProposeError::Budget { retry_after } => {
            let remedy = "try again when there is room";
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, "budget", cause, remedy)
                .with_retry_after(retry_after)
        }
        ProposeError::TooNew => {
            let remedy = "upgrade all nodes, then try again";
            ApiError::new(StatusCode::CONFLICT, "wire_version", cause, remedy)
        }
        ProposeError::Malformed(_) => ApiError::internal(cause),
        ProposeError::Stopped(_) => stopped(cause),
    }
}

/// Returns the answer to a read that failed.
pub(crate) fn of_read(error: ReadError, leader: Option<LeaderHint>) -> ApiError {
    let cause = error.to_string();
    match error {
        ReadError::NoQuorum { .. } => no_quorum(leader),
        ReadError::TimedOut => {
            let remedy = "try again, or read with ?consistency=stale";
            ApiError::new(StatusCode::GATEWAY_TIMEOUT, "timed_out", cause, remedy)
        }
        ReadError::Stopped(_) => stopped(cause),
    }
}

/// Returns the answer to a hand-over of the leadership that failed.
pub(crate) fn of_transfer(error: ChangeError, leader: Option<LeaderHint>) -> ApiError {
    let cause = error.to_string();
    match error {
        ChangeError::NotLeader { .. } => {
            let remedy = "ask the leader";
            ApiError::new(StatusCode::CONFLICT, "not_leader", cause, remedy).with_leader(leader)
        }
        ChangeError::Refused(_) => {
            let remedy = "name a node with a vote, as `spillway status` lists them";
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", cause, remedy)
        }
        ChangeError::Unknown => {
            let remedy = "look who leads in /v1/status, then try again";
            ApiError::new(StatusCode::GATEWAY_TIMEOUT, "unknown_outcome", cause, remedy)
        }
        ChangeError::Stopped(_) => stopped(cause),
    }
}

/// Time within which voters that are up elect a leader, as a rule.
const ELECTION: Duration = Duration::from_secs(1);

/// Returns the answer to a command that was refused. If the missing record is `about`, the subject
/// of the request, the answer is 404; another missing record is a mistake in the request.
pub(crate) fn of_fault(fault: ApplyError, about: &RecordKey) -> ApiError {
    match fault {
        ApplyError::Refused(refusal) => of_refusal(refusal, about),
        ApplyError::Conflict { key, current } => of_conflict(&key, current),
    }
}

pub(crate) fn of_conflict(key: &RecordKey, current_version: Option<u64>) -> ApiError {
    let cause = match current_version {
        Some(version) => format!("{key} has version {version}"),
        None => format!("{key} does not exist"),
    };
    let (resource, name) = name_of(key);
    let remedy = "read it, decide again, and send its version as If-Match";
    ApiError::new(StatusCode::CONFLICT, "conflict", cause, remedy).with_conflict(Conflict {
        resource: resource.to_owned(),
        key: name,
        current_version,
    })
}

pub(crate) fn of_refusal(refusal: CommandError, about: &RecordKey) -> ApiError {
    let CommandError { code, cause, remedy } = refusal;
    let missing = format!("{about} does not exist");
    let (status, name) = match code {
        // The state uses this wording. Only the text shows that the order's own record is missing.
        RefusalCode::Unknown if cause == missing => (StatusCode::NOT_FOUND, "not_found"),
        code => status_of(code),
    };
    ApiError::new(status, name, cause, remedy)
}

fn status_of(code: RefusalCode) -> (StatusCode, &'static str) {
    const WRONG: StatusCode = StatusCode::UNPROCESSABLE_ENTITY;
    match code {
        RefusalCode::Invalid => (WRONG, "invalid"),
        RefusalCode::Loop => (WRONG, "loop"),
        RefusalCode::Unknown => (WRONG, "unknown_reference"),
        RefusalCode::RequestIdReused => (WRONG, "idempotency_key_reused"),
        RefusalCode::NotOwner => (StatusCode::FORBIDDEN, "not_owner"),
        RefusalCode::NotPermitted => (StatusCode::FORBIDDEN, "not_permitted"),
        RefusalCode::TokenRefused => (StatusCode::FORBIDDEN, "token_refused"),
        RefusalCode::NotFormed => (StatusCode::SERVICE_UNAVAILABLE, "not_formed"),
        RefusalCode::StateFull => (StatusCode::INSUFFICIENT_STORAGE, "state_full"),
        RefusalCode::LimitReached => (StatusCode::CONFLICT, "limit_reached"),
        RefusalCode::InUse => (StatusCode::CONFLICT, "in_use"),
        RefusalCode::StaleEpoch => (StatusCode::CONFLICT, "stale_epoch"),
        RefusalCode::WipedDisk => (StatusCode::CONFLICT, "wiped_disk"),
        RefusalCode::RetiredDisk => (StatusCode::CONFLICT, "retired_disk"),
        RefusalCode::OtherCluster => (StatusCode::CONFLICT, "other_cluster"),
        RefusalCode::WireVersion => (StatusCode::CONFLICT, "wire_version"),
        RefusalCode::Transition => (StatusCode::CONFLICT, "transition"),
        RefusalCode::AlreadyApplied => (StatusCode::CONFLICT, "already_applied"),
        // Codes of later versions.
        _ => (StatusCode::CONFLICT, "refused"),
    }
}

fn no_quorum(leader: Option<LeaderHint>) -> ApiError {
    ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "no_quorum",
        "no majority of the voters can be reached, so nothing was written",
        "bring voters back; what is here is read with ?consistency=stale",
    )
    .with_leader(leader)
    .with_retry_after(ELECTION)
}

pub(crate) fn stopped(cause: String) -> ApiError {
    let remedy = "repair what its log names and start the node again, or ask another node";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "stopped", cause, remedy)
}
