//! Entries in transit to one follower: many requests at a time on one stream, answered in order.
//!
//! Without the pipeline, each request would wait a round trip for the one before, and a commit
//! under load would take two. A new leader searches for the position where a follower's log meets its
//! own, eight entries and one round trip at a time. The follower's reports about its log answer
//! that search here.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::raft::{AppendEntriesRequest, StreamAppendError, StreamAppendResult};
use openraft::storage::RaftLogReader;
use spillway_link::{StreamReceiver, StreamSender};
use spillway_types::NodeId;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::context::{Context, NetError};
use crate::disk::LogStore;
use crate::ids::Member;
use crate::raft::{LogId, Types, Vote};
use crate::wire::{
    Age, Answer, Append, Ballot, EntryRecord, News, Point, Purpose, Took, Verdict, encode_append,
};

/// Requests that may be under way to one follower. At a commit every 3 ms that is a round trip of
/// 400 ms.
const UNDER_WAY_MAX: usize = 128;
/// Heartbeats that an answer may take before the stream is given up: a follower with a slow disk
/// must not be taken for a dead one. Heartbeats have streams of their own.
const PATIENCE_HEARTBEATS: u32 = 4;
/// Time for which a follower that can't be reached is left alone: openraft tries again at once, and
/// most reasons last longer than that.
const PAUSE: Duration = Duration::from_millis(50);

/// Entries in transit to one follower.
pub(super) struct Pipeline<S> {
    context: Arc<Context>,
    id: NodeId,
    member: Member,
    /// Time limit for opening a stream.
    open_limit: Duration,
    /// `None` until something has to be sent.
    streams: Option<(StreamSender, StreamReceiver)>,
    /// `None` once all requests were taken.
    requests: Option<S>,
    /// Bytes that are being written.
    outgoing: Bytes,
    under_way: VecDeque<UnderWay>,
}

/// A request that is not answered yet.
struct UnderWay {
    ballot: Ballot,
    previous: Option<LogId>,
    /// Last entry that the follower has to have once it has taken the request in.
    last: Option<LogId>,
    sent: Instant,
}

enum PipelineEvent {
    Request(Option<AppendEntriesRequest<Types>>),
    Written(Result<(), NetError>),
    Answer(Result<Option<Answer>, NetError>),
    Late,
}

impl<S> Pipeline<S>
where
    S: Stream<Item = AppendEntriesRequest<Types>> + Unpin,
{
    pub(super) fn new(
        context: Arc<Context>,
        id: NodeId,
        member: Member,
        requests: S,
        open_limit: Duration,
    ) -> Self {
        Self {
            context,
            id,
            member,
            open_limit,
            streams: None,
            requests: Some(requests),
            outgoing: Bytes::new(),
            under_way: VecDeque::new(),
        }
    }

    /// The next answer; `None` after the last. After an error nothing more comes.
    pub(super) async fn next(&mut self) -> Option<Result<StreamAppendResult<Types>, NetError>> {
        loop {
            // The follower ends the stream once it has answered what is under way.
            if self.requests.is_none() && self.outgoing.is_empty() {
                if let Some((sender, _)) = &mut self.streams {
                    sender.finish();
                }
                if self.under_way.is_empty() {
                    return None;
                }
            }
            match self.event().await {
                PipelineEvent::Request(None) => self.requests = None,
                PipelineEvent::Request(Some(request)) => {
                    // The follower reported that it has this entry on disk while it followed this
                    // leader or had given it its vote. If this node has the entry as well, both
                    // logs are the same so far.
                    if let Some((last, held)) = self.before_held(&request)
                        && has(self.context.log.clone(), held).await
                    {
                        return Some(Ok(Ok(Some(last))));
                    }
                    if let Err(fault) = self.take(request).await {
                        return Some(Err(fault));
                    }
                }
                PipelineEvent::Written(Ok(())) => {}
                PipelineEvent::Answer(Ok(Some(answer))) => return Some(self.answered(answer)),
                PipelineEvent::Answer(Ok(None)) => {
                    return Some(Err(NetError::Stream("the follower ended the stream".to_owned())));
                }
                PipelineEvent::Written(Err(fault)) | PipelineEvent::Answer(Err(fault)) => {
                    return Some(Err(fault));
                }
                PipelineEvent::Late => return Some(Err(NetError::TimedOut)),
            }
        }
    }

    async fn event(&mut self) -> PipelineEvent {
        let patience = PATIENCE_HEARTBEATS * self.context.timing().heartbeat;
        let late = self.under_way.front().map(|oldest| oldest.sent + patience);
        let has_room = self.outgoing.is_empty() && self.under_way.len() < UNDER_WAY_MAX;
        // Without room no more is taken, or a slow follower would fill this node's memory.
        let requests = self.requests.as_mut().filter(|_| has_room);
        let Some((sender, receiver)) = &mut self.streams else {
            // No stream is open, so nothing can be written, answered or late.
            return PipelineEvent::Request(next_of(requests).await);
        };
        tokio::select! {
            answer = receiver.message::<Answer>() => {
                PipelineEvent::Answer(answer.map_err(NetError::from))
            }
            written = sender.some(&mut self.outgoing), if !self.outgoing.is_empty() => {
                PipelineEvent::Written(written.map_err(NetError::from))
            }
            request = next_of(requests) => PipelineEvent::Request(request),
            () = at(late) => PipelineEvent::Late,
        }
    }

    /// Returns the last entry of a request, and a later one that the follower reported to have.
    fn before_held(&self, request: &AppendEntriesRequest<Types>) -> Option<(LogId, Point)> {
        let last = request.entries.last()?.log_id;
        let held = self.context.followers.borrow().held((&request.vote).into(), self.id)?;
        // Answers keep the order of requests, so this one can't overtake those that are under way.
        (last.index <= held.index && self.under_way.is_empty()).then_some((last, held))
    }

    async fn take(&mut self, request: AppendEntriesRequest<Types>) -> Result<(), NetError> {
        // Each message of a leader without a quorum would keep the others from electing another
        // one.
        if !self.context.voice.borrow().may_speak() {
            sleep(PAUSE).await;
            return Err(NetError::Silent);
        }
        if self.streams.is_none() {
            let opening = self.context.open((self.id, &self.member), Purpose::Append);
            let opened = timeout(self.open_limit, opening).await;
            match opened.unwrap_or(Err(NetError::TimedOut)) {
                Ok(streams) => self.streams = Some(streams),
                Err(fault) => {
                    sleep(PAUSE).await;
                    return Err(fault);
                }
            }
        }
        #[cfg(test)]
        if request
            .entries
            .last()
            .is_some_and(|last| last.log_id.leader_id.term < request.vote.leader_id.term)
        {
            self.context.old_sent.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        let (ballot, previous) = (Ballot::from(&request.vote), request.prev_log_id);
        let append = Append {
            version: self.context.versions.with(&self.member.name),
            ballot,
            previous: previous.map(Point::from),
            committed: request.leader_commit.map(Point::from),
            entries: request.entries.iter().map(EntryRecord::from).collect(),
            news: self.news(ballot, !request.entries.is_empty()),
        };
        self.outgoing =
            encode_append(&append).map_err(|error| NetError::Stream(error.to_string()))?;
        let last = request.entries.last().map(|entry| entry.log_id).or(previous);
        self.under_way.push_back(UnderWay { ballot, previous, last, sent: Instant::now() });
        Ok(())
    }

    fn news(&self, ballot: Ballot, has_entries: bool) -> News {
        let held = self.context.followers.borrow().held(ballot, self.id);
        let heartbeat = self.context.timing().heartbeat.as_millis();
        News {
            age: self.context.age(),
            asks_held: has_entries && held.is_none(),
            heartbeat_ms: u32::try_from(heartbeat).unwrap_or(u32::MAX),
        }
    }

    fn answered(&mut self, answer: Answer) -> Result<StreamAppendResult<Types>, NetError> {
        let Some(request) = self.under_way.pop_front() else { return Err(NetError::of(answer)) };
        let Answer::Took(took) = answer else { return Err(NetError::of(answer)) };
        let verdict = took.verdict;
        match verdict {
            Verdict::HigherVote(ballot) if !self.context.believes(self.id, ballot) => {
                return Err(NetError::Unbelieved);
            }
            // openraft takes such a claim as it is, and stops over one that can't be.
            Verdict::Appended(at) if at.map(LogId::from) != request.last => {
                return Err(NetError::Unexpected);
            }
            Verdict::Conflict(_) if self.is_lost(&request) => return Err(NetError::Lost),
            Verdict::HigherVote(_) => {}
            Verdict::Appended(_) | Verdict::Conflict(_) => self.follows(&request, &took),
        }
        Ok(match verdict {
            Verdict::Appended(last) => Ok(last.map(LogId::from)),
            Verdict::Conflict(at) => {
                // The position that was asked for counts, whatever position the follower names.
                let at = request.previous.unwrap_or_else(|| LogId::from(at));
                Err(StreamAppendError::Conflict(at))
            }
            Verdict::HigherVote(ballot) => {
                // Only the term is believed: the other leader's own messages have to prove it.
                let ballot = Ballot { is_won: false, ..ballot };
                Err(StreamAppendError::HigherVote(Vote::from(ballot)))
            }
        })
    }

    /// Returns true if the follower lacks entries that it had confirmed. openraft has to know this
    /// before it gets the answer: otherwise it takes the answer for impossible, and never sends the
    /// entries.
    fn is_lost(&self, request: &UnderWay) -> bool {
        let Some(previous) = request.previous else { return false };
        let Some(matched) = self.context.matched(self.id) else { return false };
        let is_lost =
            self.context.comparison.is_held_back(self.id, previous, matched, self.context.now());
        if is_lost {
            self.context.followers.send_modify(|all| all.lost(request.ballot, self.id));
        }
        is_lost
    }

    /// The follower has shown that it follows.
    fn follows(&self, request: &UnderWay, took: &Took) {
        if !took.round_trips.is_empty() {
            self.context.distances().receive(self.id, &took.round_trips);
        }
        let promise = Duration::from_millis(took.promise_ms.into());
        let sent = self.context.since_start(request.sent);
        self.context.followers.send_modify(|all| {
            all.answered(request.ballot, self.id, sent, promise);
            if let Some(held) = took.held {
                all.holds(request.ballot, self.id, held);
            }
        });
    }
}

impl Context {
    /// Returns the age of this leader's knowledge; `None` if no quorum ever confirmed it.
    fn age(&self) -> Option<Age> {
        let word = self.word()?;
        let age = self.now().saturating_sub(word.as_of);
        // Rounded up: knowledge may be younger than its reported age, never older.
        let ms = u32::try_from(age.as_millis()).unwrap_or(u32::MAX).saturating_add(1);
        Some(Age { ms, next_index: word.next_index })
    }
}

/// Returns true if the log has that very entry.
async fn has(mut log: LogStore, at: Point) -> bool {
    let entries = log.try_get_log_entries(at.index..=at.index).await;
    entries.is_ok_and(|entries| entries.first().is_some_and(|own| Point::from(own.log_id) == at))
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
