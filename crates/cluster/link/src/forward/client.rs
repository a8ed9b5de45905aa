//! Forwarding side: one stream for each request.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http_body::Body;
use quinn::{ConnectionError, ReadError, RecvStream, SendStream};
use spillway_codec::Wire;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::body::ForwardBody;
use super::error::{ForwardError, ForwardStage};
use super::handler::BoxError;
use super::head::{BodyPlan, ForwardHead, HeadMessage};
use super::send_body::{Parts, SendError, send_body};
use super::streams::{MessageError, Receiver, Sender};
use super::word::{ForwardWord, Refused, ReplyHead};
use crate::code::{CloseCode, StreamCode};
use crate::config::{LinkLimits, ms};
use crate::peer::{LiveConnection, OpenStream};

/// Result of a forwarded request.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly always a reply, and moved once")]
pub enum ForwardAnswer {
    /// The peer's reply, whose body arrives as it is read.
    Reply(http::Response<ForwardBody>),
    /// The peer refused the request and has done no work for it.
    Refused(Refused),
}

/// Expectation of the caller about room at the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerRoom {
    /// The peer may refuse: a long body waits until the peer has accepted.
    #[default]
    Unknown,
    /// The peer will probably accept: the body is sent at once, which saves a round trip.
    Likely,
}

/// Inputs of forwarding besides the request.
pub(crate) struct ForwardCall<'a> {
    pub(crate) live: &'a Arc<LiveConnection>,
    /// Returns true while the peer is alive, by the connection that notices a failure first.
    pub(crate) is_heard: &'a (dyn Fn() -> bool + Send + Sync),
    pub(crate) open: OpenStream,
    pub(crate) limits: &'a LinkLimits,
    pub(crate) tracker: &'a TaskTracker,
    pub(crate) runtime: &'a tokio::runtime::Handle,
}

/// Future that sends the request's body.
type Upload = Pin<Box<dyn Future<Output = Result<(), SendError>> + Send>>;

impl ForwardCall<'_> {
    /// Forwards a request and waits for the head of the reply. A dropped future gives the request
    /// up.
    pub(crate) async fn run<B>(
        self,
        mut head: ForwardHead,
        body: B,
        room: PeerRoom,
    ) -> Result<ForwardAnswer, ForwardError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        head.body = plan(&body, room, self.limits.eager_body_bytes);
        let plan = head.body;
        let deadline = head.deadline_ms.map(|left| Instant::now() + Duration::from_millis(left));
        let frame = frame_of(head)?;
        let (send, recv) = self.open()?;
        let (accept, accepted) = oneshot::channel();
        let sender = Sender::new(send, StreamCode::Cancelled);
        let mut upload: Option<Upload> =
            Some(Box::pin(upload(sender, frame, body, plan, accepted)));
        let mut receiver = Receiver::new(recv);
        let answer = self.answer(&mut receiver, accept, deadline);
        let answer = race(answer, &mut upload).await;
        match answer {
            Ok(ForwardDecision::Refused(refused)) => Ok(ForwardAnswer::Refused(refused)),
            Ok(ForwardDecision::Reply(head)) => {
                let upload = upload.map(|upload| self.spawn_upload(upload));
                reply_of(head, ForwardBody::of_reply(receiver, upload, self.open))
            }
            Err(error) => {
                // The peer learns that the deadline ended the request, not the client.
                if let ForwardError::Deadline(_) = error {
                    receiver.if_dropped(StreamCode::Deadline);
                }
                Err(error)
            }
        }
    }

    fn open(&self) -> Result<(SendStream, RecvStream), ForwardError> {
        // To wait for a stream would be a queue without a limit that no load report shows.
        match self.live.connection.open_bi().now_or_never() {
            None => Err(ForwardError::Saturated),
            Some(Err(_)) => Err(ForwardError::Lost(ForwardStage::NotSent)),
            Some(Ok(streams)) => Ok(streams),
        }
    }

    /// Reads the decision and the head of the reply.
    async fn answer(
        &self,
        receiver: &mut Receiver,
        accept: oneshot::Sender<()>,
        deadline: Option<Instant>,
    ) -> Result<ForwardDecision, ForwardError> {
        let patience = Instant::now() + ms(self.limits.word_wait_ms);
        let word_by = deadline.map_or(patience, |deadline| deadline.min(patience));
        let word =
            match timeout_at(word_by, message::<ForwardWord>(receiver, ForwardStage::Undecided))
                .await
            {
                Ok(word) => word?,
                // The deadline was the earlier of the two limits.
                Err(_) if word_by < patience => {
                    return Err(ForwardError::Deadline(ForwardStage::Undecided));
                }
                Err(_) => return Err(ForwardError::NoWord),
            };
        if let ForwardWord::Refused(refused) = word {
            return Ok(ForwardDecision::Refused(refused));
        }
        // An error means that the body was sent without waiting.
        let _ = accept.send(());
        let head = self.while_heard(message::<ReplyHead>(receiver, ForwardStage::Accepted));
        let head = match deadline {
            None => head.await?,
            Some(deadline) => timeout_at(deadline, head)
                .await
                .map_err(|_| ForwardError::Deadline(ForwardStage::Accepted))??,
        };
        Ok(ForwardDecision::Reply(head))
    }

    /// Waits for the head of a reply, but gives up when the peer is gone. The connection itself
    /// outlives a short cut, for the sake of replies that have begun.
    async fn while_heard<T>(
        &self,
        head: impl Future<Output = Result<T, ForwardError>>,
    ) -> Result<T, ForwardError> {
        let gone = ms(self.limits.gone_ms);
        let mut silence = Silence::default();
        let mut head = pin!(head);
        loop {
            if let Ok(head) = timeout(LOOK, &mut head).await {
                return head;
            }
            if silence.look((self.is_heard)(), Instant::now()) >= gone {
                return Err(ForwardError::Lost(ForwardStage::Accepted));
            }
        }
    }

    /// Sends the rest of the body in a task of its own, while the reply is read.
    fn spawn_upload(&self, upload: Upload) -> AbortOnDropHandle<()> {
        let rest = async move {
            // If the peer stopped the body, its reply has the reason.
            if let Err(SendError::Body(error)) = upload.await {
                tracing::debug!(%error, "the body of a forwarded request failed");
            }
        };
        AbortOnDropHandle::new(self.tracker.spawn_on(rest, self.runtime))
    }
}

/// Interval at which a request that waits for its reply checks that the peer is alive.
const LOOK: Duration = Duration::from_millis(250);

/// Silence of a peer that was alive before.
#[derive(Debug, Default)]
struct Silence {
    was_heard: bool,
    since: Option<Instant>,
}

impl Silence {
    /// Notes if the peer is alive at `now`. Returns the length of its silence; zero if it never was
    /// alive, because its silence then proves nothing.
    fn look(&mut self, is_heard: bool, now: Instant) -> Duration {
        self.was_heard |= is_heard;
        if is_heard || !self.was_heard {
            self.since = None;
            return Duration::ZERO;
        }
        now.saturating_duration_since(*self.since.get_or_insert(now))
    }
}

/// Peer's decision on a request, with the head of the reply.
enum ForwardDecision {
    Refused(Refused),
    Reply(ReplyHead),
}

/// Decides if the body is sent at once or waits for the peer's decision.
fn plan(body: &impl Body, room: PeerRoom, eager_body_bytes: u64) -> BodyPlan {
    let hint = body.size_hint();
    let bytes = hint.exact();
    if body.is_end_stream() {
        BodyPlan::Absent
    } else if room == PeerRoom::Likely
        || hint.upper().is_some_and(|upper| upper <= eager_body_bytes)
    {
        BodyPlan::Follows(bytes)
    } else {
        BodyPlan::Waits(bytes)
    }
}

fn frame_of(head: ForwardHead) -> Result<Bytes, ForwardError> {
    let message = HeadMessage::of(head).map_err(|why| ForwardError::Head(why.to_owned()))?;
    spillway_codec::encode(&message).map_err(|error| ForwardError::Head(error.to_string()))
}

/// Sends head and body. The body is sent to its end even if the reply comes before.
async fn upload<B>(
    mut sender: Sender,
    frame: Bytes,
    body: B,
    plan: BodyPlan,
    accepted: oneshot::Receiver<()>,
) -> Result<(), SendError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut first = Parts::from_iter([frame]);
    match plan {
        BodyPlan::Absent => {
            sender.write(&mut first).await?;
            sender.finish();
            return Ok(());
        }
        BodyPlan::Follows(_) => {}
        BodyPlan::Waits(_) => {
            sender.write(&mut first).await?;
            first.clear();
            if accepted.await.is_err() {
                // The request was refused or given up: the drop of the sender informs the peer.
                return Ok(());
            }
        }
    }
    let sent = send_body(&mut sender, first, body).await;
    // A body that failed must not look complete.
    if let Err(SendError::Body(_)) = sent {
        sender.abort(StreamCode::Internal);
    }
    sent
}

/// Waits for the answer while the body is sent. Afterwards `upload` is the rest of the sending,
/// `None` if all is sent.
async fn race(
    answer: impl Future<Output = Result<ForwardDecision, ForwardError>>,
    upload: &mut Option<Upload>,
) -> Result<ForwardDecision, ForwardError> {
    let mut answer = pin!(answer);
    poll_fn(|context| {
        if let Some(sending) = upload
            && let std::task::Poll::Ready(sent) = sending.as_mut().poll(context)
        {
            *upload = None;
            // If the peer does not want the body, its answer has the reason.
            if let Err(SendError::Body(error)) = sent {
                return std::task::Poll::Ready(Err(ForwardError::Body(error)));
            }
        }
        answer.as_mut().poll(context)
    })
    .await
}

/// Returns true if the peer closed the connection because it ends, with no request open.
fn is_farewell(error: &ConnectionError) -> bool {
    let ConnectionError::ApplicationClosed(close) = error else { return false };
    close.error_code == CloseCode::Shutdown.number()
}

async fn message<T: Wire>(receiver: &mut Receiver, stage: ForwardStage) -> Result<T, ForwardError> {
    let fault = match receiver.message::<T>().await {
        Ok(message) => return Ok(message),
        Err(fault) => fault,
    };
    Err(match fault {
        MessageError::Read(ReadError::Reset(code)) => {
            ForwardError::Reset(StreamCode::from_number(code), stage)
        }
        MessageError::Read(ReadError::ConnectionLost(error)) if is_farewell(&error) => {
            // The peer has answered all requests that it accepted, so it did not accept this one.
            let is_open = stage == ForwardStage::Accepted;
            ForwardError::Lost(if is_open { stage } else { ForwardStage::NotSent })
        }
        MessageError::Read(_) => ForwardError::Lost(stage),
        MessageError::CutOff | MessageError::Decode(_) => {
            receiver.if_dropped(StreamCode::Malformed);
            ForwardError::Malformed(fault.to_string(), stage)
        }
    })
}

fn reply_of(head: ReplyHead, body: ForwardBody) -> Result<ForwardAnswer, ForwardError> {
    let (status, headers) = match head.into_parts() {
        Ok(parts) => parts,
        Err(why) => {
            body.abandon(StreamCode::Malformed);
            return Err(ForwardError::Malformed(why.to_owned(), ForwardStage::Accepted));
        }
    };
    let mut reply = http::Response::new(body);
    *reply.status_mut() = status;
    *reply.headers_mut() = headers;
    Ok(ForwardAnswer::Reply(reply))
}

#[cfg(test)]
#[path = "client_test.rs"]
mod client_test;
