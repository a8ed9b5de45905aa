//! Replies that are judged before their client gets them.
//!
//! A reply in one piece of a known, short length comes with its head, so that waiting for all of it
//! delays nothing. An answer that the engine cut short, and an error by which the engine says that it
//! is dying, are then no answers yet: another replica is asked.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use spillway_protocol::{
    EngineTrouble, ReplyApi, ReplyVerdict, WholeReader, engine_trouble_in, is_encoded,
};
use spillway_request::headers::is_event_stream;
use spillway_upstream::connection::AttemptError;
use spillway_upstream::upstream_body::UpstreamBody;
use tokio::time::timeout;

/// Longest reply in bytes that is held until it is judged.
const JUDGED_BYTES_MAX: u64 = 64 << 10;

/// A reply for the client, with its facts if it was held.
pub(super) type GoodReply = (Response<UpstreamBody>, Option<Box<WholeReader>>);

/// How the replies of an attempt are judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judging {
    /// API of the request.
    pub(super) api: ReplyApi,
    /// True if the engine is known to give a reason for the end of each answer.
    pub(super) is_known: bool,
    /// Longest pause of the body: after it the reply has broken off.
    pub(super) idle: Duration,
}

/// Kinds of replies that are judged as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judged {
    /// An answer, which may be cut short.
    Answer,
    /// An error of the server, which may be about the engine itself.
    ServerError,
}

/// Reads a reply that is short and whole, and judges it. Other replies pass unread.
///
/// # Errors
/// Returns an error if the reply is no answer.
pub(super) async fn judge(
    reply: Response<UpstreamBody>,
    judging: Judging,
) -> Result<GoodReply, AttemptError> {
    let Judging { api, is_known, idle } = judging;
    let Some((judged, length)) = judged(&reply, api) else { return Ok((reply, None)) };
    let (head, mut body) = reply.into_parts();
    let bytes = read(&mut body, length, idle).await?;
    if judged == Judged::ServerError {
        let trouble = engine_trouble_in(head.status.as_u16(), &bytes);
        return match trouble {
            Some(EngineTrouble::Dying) => Err(AttemptError::EngineDying),
            Some(EngineTrouble::Draining) => Err(AttemptError::EngineDraining),
            None => Ok((again(head, body, bytes), None)),
        };
    }
    let mut reader = Box::new(WholeReader::new(api));
    reader.push(&bytes);
    reader.finish();
    match reader.facts().verdict(api, is_known) {
        ReplyVerdict::Aborted => Err(AttemptError::Aborted),
        ReplyVerdict::Unfinished | ReplyVerdict::Empty => Err(AttemptError::Unfinished),
        ReplyVerdict::Complete | ReplyVerdict::Failed(_) => {
            Ok((again(head, body, bytes), Some(reader)))
        }
    }
}

/// Returns how a reply is judged, with its length; `None` if it passes unread.
fn judged(reply: &Response<UpstreamBody>, api: ReplyApi) -> Option<(Judged, usize)> {
    let headers = reply.headers();
    let length = reply.body().size_hint().exact().filter(|length| *length <= JUDGED_BYTES_MAX)?;
    if is_event_stream(headers) || is_encoded(headers) || length == 0 {
        return None;
    }
    let judged = match reply.status() {
        StatusCode::OK if api.generates() => Judged::Answer,
        status if status.is_server_error() => Judged::ServerError,
        _ => return None,
    };
    Some((judged, usize::try_from(length).ok()?))
}

/// Reads so many bytes. A single piece is not copied.
///
/// # Errors
/// Returns an error if the body broke off or paused for too long: no byte of it has reached the
/// client.
async fn read(
    body: &mut UpstreamBody,
    length: usize,
    idle: Duration,
) -> Result<Bytes, AttemptError> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while first.len() + all.len() < length {
        let next = timeout(idle, body.frame()).await;
        let frame = next.map_err(|_| AttemptError::FirstByteTimeout)?;
        let Some(Ok(frame)) = frame else { return Err(AttemptError::Cut) };
        let Ok(piece) = frame.into_data() else { return Err(AttemptError::Cut) };
        if first.is_empty() && all.is_empty() {
            first = piece;
            continue;
        }
        if all.is_empty() {
            all.reserve(length);
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        all.extend_from_slice(&piece);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// Returns the reply with its bytes in front of the body they were read from.
fn again(head: http::response::Parts, body: UpstreamBody, bytes: Bytes) -> Response<UpstreamBody> {
    Response::from_parts(head, body.beginning_with(Some(Ok(Frame::data(bytes)))))
}

#[cfg(test)]
#[path = "whole_reply_test.rs"]
mod tests;
