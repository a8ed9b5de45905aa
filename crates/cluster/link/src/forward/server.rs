//! Receiving side: one stream for each request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quinn::{RecvStream, SendStream};
use tokio::time::timeout;

use super::body::ForwardBody;
use super::handler::{BoxBody, Handler, Serving};
use super::head::{BodyPlan, ForwardHead, HeadMessage};
use super::send_body::{Parts, SendError, send_body};
use super::streams::{MessageError, Receiver, Sender};
use super::word::{ForwardWord, ReplyHead};
use crate::code::StreamCode;
use crate::config::{LinkLimits, ms};
use crate::counters::{LinkCounters, add};
use crate::identity::Identity;
use crate::peer::OpenStream;

/// Time limit for a peer to acknowledge the last bytes of a reply; then the stream is forgotten.
const LAST_BYTES_WAIT: Duration = Duration::from_secs(10);

/// Time that the word "accepted" waits for the head of the reply, to share a packet with it: each
/// packet costs about 30 microseconds on each of the two nodes.
const WORD_DELAY: Duration = Duration::from_millis(5);

/// Inputs that are needed to answer a request.
pub(crate) struct Service {
    pub(crate) from: Identity,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) limits: LinkLimits,
    pub(crate) counters: Arc<LinkCounters>,
}

/// Reason for which a request got no whole reply.
enum ForwardError {
    /// The head of the request did not come, or was not valid.
    Head(String),
    /// The peer gave the request up, or is gone.
    GivenUp,
    /// The handler or the body of its reply failed.
    Handler(String),
}

impl Service {
    /// Answers the request on one stream.
    pub(crate) async fn serve(&self, streams: (SendStream, RecvStream), _open: OpenStream) {
        add(&self.counters.received);
        let mut sender = Sender::new(streams.0, StreamCode::Internal);
        let receiver = Receiver::new(streams.1);
        let stopped = sender.stopped();
        let outcome = tokio::select! {
            // The handler's future is dropped when the peer gives up, with all work that it has
            // begun.
            _ = stopped => Err(ForwardError::GivenUp),
            outcome = self.answer(&mut sender, receiver) => outcome,
        };
        match outcome {
            Ok(()) => {
                // The stream counts as open until the peer has all of it, so that a node that ends
                // does not cut it off.
                drop(timeout(LAST_BYTES_WAIT, sender.stopped()).await);
            }
            Err(ForwardError::Head(error)) => {
                add(&self.counters.malformed);
                tracing::warn!(peer = %self.from, %error, "a forwarded request has no valid head");
                sender.abort(StreamCode::Malformed);
            }
            Err(ForwardError::GivenUp) => {
                add(&self.counters.given_up);
                sender.abort(StreamCode::Cancelled);
            }
            Err(ForwardError::Handler(error)) => {
                add(&self.counters.failed);
                tracing::debug!(peer = %self.from, %error, "a forwarded request failed");
                sender.abort(StreamCode::Internal);
            }
        }
    }

    async fn answer(
        &self,
        sender: &mut Sender,
        mut receiver: Receiver,
    ) -> Result<(), ForwardError> {
        let head = self.head(&mut receiver).await?;
        let plan = head.body;
        let body = match plan {
            BodyPlan::Absent => ForwardBody::empty(),
            BodyPlan::Follows(bytes) | BodyPlan::Waits(bytes) => {
                ForwardBody::of_request(receiver, bytes)
            }
        };
        match self.handler.forwarded(&self.from, head, body).await {
            Ok(serving) => {
                let (first, body) = accept(sender, serving, plan).await?;
                send_body(sender, first, body).await.map_err(|fault| match fault {
                    SendError::Peer => ForwardError::GivenUp,
                    SendError::Body(error) => ForwardError::Handler(error.to_string()),
                })
            }
            Err(refused) => {
                add(&self.counters.refused);
                send(sender, frame_of(&ForwardWord::Refused(refused))?).await?;
                sender.finish();
                Ok(())
            }
        }
    }

    async fn head(&self, receiver: &mut Receiver) -> Result<ForwardHead, ForwardError> {
        let wait = ms(self.limits.head_wait_ms);
        let read = match timeout(wait, receiver.message::<HeadMessage>()).await {
            Ok(Ok(message)) => message.into_head().map_err(str::to_owned),
            // The stream or the connection ended, which is no fault of the message.
            Ok(Err(MessageError::Read(_))) => return Err(ForwardError::GivenUp),
            Ok(Err(fault)) => Err(fault.to_string()),
            Err(_) => Err("it did not come in time".to_owned()),
        };
        read.map_err(|why| {
            receiver.if_dropped(StreamCode::Malformed);
            ForwardError::Head(why)
        })
    }
}

/// Informs the peer that the request is accepted, and waits for the reply. Returns the parts that
/// must still be sent (the head of the reply, with the word "accepted" if it was not sent yet) and
/// the body.
async fn accept(
    sender: &mut Sender,
    mut serving: Serving,
    plan: BodyPlan,
) -> Result<(Parts, BoxBody), ForwardError> {
    let mut first = Parts::from_iter([frame_of(&ForwardWord::Accepted)?]);
    // A body that waits for the word must not wait longer.
    let soon = match plan {
        BodyPlan::Waits(_) => None,
        BodyPlan::Absent | BodyPlan::Follows(_) => timeout(WORD_DELAY, &mut serving).await.ok(),
    };
    let reply = match soon {
        Some(reply) => reply,
        None => {
            sender.write(&mut first).await.or(Err(ForwardError::GivenUp))?;
            first.clear();
            serving.await
        }
    };
    let (parts, body) =
        reply.map_err(|error| ForwardError::Handler(error.to_string()))?.into_parts();
    let head = ReplyHead::of(parts.status, &parts.headers)
        .map_err(|why| ForwardError::Handler(why.to_owned()))?;
    first.push(frame_of(&head)?);
    Ok((first, body))
}

fn frame_of<T: spillway_codec::Wire>(message: &T) -> Result<Bytes, ForwardError> {
    spillway_codec::encode(message).map_err(|error| ForwardError::Handler(error.to_string()))
}

async fn send(sender: &mut Sender, frame: Bytes) -> Result<(), ForwardError> {
    sender.write(&mut [frame]).await.or(Err(ForwardError::GivenUp))
}
