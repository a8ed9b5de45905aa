//! Answers other nodes.

mod append;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::raft::{TransferLeaderRequest, VoteRequest, VoteResponse};
use spillway_link::{Identity, Served, StreamError, StreamHandler, StreamReceiver, StreamSender};
use spillway_types::NodeId;
use tokio::time::timeout;

pub(crate) use append::round_trips;

use crate::disk::StoredSnapshot;
use crate::error::ProposeError;
use crate::machine::Machine;
use crate::net::{Context, LeaderContact, Parcels, read_index, send};
use crate::proposer::propose_here;
use crate::raft::{LogId, Vote};
use crate::rules::standing::{BallotClaim, SenderStanding, Situation};
use crate::state_machine::{Applied, Raft, loaded};
use crate::wire::{
    Answer, Ballot, Call, CallError, Candidacy, Offer, Opening, Point, Purpose, Report,
    WireVersion, encode_answer,
};

/// Answers other nodes.
pub(crate) struct PeerServer<M: Machine> {
    pub(crate) context: Arc<Context>,
    pub(crate) raft: Raft<M>,
    pub(crate) applied: Arc<Applied<M>>,
    pub(crate) heard: LeaderContact,
    parcels: Parcels,
}

impl<M: Machine> PeerServer<M> {
    pub(crate) fn new(
        context: Arc<Context>,
        raft: Raft<M>,
        applied: Arc<Applied<M>>,
        heard: LeaderContact,
    ) -> Self {
        Self { context, raft, applied, heard, parcels: Parcels::default() }
    }

    /// Another handle on the same.
    pub(super) fn handle(&self) -> Self {
        Self {
            context: Arc::clone(&self.context),
            raft: self.raft.clone(),
            applied: Arc::clone(&self.applied),
            heard: self.heard.clone(),
            parcels: self.parcels.clone(),
        }
    }

    async fn serve(
        &self,
        from: &Identity,
        mut sender: StreamSender,
        mut receiver: StreamReceiver,
    ) -> Result<(), StreamError> {
        let Some(opening) = receiver.message::<Opening>().await? else { return Ok(()) };
        let admitted = self.admit(from, &opening).await;
        match opening.purpose {
            Purpose::Append => match admitted {
                Ok(()) => return self.append(opening.from, from, sender, receiver).await,
                Err(refusal) => {
                    send(
                        &mut sender,
                        encode_answer(&Answer::Refused(refusal), WireVersion::OLDEST),
                    )
                    .await?;
                }
            },
            Purpose::Call => {
                let Some(call) = receiver.message::<Call>().await? else { return Ok(()) };
                if matches!(call, Call::Compare(_)) && !self.context.versions.compares() {
                    return Ok(());
                }
                let answer = match (admitted, call) {
                    // Seeds ask this before they are in a cluster, so every node with a certificate
                    // gets an answer.
                    (_, Call::Hello) => Answer::Hello(self.context.introduction()),
                    (Err(refusal), _) => Answer::Refused(refusal),
                    (Ok(()), call) => self.answer((opening.from, from), call).await,
                };
                send(&mut sender, encode_answer(&answer, WireVersion::OLDEST)).await?;
            }
            Purpose::Snapshot => {
                let Some(offer) = receiver.message::<Offer>().await? else { return Ok(()) };
                let answer = match admitted {
                    Err(refusal) => Answer::Refused(refusal),
                    Ok(()) => self.install(opening.from, from, offer, &mut sender).await?,
                };
                send(&mut sender, encode_answer(&answer, WireVersion::OLDEST)).await?;
            }
        }
        sender.finish();
        Ok(())
    }

    /// Admits a sender that is a member under its certificate and means this node. A node without a
    /// cluster joins the sender's.
    async fn admit(&self, from: &Identity, opening: &Opening) -> Result<(), CallError> {
        let me = self.context.introduction();
        let is_meant = opening.to.is_some_and(|to| to.node == me.node && to.disk == Some(me.disk));
        if !is_meant {
            return Err(CallError::OtherNode(me));
        }
        match self.context.standing(opening.from, from) {
            None | Some(SenderStanding::Stranger) => return Err(CallError::NotYou),
            Some(SenderStanding::Voter | SenderStanding::Member | SenderStanding::Unjudged) => {}
        }
        match (opening.cluster, me.cluster) {
            (Some(theirs), Some(mine)) if theirs == mine => Ok(()),
            (_, Some(mine)) => Err(CallError::OtherCluster(mine)),
            // The cluster has taken this node in.
            (Some(theirs), None) => {
                self.context.log.join(theirs).await.map_err(|_| CallError::Stopped)
            }
            // Seeds that form no cluster yet exchange nothing but who they are.
            (None, None) => Err(CallError::NotNow),
        }
    }

    /// Returns true if this node should listen to the sender as a candidate with `ballot`.
    fn listens(&self, sender: (NodeId, &Identity), ballot: Ballot) -> bool {
        let listens = self
            .situation(sender, ballot)
            .is_some_and(|situation| situation.admits(BallotClaim::Candidate, ballot));
        self.judged(sender.1, ballot, listens)
    }

    /// Returns true if this node should believe that the sender leads with `ballot`. May ask the
    /// other voters, for a heartbeat.
    pub(super) async fn follows(&self, sender: (NodeId, &Identity), ballot: Ballot) -> bool {
        let follows = match self.situation(sender, ballot) {
            Some(situation) => self.context.follows(situation, ballot).await,
            None => false,
        };
        self.judged(sender.1, ballot, follows)
    }

    /// Returns what this node knows of a sender; `None` if messages of the sender do not count.
    fn situation(&self, sender: (NodeId, &Identity), ballot: Ballot) -> Option<Situation> {
        // A removed node may still lead until another one has taken over from it.
        if self.is_removed(sender.1) && !self.context.follows_now(sender.0, ballot) {
            return None;
        }
        self.context.situation(sender.0, sender.1, ballot, self.heard.age())
    }

    fn judged(&self, from: &Identity, ballot: Ballot, is_believed: bool) -> bool {
        // A node may repeat its claim many times a second.
        if !is_believed && self.context.guard.elections.is_news() {
            tracing::warn!(%from, ?ballot, "a vote request or a claim to lead was refused");
        }
        is_believed
    }

    fn is_removed(&self, from: &Identity) -> bool {
        self.applied.look(|machine, _| machine.is_removed(from.node()))
    }

    async fn answer(&self, sender: (NodeId, &Identity), call: Call) -> Answer {
        let (id, from) = sender;
        match call {
            Call::Hello => Answer::Hello(self.context.introduction()),
            Call::Vote(candidacy) | Call::PreVote(candidacy)
                if !self.listens(sender, candidacy.ballot) =>
            {
                Answer::Refused(CallError::NotNow)
            }
            Call::Vote(_) | Call::PreVote(_) | Call::Transfer { .. }
                if !self.may_vote(id).await =>
            {
                Answer::Refused(CallError::NotNow)
            }
            Call::Vote(candidacy) => self.vote(candidacy, false).await,
            Call::PreVote(candidacy) => self.vote(candidacy, true).await,
            Call::Transfer { from, .. } if !self.context.follows_soon(id, from).await => {
                Answer::Refused(CallError::NotNow)
            }
            Call::Transfer { from, to, last } => self.transfer(from, to, last).await,
            // Behind votes and handovers: a removed node may still lead, and has to hand over.
            _ if self.is_removed(from) => Answer::Refused(CallError::NotYou),
            Call::Speaks(number) => {
                self.context.versions.receive(from.node(), number);
                Answer::Speaks(self.context.versions.own().number())
            }
            Call::Backs => Answer::Backs(self.context.backed()),
            Call::Compare(report) => self.compare(id, &report),
            Call::ReadIndex => match read_index(&self.raft, &self.context).await {
                Ok(index) => Answer::ReadIndex(index),
                Err(refusal) => Answer::Refused(refusal),
            },
            Call::Propose { command, limit_ms } => self.propose(from, command, limit_ms).await,
        }
    }

    /// Returns true if this node's disk is not from the past as far as it and the sender know. A node
    /// that has just started asks the sender first, if its log has it as a member already.
    async fn may_vote(&self, id: NodeId) -> bool {
        let comparison = &self.context.comparison;
        let member = self.context.member(id);
        if let Some(member) = &member
            && !comparison.is_known_to(id)
        {
            Box::pin(self.context.compare(&self.applied, id, member)).await;
        }
        let is_known = member.is_none() || comparison.is_known_to(id);
        is_known && comparison.may_vote() && !self.context.is_stopped()
    }

    fn compare(&self, id: NodeId, report: &Report) -> Answer {
        let Some(member) = self.context.member(id) else {
            return Answer::Refused(CallError::NotNow);
        };
        self.context.receive(&self.applied, id, &member, report);
        Answer::Compared(self.context.report(&self.applied, id, member.disk))
    }

    /// Handles a transfer of leadership, which only the leader can request.
    async fn transfer(&self, leader: Ballot, to: NodeId, last: Option<Point>) -> Answer {
        self.context.want(leader, to);
        let last = last.map(LogId::from);
        let request = TransferLeaderRequest::new(Vote::from(leader), to, last);
        match self.raft.handle_transfer_leader(request).await {
            Ok(Ok(())) => Answer::Transferred,
            Ok(Err(_)) => Answer::Refused(CallError::NotNow),
            Err(_) => Answer::Refused(CallError::Stopped),
        }
    }

    async fn vote(&self, candidacy: Candidacy, is_question: bool) -> Answer {
        // Only the leader's own message shows that it wants the candidate.
        let is_transfer = candidacy.is_transfer && self.context.is_wanted(&candidacy).await;
        let Some(_voting) = Voting::begin(&self.context, is_transfer) else {
            return Answer::Refused(CallError::NotNow);
        };
        let mut request =
            VoteRequest::new(Vote::from(candidacy.ballot), candidacy.last.map(LogId::from));
        request.leadership_transfer = is_transfer;
        let answered = if is_question {
            self.raft.pre_vote(request).await
        } else {
            self.raft.vote(request).await
        };
        match answered {
            Ok(VoteResponse { vote, vote_granted, last_log_id }) => {
                if vote_granted && !is_question {
                    self.context.guard.elections.grant(candidacy.ballot);
                }
                Answer::Vote {
                    ballot: (&vote).into(),
                    is_granted: vote_granted,
                    last: last_log_id.map(Point::from),
                }
            }
            Err(_) => Answer::Refused(CallError::Stopped),
        }
    }

    /// Proposes for another node. The command is never passed on: two nodes that take each other
    /// for the leader would do so forever.
    async fn propose(&self, from: &Identity, command: Bytes, limit_ms: u32) -> Answer {
        // A command that this version can't read must not get into a log that it has to apply.
        let Ok(decoded) = spillway_codec::decode::<M::Command>(&command) else {
            return Answer::Refused(CallError::Unreadable);
        };
        if M::proposer(&decoded).is_some_and(|named| named != (from.node(), from.region())) {
            return Answer::Refused(CallError::NotYours);
        }
        drop(decoded);
        let limit = Duration::from_millis(limit_ms.into());
        match propose_here(&self.raft, &self.context, command, limit).await {
            Ok((index, outcome)) => Answer::Proposed { index, outcome },
            Err(ProposeError::NoQuorum { leader }) => Answer::Refused(CallError::NotLeader(leader)),
            Err(_) => Answer::Unknown,
        }
    }

    async fn install(
        &self,
        id: NodeId,
        from: &Identity,
        offer: Offer,
        sender: &mut StreamSender,
    ) -> Result<Answer, StreamError> {
        let Offer { ballot, head, transfer } = offer;
        if !self.follows((id, from), ballot).await {
            return Ok(Answer::Refused(CallError::NotNow));
        }
        let Some(mut place) = self.parcels.expect(from.node(), transfer, head.bytes) else {
            return Ok(Answer::Refused(CallError::Busy));
        };
        send(sender, encode_answer(&Answer::Ready, WireVersion::OLDEST)).await?;
        let arrived = timeout(self.context.snapshot_limit, place.arrived()).await;
        let Ok(Some(data)) = arrived else {
            return Ok(Answer::Refused(CallError::Damaged));
        };
        let whole = crc32c::crc32c(&data) == head.checksum;
        let snapshot = match loaded(&StoredSnapshot { head, data }) {
            Ok(snapshot) if whole => snapshot,
            _ => return Ok(Answer::Refused(CallError::Damaged)),
        };
        Ok(match self.raft.install_full_snapshot(Vote::from(ballot), snapshot).await {
            Ok(response) => {
                // The leader is there: the transfer may have taken longer than a lease.
                self.heard.now();
                Answer::Installed((&response.vote).into())
            }
            Err(_) => Answer::Refused(CallError::Stopped),
        })
    }
}

/// A server as the link calls it.
pub(crate) struct Service<M: Machine>(pub(crate) Arc<PeerServer<M>>);

impl<M: Machine> StreamHandler for Service<M> {
    fn control(&self, from: Identity, streams: (StreamSender, StreamReceiver)) -> Served {
        let (server, (sender, receiver)) = (Arc::clone(&self.0), streams);
        Box::pin(async move {
            if let Err(fault) = server.serve(&from, sender, receiver).await {
                tracing::debug!(peer = %from, %fault, "a stream of the log ended");
            }
        })
    }

    fn bulk(&self, from: Identity, receiver: StreamReceiver) -> Served {
        let server = Arc::clone(&self.0);
        Box::pin(async move { server.parcels.receive(from.node().clone(), receiver).await })
    }
}

/// A vote that is being given, or not.
struct Voting<'c>(&'c Context);

impl<'c> Voting<'c> {
    /// Begins a vote. Returns `None` while this node has promised its leader to vote for no other
    /// node, or may have done so before its restart. A transfer that the leader wants breaks no
    /// promise.
    fn begin(context: &'c Context, is_transfer: bool) -> Option<Self> {
        let mut promise = context.promise();
        if is_transfer {
            promise.begin_wanted_vote();
        } else if !promise.begin_vote(context.now()) {
            return None;
        }
        Some(Self(context))
    }
}

impl Drop for Voting<'_> {
    fn drop(&mut self) {
        self.0.promise().end_vote();
    }
}
