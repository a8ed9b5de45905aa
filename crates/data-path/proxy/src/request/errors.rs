//! Errors of requests that no replica serves.

use spillway_protocol::{ErrorKind, GatewayError};
use spillway_route::ShedReason;

/// Returns the error for a client whose request is shed for this reason.
pub(super) fn shed_error(reason: ShedReason) -> GatewayError {
    let kind = match reason {
        ShedReason::Late => ErrorKind::DeadlineExceeded,
        ShedReason::NobodyInReach => ErrorKind::NoReplica,
        ShedReason::Budget => ErrorKind::BudgetSpent,
        reason if reason.is_limit() => ErrorKind::RateLimited,
        _ => ErrorKind::Overloaded,
    };
    let message = match reason {
        ShedReason::Late => "the deadline would pass before a replica has a free slot",
        ShedReason::NobodyInReach => "no replica that could serve it is in reach",
        ShedReason::Slo => "the first token would come later than this route allows",
        ShedReason::Waited => "no replica has a free slot within the time that it may wait",
        ShedReason::PushedOut => "more urgent requests took its place in the queue",
        ShedReason::Degraded => "too many replicas are missing to serve requests of this class",
        ShedReason::ReplicaBusy => "every replica has asked to be left alone for now",
        ShedReason::GuestWithoutRoom => "this region has no room for requests of others",
        ShedReason::Memory => "this node holds all that it may in memory",
        ShedReason::Draining => "this node is shutting down",
        ShedReason::RequestRate => "the limit of requests is used up",
        ShedReason::TokenRate => "the limit of tokens is used up",
        ShedReason::Concurrency => "the limit of requests at a time is used up",
        ShedReason::Budget => "the budget is spent",
        ShedReason::QueueFull | ShedReason::Connections => {
            "all replicas are busy and the queue is full"
        }
    };
    GatewayError::new(kind, message).with_shed(reason.name())
}

/// Returns the error for a request that two engines died of. A repetition would take others along, so
/// that clients' libraries are asked not to retry by themselves.
pub(crate) fn engines_died() -> GatewayError {
    let message = "two engines died while they worked on this request: it is not tried again, since it \
                   may be the cause";
    GatewayError::new(ErrorKind::EnginesDied, message)
}

/// Returns the error for a state that no journey leads to.
pub(super) fn internal() -> GatewayError {
    GatewayError::new(ErrorKind::Internal, "the gateway lost track of the request")
}
