//! What all that speaks to other nodes needs.

use std::sync::Arc;
use std::time::Duration;

use spillway_link::{Link, OpenFault, StreamFault, StreamReceiver, StreamSender};
use spillway_types::NodeName;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::disk::LogStore;
use crate::ids::{DiskId, Member, NodeId};
use crate::rules::isolation::Voice;
use crate::rules::timing::Timing;
use crate::wire::{Addressee, Answer, Call, Introduction, Opening, Purpose, Refusal};

/// What all that speaks to other nodes needs.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) link: Arc<Link>,
    pub(crate) node: NodeId,
    pub(crate) disk: DiskId,
    pub(crate) log: LogStore,
    pub(crate) timing: Timing,
    /// Whether this node may speak as leader.
    pub(crate) voice: watch::Receiver<Voice>,
}

/// A node did not answer as it should.
#[derive(Clone, Debug, Error)]
pub(crate) enum NetFault {
    #[error(transparent)]
    Open(#[from] OpenFault),
    #[error("{0}")]
    Stream(String),
    #[error("refused: {0:?}")]
    Refused(Refusal),
    #[error("no answer in time")]
    TimedOut,
    #[error("an answer to another question")]
    Unexpected,
    #[error("no quorum has answered this leader for its lease")]
    Silent,
}

impl From<StreamFault> for NetFault {
    fn from(fault: StreamFault) -> Self {
        Self::Stream(fault.to_string())
    }
}

impl NetFault {
    /// What an answer means that fits no question.
    pub(crate) fn of(answer: Answer) -> Self {
        match answer {
            Answer::Refused(refusal) => Self::Refused(refusal),
            _ => Self::Unexpected,
        }
    }

    /// Whether the question can't have had an effect.
    pub(crate) fn is_harmless(&self) -> bool {
        matches!(self, Self::Open(_) | Self::Refused(_) | Self::Silent)
    }
}

impl Context {
    /// Who this node is.
    pub(crate) fn introduction(&self) -> Introduction {
        Introduction { node: self.node, disk: self.disk, cluster: self.log.cluster() }
    }

    /// Opens a stream to a member.
    pub(crate) async fn open(
        &self,
        (id, member): (NodeId, &Member),
        purpose: Purpose,
    ) -> Result<(StreamSender, StreamReceiver), NetFault> {
        let to = Some(Addressee { node: id, disk: Some(member.disk) });
        self.open_to(&member.name, to, purpose).await
    }

    /// Asks a member something short.
    pub(crate) async fn call(
        &self,
        to: (NodeId, &Member),
        call: &Call,
        limit: Duration,
    ) -> Result<Answer, NetFault> {
        let asking = async { ask(self.open(to, Purpose::Call).await?, call).await };
        timeout(limit, asking).await.unwrap_or(Err(NetFault::TimedOut))
    }

    /// Asks a node who it is, whether or not it is a member of anything.
    pub(crate) async fn hello(
        &self,
        name: &NodeName,
        limit: Duration,
    ) -> Result<Introduction, NetFault> {
        let asking = async {
            let streams = self.open_to(name, None, Purpose::Call).await?;
            match ask(streams, &Call::Hello).await? {
                Answer::Hello(introduction) => Ok(introduction),
                answer => Err(NetFault::of(answer)),
            }
        };
        timeout(limit, asking).await.unwrap_or(Err(NetFault::TimedOut))
    }

    async fn open_to(
        &self,
        name: &NodeName,
        to: Option<Addressee>,
        purpose: Purpose,
    ) -> Result<(StreamSender, StreamReceiver), NetFault> {
        let (mut sender, receiver) = self.link.open_control(name)?;
        let opening = Opening { cluster: self.log.cluster(), from: self.node, to, purpose };
        sender.message(&opening).await?;
        Ok((sender, receiver))
    }
}

async fn ask(
    (mut sender, mut receiver): (StreamSender, StreamReceiver),
    call: &Call,
) -> Result<Answer, NetFault> {
    sender.message(call).await?;
    sender.finish();
    let answer = receiver.message::<Answer>().await?;
    answer.ok_or_else(|| NetFault::Stream("the stream ended before the answer".to_owned()))
}
