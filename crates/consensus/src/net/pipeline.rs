//! Entries on their way to one follower: many requests at a time on one stream, answered in order.
//!
//! One after the other, each would wait a round trip for the one before, and a commit under load
//! would take two.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::raft::{AppendEntriesRequest, StreamAppendError, StreamAppendResult};
use spillway_link::{StreamReceiver, StreamSender};
use tokio::time::{Instant, sleep_until};

use super::context::{Context, NetFault};
use crate::raft::{LogId, Types, Vote};
use crate::wire::{Answer, Append, EntryRecord, Point};

/// Requests that may be under way to one follower. At a commit every 3 ms that is a round trip of
/// 400 ms.
const UNDER_WAY_MAX: usize = 128;
/// How many heartbeats an answer may take before the stream is given up: a follower with a slow
/// disk must not be taken for a dead one. Heartbeats have streams of their own.
const PATIENCE_HEARTBEATS: u32 = 4;

/// Entries on their way to one follower.
pub(super) struct Pipeline<S> {
    context: Arc<Context>,
    sender: StreamSender,
    receiver: StreamReceiver,
    /// `None` once all requests were taken.
    requests: Option<S>,
    /// What is being written.
    outgoing: Bytes,
    under_way: VecDeque<UnderWay>,
}

/// A request that is not answered yet.
struct UnderWay {
    previous: Option<LogId>,
    sent: Instant,
}

enum Event {
    Request(Option<AppendEntriesRequest<Types>>),
    Written(Result<(), NetFault>),
    Answer(Result<Option<Answer>, NetFault>),
    Late,
}

impl<S> Pipeline<S>
where
    S: Stream<Item = AppendEntriesRequest<Types>> + Unpin,
{
    pub(super) fn new(
        context: Arc<Context>,
        (sender, receiver): (StreamSender, StreamReceiver),
        requests: S,
    ) -> Self {
        Self {
            context,
            sender,
            receiver,
            requests: Some(requests),
            outgoing: Bytes::new(),
            under_way: VecDeque::new(),
        }
    }

    /// The next answer; `None` after the last. After an error nothing more comes.
    pub(super) async fn next(&mut self) -> Option<Result<StreamAppendResult<Types>, NetFault>> {
        loop {
            if self.requests.is_none() && self.outgoing.is_empty() {
                self.sender.finish();
                if self.under_way.is_empty() {
                    return None;
                }
            }
            match self.event().await {
                Event::Request(None) => self.requests = None,
                Event::Request(Some(request)) => {
                    if let Err(fault) = self.take(request) {
                        return Some(Err(fault));
                    }
                }
                Event::Written(Ok(())) => {}
                Event::Answer(Ok(Some(answer))) => return Some(self.answered(answer)),
                Event::Answer(Ok(None)) => {
                    return Some(Err(NetFault::Stream("the follower ended the stream".to_owned())));
                }
                Event::Written(Err(fault)) | Event::Answer(Err(fault)) => return Some(Err(fault)),
                Event::Late => return Some(Err(NetFault::TimedOut)),
            }
        }
    }

    async fn event(&mut self) -> Event {
        let patience = PATIENCE_HEARTBEATS * self.context.timing.heartbeat;
        let late = self.under_way.front().map(|oldest| oldest.sent + patience);
        let has_room = self.outgoing.is_empty() && self.under_way.len() < UNDER_WAY_MAX;
        let requests = self.requests.as_mut().filter(|_| has_room);
        tokio::select! {
            answer = self.receiver.message::<Answer>() => {
                Event::Answer(answer.map_err(NetFault::from))
            }
            written = self.sender.some(&mut self.outgoing), if !self.outgoing.is_empty() => {
                Event::Written(written.map_err(NetFault::from))
            }
            request = next_of(requests) => Event::Request(request),
            () = at(late) => Event::Late,
        }
    }

    fn take(&mut self, request: AppendEntriesRequest<Types>) -> Result<(), NetFault> {
        if !self.context.voice.borrow().may_speak() {
            return Err(NetFault::Silent);
        }
        let previous = request.prev_log_id;
        let append = Append {
            ballot: (&request.vote).into(),
            previous: previous.map(Point::from),
            committed: request.leader_commit.map(Point::from),
            entries: request.entries.iter().map(EntryRecord::from).collect(),
        };
        self.outgoing =
            spillway_codec::encode(&append).map_err(|error| NetFault::Stream(error.to_string()))?;
        self.under_way.push_back(UnderWay { previous, sent: Instant::now() });
        Ok(())
    }

    fn answered(&mut self, answer: Answer) -> Result<StreamAppendResult<Types>, NetFault> {
        let Some(request) = self.under_way.pop_front() else { return Err(NetFault::of(answer)) };
        match answer {
            Answer::Appended(last) => Ok(Ok(last.map(LogId::from))),
            Answer::Conflict(at) => {
                let at = request.previous.unwrap_or_else(|| LogId::from(at));
                Ok(Err(StreamAppendError::Conflict(at)))
            }
            Answer::HigherVote(ballot) => {
                Ok(Err(StreamAppendError::HigherVote(Vote::from(ballot))))
            }
            answer => Err(NetFault::of(answer)),
        }
    }
}

async fn next_of<S, T>(requests: Option<&mut S>) -> Option<T>
where
    S: Stream<Item = T> + Unpin,
{
    match requests {
        Some(requests) => requests.next().await,
        None => pending().await,
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}
