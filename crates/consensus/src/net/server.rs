//! Answers other nodes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use openraft::ReadPolicy;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{LinearizableReadError, RaftError};
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, TransferLeaderRequest, VoteRequest, VoteResponse,
};
use spillway_link::{Identity, Served, StreamFault, StreamHandler, StreamReceiver, StreamSender};
use tokio::time::Instant;

use super::context::Context;
use super::parcels::Parcels;
use crate::disk::StoredSnapshot;
use crate::machine::Machine;
use crate::proposer::{NotDone, Raft, propose_here};
use crate::raft::{LogId, Types, Vote};
use crate::state_machine::loaded;
use crate::wire::{
    Answer, Append, Call, Candidacy, EntryRecord, Octets, Offer, Opening, Point, Purpose, Refusal,
};

/// When this node last heard a leader whom it follows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard(Arc<Mutex<Option<Instant>>>);

impl Heard {
    /// How long ago that was; `None` for never.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.at().map(|at| at.elapsed())
    }

    /// When that was.
    pub(crate) fn at(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// Answers other nodes.
pub(crate) struct Server<M: Machine> {
    pub(crate) context: Arc<Context>,
    pub(crate) raft: Raft<M>,
    pub(crate) heard: Heard,
    /// Until then no vote is given: before it was restarted, this node may have promised its
    /// leader a lease that still runs.
    pub(crate) votes_from: Instant,
    parcels: Parcels,
}

impl<M: Machine> Server<M> {
    pub(crate) fn new(
        context: Arc<Context>,
        raft: Raft<M>,
        heard: Heard,
        votes_from: Instant,
    ) -> Self {
        Self { context, raft, heard, votes_from, parcels: Parcels::default() }
    }

    async fn serve(
        &self,
        from: &Identity,
        (mut sender, mut receiver): (StreamSender, StreamReceiver),
    ) -> Result<(), StreamFault> {
        let Some(opening) = receiver.message::<Opening>().await? else { return Ok(()) };
        let admitted = self.admit(from, &opening).await;
        match opening.purpose {
            Purpose::Append => match admitted {
                Ok(()) => return self.append(sender, receiver).await,
                Err(refusal) => sender.message(&Answer::Refused(refusal)).await?,
            },
            Purpose::Call => {
                let Some(call) = receiver.message::<Call>().await? else { return Ok(()) };
                let answer = match (admitted, call) {
                    (_, Call::Hello) => Answer::Hello(self.context.introduction()),
                    (Err(refusal), _) => Answer::Refused(refusal),
                    (Ok(()), call) => self.answer(from, call).await,
                };
                sender.message(&answer).await?;
            }
            Purpose::Snapshot => {
                let Some(offer) = receiver.message::<Offer>().await? else { return Ok(()) };
                let answer = match admitted {
                    Err(refusal) => Answer::Refused(refusal),
                    Ok(()) => self.install(from, offer, &mut sender).await?,
                };
                sender.message(&answer).await?;
            }
        }
        sender.finish();
        Ok(())
    }

    /// Whether the sender is who it says and means this node.
    async fn admit(&self, from: &Identity, opening: &Opening) -> Result<(), Refusal> {
        let me = self.context.introduction();
        let is_meant = opening.to.is_some_and(|to| to.node == me.node && to.disk == Some(me.disk));
        if !is_meant {
            return Err(Refusal::OtherNode(me));
        }
        let known = self.raft.metrics().borrow_watched().membership_config.clone();
        let is_known_otherwise = known
            .membership()
            .get_node(&opening.from)
            .is_some_and(|member| member.name != *from.node());
        if is_known_otherwise {
            return Err(Refusal::NotYou);
        }
        match (opening.cluster, me.cluster) {
            (Some(theirs), Some(mine)) if theirs == mine => Ok(()),
            (_, Some(mine)) => Err(Refusal::OtherCluster(mine)),
            // The cluster has taken this node in.
            (Some(theirs), None) => {
                self.context.log.join(theirs).await.map_err(|_| Refusal::Stopped)
            }
            (None, None) => Err(Refusal::NotNow),
        }
    }

    /// Takes entries in, several requests at a time, and answers in their order.
    async fn append(
        &self,
        mut sender: StreamSender,
        receiver: StreamReceiver,
    ) -> Result<(), StreamFault> {
        let answers = self.raft.stream_append(self.appends(receiver));
        let mut answers = std::pin::pin!(answers);
        while let Some(answer) = answers.next().await {
            let answer = match answer {
                Ok(Ok(last)) => Answer::Appended(last.map(Point::from)),
                Ok(Err(StreamAppendError::Conflict(at))) => Answer::Conflict(at.into()),
                Ok(Err(StreamAppendError::HigherVote(vote))) => Answer::HigherVote((&vote).into()),
                Err(_) => Answer::Refused(Refusal::Stopped),
            };
            sender.message(&answer).await?;
        }
        sender.finish();
        Ok(())
    }

    /// The requests of a stream. What is no request ends it, as its end does.
    fn appends(
        &self,
        receiver: StreamReceiver,
    ) -> impl Stream<Item = AppendEntriesRequest<Types>> + Send + use<M> {
        let state = (receiver, self.raft.clone(), self.heard.clone());
        stream::unfold(state, |(mut receiver, raft, heard)| async {
            let append = receiver.message::<Append>().await.ok()??;
            // Before it is taken in: by then this node follows, and knows whom.
            if append.ballot.term >= raft.metrics().borrow_watched().current_term {
                heard.now();
            }
            let entries: Result<Vec<_>, _> =
                append.entries.into_iter().map(EntryRecord::into_entry).collect();
            let request = AppendEntriesRequest {
                vote: Vote::from(append.ballot),
                prev_log_id: append.previous.map(LogId::from),
                entries: entries.ok()?,
                leader_commit: append.committed.map(LogId::from),
            };
            Some((request, (receiver, raft, heard)))
        })
    }

    async fn answer(&self, from: &Identity, call: Call) -> Answer {
        match call {
            Call::Hello => Answer::Hello(self.context.introduction()),
            Call::Vote(candidacy) => self.vote(candidacy, false).await,
            Call::PreVote(candidacy) => self.vote(candidacy, true).await,
            Call::Transfer { from, to, last } => {
                let last = last.map(LogId::from);
                let request = TransferLeaderRequest::new(Vote::from(from), to, last);
                match self.raft.handle_transfer_leader(request).await {
                    Ok(Ok(())) => Answer::Transferred,
                    Ok(Err(_)) => Answer::Refused(Refusal::NotNow),
                    Err(_) => Answer::Refused(Refusal::Stopped),
                }
            }
            Call::ReadIndex => match read_index(&self.raft).await {
                Ok(index) => Answer::ReadIndex(index),
                Err(refusal) => Answer::Refused(refusal),
            },
            Call::Propose { command, limit_ms } => self.propose(from, command, limit_ms).await,
        }
    }

    async fn vote(&self, candidacy: Candidacy, is_question: bool) -> Answer {
        if Instant::now() < self.votes_from && !candidacy.is_transfer {
            return Answer::Refused(Refusal::NotNow);
        }
        let mut request =
            VoteRequest::new(Vote::from(candidacy.ballot), candidacy.last.map(LogId::from));
        request.leadership_transfer = candidacy.is_transfer;
        let answered = if is_question {
            self.raft.pre_vote(request).await
        } else {
            self.raft.vote(request).await
        };
        match answered {
            Ok(VoteResponse { vote, vote_granted, last_log_id }) => Answer::Vote {
                ballot: (&vote).into(),
                is_granted: vote_granted,
                last: last_log_id.map(Point::from),
            },
            Err(_) => Answer::Refused(Refusal::Stopped),
        }
    }

    /// Proposes for another node. It is never passed on: two nodes that take each other for the
    /// leader would do so for ever.
    async fn propose(&self, from: &Identity, Octets(command): Octets, limit_ms: u32) -> Answer {
        // What this version can't read must not get into a log that it has to apply.
        let Ok(decoded) = spillway_codec::decode::<M::Command>(&command) else {
            return Answer::Refused(Refusal::Unreadable);
        };
        if M::proposer(&decoded).is_some_and(|named| named != (from.node(), from.region())) {
            return Answer::Refused(Refusal::NotYours);
        }
        drop(decoded);
        let limit = Duration::from_millis(limit_ms.into());
        match propose_here(&self.raft, &self.context, command, limit).await {
            Ok((index, outcome)) => Answer::Proposed { index, outcome: Octets(outcome) },
            Err(NotDone::NotLeader(leader)) => Answer::Refused(Refusal::NotLeader(leader)),
            Err(NotDone::Unknown | NotDone::Stopped(_)) => Answer::Unknown,
        }
    }

    async fn install(
        &self,
        from: &Identity,
        offer: Offer,
        sender: &mut StreamSender,
    ) -> Result<Answer, StreamFault> {
        let Offer { ballot, head, transfer } = offer;
        let Some(mut place) = self.parcels.expect(from.node(), transfer, head.bytes) else {
            return Ok(Answer::Refused(Refusal::Busy));
        };
        sender.message(&Answer::Ready).await?;
        let Some(data) = place.arrived().await else {
            return Ok(Answer::Refused(Refusal::Damaged));
        };
        let whole = crc32c::crc32c(&data) == head.checksum;
        let snapshot = match loaded(&StoredSnapshot { head, data }) {
            Ok(snapshot) if whole => snapshot,
            _ => return Ok(Answer::Refused(Refusal::Damaged)),
        };
        Ok(match self.raft.install_full_snapshot(Vote::from(ballot), snapshot).await {
            Ok(response) => {
                self.heard.now();
                Answer::Installed((&response.vote).into())
            }
            Err(_) => Answer::Refused(Refusal::Stopped),
        })
    }
}

/// A server as the link calls it.
pub(crate) struct Service<M: Machine>(pub(crate) Arc<Server<M>>);

impl<M: Machine> StreamHandler for Service<M> {
    fn control(&self, from: Identity, streams: (StreamSender, StreamReceiver)) -> Served {
        let server = Arc::clone(&self.0);
        Box::pin(async move {
            if let Err(fault) = server.serve(&from, streams).await {
                tracing::debug!(peer = %from, %fault, "a stream of the log ended");
            }
        })
    }

    fn bulk(&self, from: Identity, receiver: StreamReceiver) -> Served {
        let server = Arc::clone(&self.0);
        Box::pin(async move { server.parcels.receive(from.node().clone(), receiver).await })
    }
}

/// Up to where a reader has to wait, if a quorum says that this node leads. A lease would save the
/// round trip, but holds only while all nodes have the same timers, which nothing enforces yet.
pub(crate) async fn read_index<M: Machine>(raft: &Raft<M>) -> Result<u64, Refusal> {
    match raft.get_read_linearizer(ReadPolicy::ReadIndex).await {
        Ok(linearizer) => Ok(linearizer.read_log_id().index()),
        Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => {
            Err(Refusal::NotLeader(forward.leader_id))
        }
        Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => {
            Err(Refusal::NotLeader(None))
        }
        Err(RaftError::Fatal(_)) => Err(Refusal::Stopped),
    }
}
