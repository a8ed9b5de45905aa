//! Takes entries of a leader in, several requests at a time, and answers in their order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::Fatal;
use openraft::raft::{AppendEntriesRequest, StreamAppendError, StreamAppendResult};
use openraft::storage::RaftLogStorage;
use spillway_link::{Identity, StreamError, StreamReceiver, StreamSender};
use spillway_types::NodeId;
use tokio::time::Instant;

use super::PeerServer;
use crate::machine::Machine;
use crate::net::{Context, send};
use crate::raft::{LogId, Types, Vote};
use crate::rules::knowledge::KnowledgeStatement;
use crate::rules::promise::Receipt;
use crate::rules::timing::Timing;
use crate::state_machine::Raft;
use crate::wire::{
    Age, Answer, Append, Ballot, CallError, EntryRecord, News, Point, RoundTrip, Took, Verdict,
    WireVersion, encode_answer,
};

/// Maximum number of voters whose round trip is reported: more than there may be.
const ROUND_TRIPS_MAX: usize = 16;

/// A request that was received and is not answered yet.
struct Received {
    ballot: Ballot,
    at: Instant,
    receipt: Receipt,
    is_heartbeat: bool,
    version: WireVersion,
    news: News,
}

/// Unanswered requests of one stream, in order.
type Unanswered = Arc<Mutex<VecDeque<Received>>>;

impl<M: Machine> PeerServer<M> {
    /// Takes entries in, several requests at a time, and answers in their order.
    pub(super) async fn append(
        &self,
        id: NodeId,
        from: &Identity,
        mut sender: StreamSender,
        receiver: StreamReceiver,
    ) -> Result<(), StreamError> {
        let unanswered = Unanswered::default();
        let answers = self.raft.stream_append(self.appends(
            (id, from.clone()),
            receiver,
            Arc::clone(&unanswered),
        ));
        let mut answers = std::pin::pin!(answers);
        while let Some(answer) = answers.next().await {
            let received = unanswered.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(received) = received else { break };
            let answer = self.answer_append(from, &received, answer).await;
            send(&mut sender, encode_answer(&answer, received.version)).await?;
        }
        sender.finish();
        Ok(())
    }

    /// Returns the append requests of a stream. The sequence ends at the end of the stream, at any
    /// other message, and at a request from a node that, as far as this node knows, does not lead.
    fn appends(
        &self,
        sender: (NodeId, Identity),
        receiver: StreamReceiver,
        unanswered: Unanswered,
    ) -> impl Stream<Item = AppendEntriesRequest<Types>> + Send + use<M> {
        let state = (receiver, sender, self.handle());
        stream::unfold((state, unanswered), |(state, unanswered)| async {
            let (mut receiver, sender, server) = state;
            let append = receiver.message::<Append>().await.ok()??;
            let Self { raft, heard, context, .. } = &server;
            // The sender believes that this node still uses the version that it used before a
            // restart.
            if append.version > context.versions.own() {
                return None;
            }
            if !server.follows((sender.0, &sender.1), append.ballot).await {
                return None;
            }
            if server.is_contradicted(&sender.1, &append) {
                return None;
            }
            // Before the request is handled: by then this node follows, and knows whom.
            if append.ballot.term >= raft.metrics().borrow_watched().current_term {
                heard.now();
                let applied_next = server.applied_next();
                let committed_next = append.committed.map_or(0, |at| at.index + 1);
                let known_next = append.news.age.map_or(0, |age| age.next_index);
                heard.committed(committed_next.max(known_next), applied_next);
            }
            unanswered.lock().unwrap_or_else(PoisonError::into_inner).push_back(Received {
                ballot: append.ballot,
                at: Instant::now(),
                receipt: context.promise().received(context.now()),
                is_heartbeat: append.entries.is_empty(),
                version: append.version,
                news: append.news,
            });
            let entries: Result<Vec<_>, _> =
                append.entries.into_iter().map(EntryRecord::into_entry).collect();
            let request = AppendEntriesRequest {
                vote: Vote::from(append.ballot),
                prev_log_id: append.previous.map(LogId::from),
                entries: entries.ok()?,
                leader_commit: append.committed.map(LogId::from),
            };
            Some((request, ((receiver, sender, server), unanswered)))
        })
    }

    async fn answer_append(
        &self,
        from: &Identity,
        received: &Received,
        answer: Result<StreamAppendResult<Types>, Fatal<Types>>,
    ) -> Answer {
        let verdict = match answer {
            Ok(Ok(last)) => Verdict::Appended(last.map(Point::from)),
            Ok(Err(StreamAppendError::Conflict(at))) => Verdict::Conflict(at.into()),
            Ok(Err(StreamAppendError::HigherVote(vote))) => Verdict::HigherVote((&vote).into()),
            Err(_) => return Answer::Refused(CallError::Stopped),
        };
        let follows = !matches!(verdict, Verdict::HigherVote(_));
        if follows {
            self.learn(from, received);
            self.keep_time(received);
        }
        let asks_held = received.news.asks_held;
        let held = if follows && asks_held { self.held(received.ballot).await } else { None };
        let promise = if follows { self.promise(received) } else { Duration::ZERO };
        let promise_ms = u32::try_from(promise.as_millis()).unwrap_or(u32::MAX);
        let round_trips =
            if received.is_heartbeat { round_trips(&self.context, &self.raft) } else { Vec::new() };
        Answer::Took(Took { verdict, promise_ms, held, round_trips })
    }

    /// Returns true if a leader's entries are others than those that are committed here. openraft takes
    /// committed entries for equal by their index alone, and would make one log of two. Whether this
    /// node or that leader is wrong is seen when most nodes have compared their states.
    fn is_contradicted(&self, from: &Identity, append: &Append) -> bool {
        let entries = append.entries.iter().map(EntryRecord::at);
        let places = append.previous.into_iter().chain(entries);
        let found = self.context.log.contradiction(places, append.ballot.term);
        if let Some((index, committed)) = found
            && self.context.comparison.contradict(self.context.now())
        {
            tracing::error!(
                leader = %from, index, committed,
                "the leader has another entry in the place of one that is committed here: it is not \
                 followed"
            );
        }
        found.is_some()
    }

    fn applied_next(&self) -> u64 {
        self.applied.look(|_, index| index.map_or(0, |index| index + 1))
    }

    /// Notes the leader's statement about the age of its knowledge. The statement was in transit
    /// for at most a round trip; how much of that can't be known.
    fn learn(&self, from: &Identity, received: &Received) {
        let context = &self.context;
        let rtt = context.link.rtt(from.node()).unwrap_or_else(|| context.timing().heartbeat);
        let Some(Age { ms, next_index }) = received.news.age else { return };
        let age = Duration::from_millis(ms.into());
        let Some(as_of) = context.since_start(received.at).checked_sub(age + rtt) else { return };
        self.heard.receive(KnowledgeStatement { as_of, next_index }, self.applied_next());
    }

    /// Goes by the leader's timers: they are good only if they are the same on all nodes.
    fn keep_time(&self, received: &Received) {
        let heartbeat = Duration::from_millis(received.news.heartbeat_ms.into());
        if heartbeat != self.context.timing().heartbeat {
            self.context.set_timing(Timing::of_heartbeat(heartbeat));
        }
    }

    /// Not longer than openraft here keeps its leader by itself, which is the second wall.
    fn promise(&self, received: &Received) -> Duration {
        let context = &self.context;
        #[cfg(test)]
        if context.breaks_promises.load(std::sync::atomic::Ordering::SeqCst) {
            return crate::rules::promise::PROMISE_MAX;
        }
        let length = context.timing().lease().min(context.raft_lease);
        context.promise().make(received.receipt, length)
    }

    /// Returns the last entry on disk if this node follows that leader. The leader is checked
    /// before and after the log is read, so the entry that was read conflicts with no other leader.
    async fn held(&self, ballot: Ballot) -> Option<Point> {
        let mut log = self.context.log.clone();
        let is_followed = async || {
            let vote = self.raft.with_raft_state(|state| *state.vote_ref()).await;
            vote.is_ok_and(|vote| Ballot::from(&vote) == ballot)
        };
        if !is_followed().await {
            return None;
        }
        let last = log.get_log_state().await.ok()?.last_log_id?;
        if !is_followed().await {
            return None;
        }
        // The log is in memory before it is on disk. Only entries on disk may be reported.
        log.settled().await.ok()?;
        Some(last.into())
    }
}

/// Returns the round trips to the other voters, as far as measured.
pub(crate) fn round_trips<M: Machine>(context: &Context, raft: &Raft<M>) -> Vec<RoundTrip> {
    let members = raft.metrics().borrow_watched().membership_config.clone();
    let members = members.membership();
    let others = members.voter_ids().filter(|id| *id != context.node).take(ROUND_TRIPS_MAX);
    let measured = others.filter_map(|to| {
        let rtt = context.link.rtt(&members.get_node(&to)?.name)?;
        Some(RoundTrip { to, ms: u32::try_from(rtt.as_millis()).unwrap_or(u32::MAX) })
    });
    measured.collect()
}
