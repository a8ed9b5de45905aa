//! Injected faults that decide about a request before or in place of its endpoint.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use hyper::body::Incoming;

use super::call::ApiCall;
use super::error::ApiError;
use super::reply::Reply;
use crate::body::{DEATH_PAUSE, ReplyBody};
use crate::fault::{DeathSign, Fault};

/// Answers a request that is no control request, under the replica's fault.
pub(super) async fn answer(call: &mut ApiCall, body: Incoming) -> Reply {
    let is_inference = call.ticket.is_some();
    match call.replica.fault() {
        Fault::Hang => {
            // The wait ends when the replica crashes, or when the client disconnects and this
            // future is dropped.
            call.replica.life().over().await;
            Err(ApiError::internal("the replica crashed"))
        }
        Fault::Garbage => {
            call.socket.garble();
            Ok(Response::new(ReplyBody::whole("never sent")))
        }
        Fault::Status { code, retry_after_s, probability }
            if is_inference && call.replica.is_hit(probability) =>
        {
            Err(ApiError::injected(code, retry_after_s))
        }
        Fault::Draining if is_inference => Err(ApiError::draining()),
        _ => {
            let reply = super::answer(call, body).await;
            die(call, reply).await
        }
    }
}

/// Replaces a reply that is no stream, if its request kills the replica. Streams die while they are
/// sent.
async fn die(call: &ApiCall, reply: Reply) -> Reply {
    let Fault::Die { with, only_poisoned, .. } = call.replica.fault() else { return reply };
    let is_whole = reply.as_ref().is_ok_and(|response| response.body().is_whole());
    if call.ticket.is_none() || !is_whole || only_poisoned && !call.is_poisoned() {
        return reply;
    }
    let replica = Arc::clone(&call.replica);
    if with == DeathSign::Error {
        replica.die_later(DEATH_PAUSE);
        return Err(ApiError::engine_dead());
    }
    replica.die_later(Duration::ZERO);
    // The crash ends the connection, and this future with it.
    std::future::pending().await
}
