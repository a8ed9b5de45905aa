//! Answers to nodes that ask to be members, or for their standing.

use std::sync::Weak;
use std::time::Duration;

use spillway_cluster_state::{
    Actor, ApplyError, ClusterId, Command, CommandError, NodeSpec, Outcome, RefusalCode, State,
    dry_run,
};
use spillway_link::{Identity, JoinHandler, Served, StreamError, StreamReceiver, StreamSender};
use spillway_raft::{Consistency, ProposeError};
use tokio::time::timeout;

use super::message::{Contact, JoinAnswer, Membership, Question, Wish};
use crate::control_plane::ControlPlane;

/// Time limit of one step of an answer; three steps fit into the link's limit.
const LIMIT: Duration = Duration::from_secs(4);
/// Time limit for the question to arrive.
const QUESTION_LIMIT: Duration = Duration::from_secs(3);

/// The gate of one node: answers questions from nodes that are no peers.
#[derive(Debug)]
pub(crate) struct JoinServer(pub(crate) Weak<ControlPlane>);

impl JoinHandler for JoinServer {
    fn asked_to_join(&self, from: Identity, streams: (StreamSender, StreamReceiver)) -> Served {
        let control_plane = self.0.clone();
        Box::pin(async move {
            if let Err(fault) = serve(control_plane, &from, streams).await {
                tracing::debug!(%from, %fault, "a join request was not answered");
            }
        })
    }
}

async fn serve(
    control_plane: Weak<ControlPlane>,
    from: &Identity,
    (mut sender, mut receiver): (StreamSender, StreamReceiver),
) -> Result<(), StreamError> {
    // A question that comes too late gets no answer.
    let asked = timeout(QUESTION_LIMIT, receiver.message::<Question>()).await;
    let Some(question) = asked.unwrap_or(Ok(None))? else { return Ok(()) };
    let Some(control_plane) = control_plane.upgrade() else { return Ok(()) };
    let is_join = matches!(question.wish, Wish::Join | Wish::JoinSigned(_));
    let answer = control_plane.answer(from, question).await;
    match &answer {
        JoinAnswer::Member(Membership { number, .. }) if is_join => {
            tracing::info!(%from, %number, "a node was admitted to the cluster");
        }
        JoinAnswer::Refused(refusal) => {
            tracing::warn!(%from, %refusal, "a node was not admitted to the cluster");
        }
        _ => tracing::debug!(%from, ?answer, "answered a join request"),
    }
    sender.message(&answer).await?;
    sender.finish();
    Ok(())
}

impl ControlPlane {
    async fn answer(&self, from: &Identity, question: Question) -> JoinAnswer {
        let Question { cluster, node, wish } = question;
        // Only the certificate proves who asks; any node can claim the rest.
        if (from.node(), from.region()) != (&node.name, &node.region) {
            let cause =
                format!("the certificate is of {from}, not of {}/{}", node.region, node.name);
            return refused(RefusalCode::Invalid, cause, "ask with the node's own certificate");
        }
        let log = self.status().cluster;
        // A cluster that is being recreated still has the old one's state for a moment. A node that
        // joins that state would be retired with the rest.
        let Some(own) = self.published().cluster().filter(|own| Some(*own) == log) else {
            return JoinAnswer::NotFormed;
        };
        if let Some(theirs) = cluster.filter(|theirs| *theirs != own) {
            let cause = format!("this is cluster {own}, the folder of {from} is of {theirs}");
            let remedy = "empty the folder and join by token, or ask nodes of that cluster";
            return refused(RefusalCode::OtherCluster, cause, remedy);
        }
        let state = self.published();
        // A member that asks again: its first answer may be lost. It registers its address itself
        // later.
        if let Some(membership) = membership(&state, &node) {
            return JoinAnswer::Member(membership);
        }
        self.taken_in(own, node, wish).await
    }

    /// Answers a node that is no member.
    async fn taken_in(&self, own: ClusterId, node: NodeSpec, wish: Wish) -> JoinAnswer {
        let command = match wish {
            Wish::Cluster => return JoinAnswer::Cluster(own),
            Wish::Join => Command::RegisterNode { node: node.clone() },
            Wish::JoinSigned(token) => Command::JoinNode { node: node.clone(), token },
            Wish::Standing => return self.standing_of_stranger(&node),
        };
        match self.register(command).await {
            Ok(()) => self.membership_once_known(&node).await,
            Err(answer) => answer,
        }
    }

    fn standing_of_stranger(&self, node: &NodeSpec) -> JoinAnswer {
        // Why it could not just register, as any member does when it starts.
        let command = Command::RegisterNode { node: node.clone() };
        match self.dry_run(&command, Actor::Node) {
            Err(ApplyError::Refused(refusal)) => JoinAnswer::Refused(refusal),
            Ok(_) | Err(ApplyError::Conflict { .. }) => {
                let cause = format!("{} is no member", node.name);
                let remedy = "let it join: name a `join_token_file` in [cluster]";
                refused(RefusalCode::Unknown, cause, remedy)
            }
        }
    }

    /// Writes the registration. A refusal is found before anything is written to the log.
    async fn register(&self, command: Command) -> Result<(), JoinAnswer> {
        let entry = self.entry(command.clone(), Actor::Node, None);
        // A linearizable read: a token that was just made at another node counts.
        let would = self.read(Consistency::Linearizable, LIMIT, |state| dry_run(state, &entry));
        match would.await {
            Err(error) => return Err(JoinAnswer::NotNow(error.to_string())),
            Ok(read) => read.value.map(drop).map_err(|fault| of_outcome(fault.into()))?,
        }
        match self.propose(command, Actor::Node, None, LIMIT).await {
            Ok(done) => match done.outcome {
                Outcome::Applied { .. } | Outcome::Unchanged => Ok(()),
                outcome => Err(of_outcome(outcome)),
            },
            Err(ProposeError::NoQuorum { .. }) => {
                Err(JoinAnswer::NotNow("there is no quorum".to_owned()))
            }
            Err(error) => Err(JoinAnswer::NotNow(error.to_string())),
        }
    }

    async fn membership_once_known(&self, node: &NodeSpec) -> JoinAnswer {
        let mut publications = self.publications();
        let known = async {
            loop {
                // Marked before the look, so that a publication in between is not missed.
                publications.mark_unchanged();
                if let Some(membership) = membership(&self.published(), node) {
                    return Some(membership);
                }
                publications.changed().await.ok()?;
            }
        };
        match timeout(LIMIT, known).await {
            Ok(Some(membership)) => JoinAnswer::Member(membership),
            _ => JoinAnswer::NotNow("it is registered, and not known here yet".to_owned()),
        }
    }
}

/// Returns all that `node` needs to begin, if it is a member with that very disk.
fn membership(state: &State, node: &NodeSpec) -> Option<Membership> {
    let (number, known) = state.node(&node.name)?;
    let is_it = known.spec.disk == node.disk && known.spec.region == node.region;
    let others = state.records().nodes.iter().filter(|(id, _)| **id != number);
    let contact = |spec: &NodeSpec| Contact {
        name: spec.name.clone(),
        region: spec.region.clone(),
        address: spec.address.clone(),
    };
    let others = others.map(|(_, other)| contact(&other.spec)).collect();
    Some(Membership { cluster: state.cluster()?, number, others }).filter(|_| is_it)
}

fn of_outcome(outcome: Outcome) -> JoinAnswer {
    match outcome {
        Outcome::Refused(refusal) => JoinAnswer::Refused(refusal),
        other => JoinAnswer::NotNow(format!("{other:?}")),
    }
}

fn refused(code: RefusalCode, cause: String, remedy: &str) -> JoinAnswer {
    JoinAnswer::Refused(CommandError { code, cause, remedy: remedy.to_owned() })
}
