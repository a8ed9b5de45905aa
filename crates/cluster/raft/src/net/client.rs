//! Speaks to one other node for openraft.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, stream};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use spillway_types::NodeId;
use tokio::time::{Instant, sleep_until, timeout};

use super::context::{Context, NetError};
use super::pipeline::Pipeline;
use crate::ids::Member;
use crate::raft::{LogId, Snapshot, Types, Vote};
use crate::state_machine::stored;
use crate::wire::{Answer, Ballot, Call, Candidacy, Offer, Parcel, Point, Purpose};

/// Bytes of a snapshot that are handed to the connection at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Makes clients.
#[derive(Clone, Debug)]
pub(crate) struct PeerNetwork(pub(crate) Arc<Context>);

/// Speaks to one other node.
#[derive(Clone, Debug)]
pub(crate) struct PeerClient {
    context: Arc<Context>,
    id: NodeId,
    member: Member,
}

impl RaftNetworkFactory<Types> for PeerNetwork {
    type Network = PeerClient;

    async fn new_client(&mut self, target: NodeId, node: &Member) -> PeerClient {
        PeerClient { context: Arc::clone(&self.0), id: target, member: node.clone() }
    }
}

type Appended = Result<StreamAppendResult<Types>, RPCError<Types>>;

impl RaftNetworkV2<Types> for PeerClient {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        // A stream of its own: a heartbeat never waits behind entries.
        let requests = Box::pin(stream::once(async { request }));
        let mut answers = self.stream_append(requests, option).await?;
        let answer = answers.next().await;
        let answer = answer.ok_or_else(|| unreachable(&NetError::Unexpected))?;
        answer.map(AppendEntriesResponse::from)
    }

    fn stream_append<'s, S>(
        &'s mut self,
        requests: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, Appended>, RPCError<Types>>>
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + Send + Unpin + 'static,
    {
        let (context, member) = (Arc::clone(&self.context), self.member.clone());
        let pipeline = Pipeline::new(context, self.id, member, requests, option.soft_ttl());
        let answers = stream::unfold(Some(pipeline), |pipeline| async {
            let mut pipeline = pipeline?;
            let answer = pipeline.next().await?;
            // A failure ends the stream, and so does any answer but success.
            let rest = matches!(answer, Ok(Ok(_))).then_some(pipeline);
            Some((answer.map_err(|fault| unreachable(&fault)), rest))
        });
        Box::pin(async { Ok(answers.boxed()) })
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask_for_vote(&Call::Vote(candidacy(&request)), &option).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask_for_vote(&Call::PreVote(candidacy(&request)), &option).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let sending = timeout(option.soft_ttl(), self.send_snapshot(vote, snapshot));
        tokio::select! {
            sent = sending => match sent.unwrap_or(Err(NetError::TimedOut)) {
                Ok(vote) => Ok(SnapshotResponse::new(vote)),
                Err(fault) => Err(unreachable(&fault).into()),
            },
            closed = cancel => Err(StreamingError::Closed(closed)),
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        let call = Call::Transfer {
            from: request.from_leader().into(),
            to: *request.to_node_id(),
            last: request.last_log_id().copied().map(Point::from),
        };
        let answer = self.context.call((self.id, &self.member), &call, option.soft_ttl()).await;
        match answer.map_err(|fault| unreachable(&fault))? {
            Answer::Transferred => Ok(Ok(())),
            answer => Err(unreachable(&NetError::of(answer))),
        }
    }
}

impl PeerClient {
    async fn ask_for_vote(
        &self,
        call: &Call,
        option: &RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let (Call::Vote(asked) | Call::PreVote(asked)) = call else {
            return Err(unreachable(&NetError::Unexpected));
        };
        let begun = Instant::now();
        let answer = self.context.call((self.id, &self.member), call, option.soft_ttl()).await;
        match answer.map_err(|fault| unreachable(&fault))? {
            Answer::Vote { ballot, .. }
                if ballot != asked.ballot && !self.context.believes(self.id, ballot) =>
            {
                Err(unreachable(&NetError::Unbelieved))
            }
            Answer::Vote { ballot, is_granted, last } => {
                if ballot.term > asked.ballot.term {
                    // It ends this candidacy, so the votes of a majority get time to arrive first:
                    // one voter must not stop the election of another one.
                    let pause = self.context.timing().heartbeat.min(option.soft_ttl());
                    sleep_until(begun + pause).await;
                }
                // An answer to a question before the election is not on the other node's disk.
                let is_kept = is_granted && matches!(call, Call::Vote(_));
                if let Some(last) = last.filter(|_| is_kept && ballot == asked.ballot) {
                    // It keeps its vote on disk, and all that was to be written before it.
                    let ballot = asked.ballot;
                    self.context.followers.send_modify(|all| all.holds(ballot, self.id, last));
                }
                Ok(VoteResponse::new(Vote::from(ballot), last.map(LogId::from), is_granted))
            }
            answer => Err(unreachable(&NetError::of(answer))),
        }
    }

    /// Offers the snapshot on the control connection and sends it on the data connection, where it
    /// delays no heartbeat.
    async fn send_snapshot(&self, vote: Vote, snapshot: Snapshot) -> Result<Vote, NetError> {
        static TRANSFERS: AtomicU64 = AtomicU64::new(0);
        // The bytes come on another connection than the offer: the number joins them.
        let transfer = TRANSFERS.fetch_add(1, Ordering::Relaxed);
        let stored = stored(&snapshot.meta, snapshot.snapshot);
        let offer = Offer { ballot: (&vote).into(), head: stored.head, transfer };
        let to = (self.id, &self.member);
        let (mut sender, mut receiver) = self.context.open(to, Purpose::Snapshot).await?;
        sender.message(&offer).await?;
        match receiver.message::<Answer>().await? {
            Some(Answer::Ready) => {}
            Some(answer) => return Err(NetError::of(answer)),
            None => return Err(NetError::Unexpected),
        }
        let mut bulk = self.context.link.open_bulk(&self.member.name)?;
        let mut data = stored.data;
        bulk.message(&Parcel { transfer, bytes: data.len() as u64 }).await?;
        while !data.is_empty() {
            let mut piece = data.split_to(data.len().min(PIECE_BYTES));
            while !piece.is_empty() {
                bulk.some(&mut piece).await?;
            }
        }
        bulk.finish();
        match receiver.message::<Answer>().await? {
            Some(Answer::Installed(at))
                if at != Ballot::from(&vote) && !self.context.believes(self.id, at) =>
            {
                Err(NetError::Unbelieved)
            }
            Some(Answer::Installed(ballot)) => {
                sender.finish();
                // Of another leader only the term is believed: its own messages have to prove it.
                let is_won = ballot == Ballot::from(&vote);
                Ok(Vote::from(Ballot { is_won, ..ballot }))
            }
            Some(answer) => Err(NetError::of(answer)),
            None => Err(NetError::Unexpected),
        }
    }
}

fn candidacy(request: &VoteRequest<Types>) -> Candidacy {
    Candidacy {
        ballot: (&request.vote).into(),
        last: request.last_log_id.map(Point::from),
        is_transfer: request.leadership_transfer,
    }
}

/// The only error that is reported to openraft. It makes openraft wait a little before the next
/// try.
fn unreachable(fault: &NetError) -> RPCError<Types> {
    RPCError::Unreachable(Unreachable::new(fault))
}
