//! State shared by all code that communicates with other nodes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use spillway_codec::EncodeError;
use spillway_link::{Link, OpenError, StreamError, StreamReceiver, StreamSender};
use spillway_types::{DiskId, NodeId, NodeName};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::comparison::Comparison;
use super::guard::Guard;
use super::versions::Versions;
use crate::disk::LogStore;
use crate::ids::Member;
use crate::rules::distances::Distances;
use crate::rules::followers::Followers;
use crate::rules::isolation::Voice;
use crate::rules::knowledge::KnowledgeStatement;
use crate::rules::promise::Promise;
use crate::rules::timing::Timing;
use crate::wire::{
    Addressee, Answer, Call, CallError, Introduction, Opening, Purpose, WireVersion, encode_call,
};

/// State shared by all code that communicates with other nodes.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) link: Arc<Link>,
    pub(crate) node: NodeId,
    pub(crate) disk: DiskId,
    pub(crate) log: LogStore,
    /// From here times are counted.
    pub(crate) started: Instant,
    timing: ArcSwap<Timing>,
    /// Time for which openraft accepts no other leader, as set at its start.
    pub(crate) raft_lease: Duration,
    /// Permission of this node to send as leader.
    pub(crate) voice: watch::Receiver<Voice>,
    /// Knowledge of this node, as leader, about the others.
    pub(crate) followers: watch::Sender<Followers>,
    /// Latest knowledge that a quorum confirmed to this node as leader; set by its watch.
    word: Mutex<Option<KnowledgeStatement>>,
    /// Promises of this node as a follower.
    promise: Mutex<Promise>,
    /// Round trips between the voters, as reported to a leader.
    distances: Mutex<Distances>,
    pub(crate) versions: Versions,
    /// Knowledge of the members, by which senders are judged.
    pub(crate) guard: Guard,
    /// Knowledge that this node has gained by comparing itself with other nodes.
    pub(crate) comparison: Comparison,
    /// Time limit for a snapshot.
    pub(crate) snapshot_limit: Duration,
    /// Makes promises and keeps none, for tests of those who would notice.
    #[cfg(test)]
    pub(crate) breaks_promises: std::sync::atomic::AtomicBool,
    /// Requests with entries of earlier terms that were sent.
    #[cfg(test)]
    pub(crate) old_sent: std::sync::atomic::AtomicU64,
}

/// Settings and handles from which a context is made.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) link: Arc<Link>,
    pub(crate) node: NodeId,
    pub(crate) log: LogStore,
    pub(crate) disk: DiskId,
    pub(crate) timing: Timing,
    pub(crate) voice: watch::Receiver<Voice>,
    pub(crate) wire_newest: WireVersion,
    pub(crate) snapshot_limit: Duration,
    pub(crate) comparison: Comparison,
}

/// A node did not answer as it should.
#[derive(Clone, Debug, Error)]
pub(crate) enum NetError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{0}")]
    Stream(String),
    #[error("refused: {0:?}")]
    Refused(CallError),
    #[error("no answer in time")]
    TimedOut,
    #[error("the node gave the question up")]
    Unanswered,
    #[error("an answer to another question")]
    Unexpected,
    #[error("no quorum has answered this leader for its lease")]
    Silent,
    #[error("it lacks entries that it had confirmed")]
    Lost,
    #[error("it names a later leader, which it has no vote on, or a term far ahead")]
    Unbelieved,
}

impl From<StreamError> for NetError {
    fn from(fault: StreamError) -> Self {
        match fault {
            StreamError::GivenUp(_) => Self::Unanswered,
            fault => Self::Stream(fault.to_string()),
        }
    }
}

impl NetError {
    /// Returns the fault for an answer that fits no question.
    pub(crate) fn of(answer: Answer) -> Self {
        match answer {
            Answer::Refused(refusal) => Self::Refused(refusal),
            _ => Self::Unexpected,
        }
    }

    /// Returns true if the question can't have had an effect.
    pub(crate) fn is_harmless(&self) -> bool {
        matches!(self, Self::Open(_) | Self::Refused(_) | Self::Silent)
    }
}

impl Context {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { link, node, log, disk, timing, voice, wire_newest, .. } = parts;
        let Parts { snapshot_limit, comparison, .. } = parts;
        let promise = Promise::of_start(Duration::ZERO, log.is_blank());
        Self {
            link,
            node,
            disk,
            log,
            started: Instant::now(),
            timing: ArcSwap::from_pointee(timing),
            // openraft keeps the lease of its start, whatever timers a leader sends later.
            raft_lease: timing.lease(),
            voice,
            followers: watch::Sender::new(Followers::default()),
            word: Mutex::new(None),
            promise: Mutex::new(promise),
            distances: Mutex::default(),
            versions: Versions::new(wire_newest),
            guard: Guard::default(),
            comparison,
            snapshot_limit,
            #[cfg(test)]
            breaks_promises: std::sync::atomic::AtomicBool::new(false),
            #[cfg(test)]
            old_sent: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// The timers of now.
    pub(crate) fn timing(&self) -> Timing {
        **self.timing.load()
    }

    /// Goes by other timers from now on.
    pub(crate) fn set_timing(&self, timing: Timing) {
        tracing::info!(from = ?self.timing().heartbeat, to = ?timing.heartbeat, "Raft timers changed");
        self.timing.store(Arc::new(timing));
    }

    /// The time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// A moment as the time since the start.
    pub(crate) fn since_start(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.started)
    }

    /// Returns what a quorum last confirmed to this node as leader; `None` if it never did.
    pub(crate) fn word(&self) -> Option<KnowledgeStatement> {
        *self.word.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a quorum has confirmed to this node as leader.
    pub(crate) fn set_word(&self, word: KnowledgeStatement) {
        *self.word.lock().unwrap_or_else(PoisonError::into_inner) = Some(word);
    }

    /// Locks the round trips between the voters. The holder may only compute, not wait.
    pub(crate) fn distances(&self) -> MutexGuard<'_, Distances> {
        self.distances.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the promises of this node. The holder may only compute, not wait.
    pub(crate) fn promise(&self) -> MutexGuard<'_, Promise> {
        self.promise.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a promise still holds.
    #[cfg(test)]
    pub(crate) fn is_held(&self) -> bool {
        !self.promise().is_free(self.now())
    }

    /// Returns true if the log has stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.log.fault().is_some()
    }

    /// Returns the identity of this node.
    pub(crate) fn introduction(&self) -> Introduction {
        Introduction { node: self.node, disk: self.disk, cluster: self.log.cluster() }
    }

    /// Opens a stream to a member.
    pub(crate) async fn open(
        &self,
        (id, member): (NodeId, &Member),
        purpose: Purpose,
    ) -> Result<(StreamSender, StreamReceiver), NetError> {
        let to = Some(Addressee { node: id, disk: Some(member.disk) });
        self.open_to(&member.name, to, purpose).await
    }

    /// Asks a member something short.
    pub(crate) async fn call(
        &self,
        to: (NodeId, &Member),
        call: &Call,
        limit: Duration,
    ) -> Result<Answer, NetError> {
        let asking = async { ask(self.open(to, Purpose::Call).await?, call).await };
        timeout(limit, asking).await.unwrap_or(Err(NetError::TimedOut))
    }

    /// Asks a node who it is, whether or not it is a member of anything.
    pub(crate) async fn hello(
        &self,
        name: &NodeName,
        limit: Duration,
    ) -> Result<Introduction, NetError> {
        let asking = async {
            let streams = self.open_to(name, None, Purpose::Call).await?;
            match ask(streams, &Call::Hello).await? {
                Answer::Hello(introduction) => Ok(introduction),
                answer => Err(NetError::of(answer)),
            }
        };
        timeout(limit, asking).await.unwrap_or(Err(NetError::TimedOut))
    }

    async fn open_to(
        &self,
        name: &NodeName,
        to: Option<Addressee>,
        purpose: Purpose,
    ) -> Result<(StreamSender, StreamReceiver), NetError> {
        let (mut sender, receiver) = self.link.open_control(name)?;
        let opening = Opening { cluster: self.log.cluster(), from: self.node, to, purpose };
        sender.message(&opening).await?;
        Ok((sender, receiver))
    }
}

/// Sends a frame as a whole.
pub(crate) async fn send(
    sender: &mut StreamSender,
    frame: Result<Bytes, EncodeError>,
) -> Result<(), StreamError> {
    let mut frame = frame?;
    while !frame.is_empty() {
        sender.some(&mut frame).await?;
    }
    Ok(())
}

async fn ask(
    (sender, mut receiver): (StreamSender, StreamReceiver),
    call: &Call,
) -> Result<Answer, NetError> {
    let mut question = Question(sender);
    send(&mut question.0, encode_call(call)).await?;
    question.0.finish();
    let answer = receiver.message::<Answer>().await?;
    answer.ok_or(NetError::Unanswered)
}

/// A call in progress. A caller that gives up waiting takes the call back: a command that a
/// partition kept from the leader must not be applied once the partition has healed, after newer
/// commands. With an answer there is nothing left to take back.
struct Question(StreamSender);

impl Drop for Question {
    fn drop(&mut self) {
        self.0.take_back();
    }
}
