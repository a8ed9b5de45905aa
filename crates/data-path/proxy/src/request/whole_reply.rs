//! Replies that are judged before their client gets them.
//!
//! A reply in one piece comes with its head from the engines that are judged, so that waiting for all of
//! it delays nothing. An answer that the engine cut short, and an error by which the engine says that
//! it is dying, are then no answers yet: another replica is asked.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use spillway_protocol::grpc::status_lacks_model;
use spillway_protocol::{
    EngineTrouble, ReplyApi, ReplyVerdict, WholeReader, engine_trouble_in, is_encoded, lacks_model,
};
use spillway_request::headers::is_event_stream;
use spillway_transport::coarse_clock;
use spillway_types::ModelName;
use spillway_upstream::{AttemptError, UpstreamBody};
use tokio::time::timeout_at;

/// Longest reply in bytes that is held until it is judged.
const JUDGED_BYTES_MAX: usize = 64 << 10;

/// A reply for the client, with its facts if it was held.
pub(super) type GoodReply = (Response<UpstreamBody>, Option<Box<WholeReader>>);

/// Terms by which the replies of an attempt are judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judging<'a> {
    /// API of the request; `None` if its answers are not read.
    pub(super) api: Option<ReplyApi>,
    /// True for a gRPC call.
    pub(super) is_call: bool,
    /// Model of the request.
    pub(super) model: Option<&'a ModelName>,
    /// True if the engine is known to give a reason for the end of each answer.
    pub(super) is_known: bool,
    /// Longest time until the first byte of the body: after it the reply has not begun.
    pub(super) first_byte: Duration,
    /// Longest pause of the body: after it the reply has broken off.
    pub(super) idle: Duration,
    /// Moment at which the request's time is over.
    pub(super) deadline: Instant,
}

/// Kinds of replies that are judged as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WholeReplyKind {
    /// An answer of this API, which may be cut short.
    Answer(ReplyApi),
    /// An error of the server, which may be about the engine itself.
    ServerError,
    /// An error of the request, which may be about its model.
    RequestError,
}

/// Reads a reply that is short and whole, and judges it. Other replies pass unread.
///
/// # Errors
/// Returns an error if the reply is no answer.
pub(super) async fn judge(
    reply: Response<UpstreamBody>,
    judging: Judging<'_>,
) -> Result<GoodReply, AttemptError> {
    if judging.is_call {
        let lacks = |model: &ModelName| status_lacks_model(reply.headers(), model.as_str());
        return match judging.model.is_some_and(lacks) {
            true => Err(AttemptError::NoModel),
            false => Ok((reply, None)),
        };
    }
    let Some(judged) = judged(&reply, judging) else { return Ok((reply, None)) };
    let (head, mut body) = reply.into_parts();
    let held = read(&mut body, judging).await?;
    if !held.is_whole {
        return Ok((again(head, body, held), None));
    }
    let status = head.status.as_u16();
    let api = match judged {
        WholeReplyKind::Answer(api) => api,
        WholeReplyKind::RequestError => {
            let lacks = |model: &ModelName| lacks_model(status, &held.bytes, model.as_str());
            return match judging.model.is_some_and(lacks) {
                true => Err(AttemptError::NoModel),
                false => Ok((again(head, body, held), None)),
            };
        }
        WholeReplyKind::ServerError => {
            return match engine_trouble_in(status, &held.bytes) {
                Some(EngineTrouble::Dying) => Err(AttemptError::EngineDying),
                Some(EngineTrouble::Draining) => Err(AttemptError::EngineDraining),
                None => Ok((again(head, body, held), None)),
            };
        }
    };
    let mut reader = Box::new(WholeReader::new(api));
    reader.push(&held.bytes);
    reader.finish();
    match reader.facts().verdict(api, judging.is_known) {
        ReplyVerdict::Aborted => Err(AttemptError::Aborted),
        ReplyVerdict::Unfinished | ReplyVerdict::Empty => Err(AttemptError::Unfinished),
        ReplyVerdict::Complete | ReplyVerdict::Failed(_) => {
            Ok((again(head, body, held), Some(reader)))
        }
    }
}

/// Returns how a reply is judged; `None` if it passes unread.
fn judged(reply: &Response<UpstreamBody>, judging: Judging<'_>) -> Option<WholeReplyKind> {
    let headers = reply.headers();
    let length = reply.body().size_hint().exact();
    if length.is_some_and(|length| length == 0 || length > JUDGED_BYTES_MAX as u64)
        || is_event_stream(headers)
        || is_encoded(headers)
    {
        return None;
    }
    match reply.status() {
        StatusCode::OK => {
            // Other servers may send an answer without a length as they make it.
            let is_whole = length.is_some() || judging.is_known;
            judging.api.filter(|api| api.generates() && is_whole).map(WholeReplyKind::Answer)
        }
        StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => Some(WholeReplyKind::RequestError),
        // The errors of other APIs have other words.
        status if status.is_server_error() && judging.api.is_some() => {
            Some(WholeReplyKind::ServerError)
        }
        _ => None,
    }
}

/// Beginning of a body.
#[derive(Debug, Default)]
struct Held {
    bytes: Bytes,
    trailers: Option<Frame<Bytes>>,
    /// True if there is no more.
    is_whole: bool,
}

/// Reads a body to its end, or until it is too long to be judged. A single piece is not copied.
///
/// # Errors
/// Returns an error if the body broke off or paused for too long: no byte of it has reached the
/// client.
async fn read(body: &mut UpstreamBody, judging: Judging<'_>) -> Result<Held, AttemptError> {
    let length = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
    let mut held = Held::default();
    let mut all = BytesMut::new();
    loop {
        let bytes = held.bytes.len() + all.len();
        let is_over = length == Some(bytes) || body.is_end_stream() || held.trailers.is_some();
        if is_over || bytes > JUDGED_BYTES_MAX {
            held.is_whole = is_over;
            break;
        }
        let Some(frame) = next(body, judging, bytes > 0).await? else {
            held.is_whole = true;
            break;
        };
        match frame.into_data() {
            Ok(piece) if bytes == 0 => held.bytes = piece,
            Ok(piece) => {
                if all.is_empty() {
                    all.extend_from_slice(&std::mem::take(&mut held.bytes));
                }
                all.extend_from_slice(&piece);
            }
            Err(trailers) => held.trailers = Some(trailers),
        }
    }
    if !all.is_empty() {
        held.bytes = all.freeze();
    }
    let is_short = length.is_some_and(|length| held.bytes.len() < length);
    if is_short { Err(AttemptError::Cut) } else { Ok(held) }
}

/// Returns the next frame of a body; `None` at its end.
async fn next(
    body: &mut UpstreamBody,
    judging: Judging<'_>,
    has_begun: bool,
) -> Result<Option<Frame<Bytes>>, AttemptError> {
    let pause = if has_begun { judging.idle } else { judging.first_byte };
    let until = (coarse_clock::now() + pause).min(judging.deadline);
    match timeout_at(until.into(), body.frame()).await {
        Ok(next) => next.transpose().map_err(|_| AttemptError::Cut),
        Err(_) if until == judging.deadline => Err(AttemptError::DeadlinePassed),
        Err(_) => Err(AttemptError::FirstByteTimeout),
    }
}

/// Returns the reply with what was read in front of the body it was read from.
fn again(head: http::response::Parts, body: UpstreamBody, held: Held) -> Response<UpstreamBody> {
    let bytes = Some(held.bytes).filter(|bytes| !bytes.is_empty()).map(Frame::data);
    let body = body.beginning_with(held.trailers.map(Ok)).beginning_with(bytes.map(Ok));
    Response::from_parts(head, body)
}

#[cfg(test)]
#[path = "whole_reply_test.rs"]
mod tests;
