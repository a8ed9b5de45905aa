//! Writes: appends a command to the log, wherever the leader is, and learns its outcome.
//!
//! All attempts of a control write are made by one loop, [`ControlPlane::propose`], under one limit
//! of time. Below it, `spillway-raft` gives the command to one leader, forwards it at most once,
//! and returns whether a log may have it. [`Attempts`] decides what follows.

use std::time::{Duration, Instant};

use spillway_cluster_state::{Actor, Command, CommandError, Outcome, RequestId, State, admits};
use spillway_raft::{ProposeError, Proposed, Urgency};
use tokio::time::timeout;

use crate::attempts::{AttemptFailure, AttemptStep, Attempts, PAUSE, was_led};
use crate::control_plane::ControlPlane;
use crate::hints::urgency;
use crate::removed::removed_reason;

/// A command with its proposer's choices.
struct ControlWrite {
    command: Command,
    actor: Actor,
    request: Option<RequestId>,
    urgency: Urgency,
}

impl ControlPlane {
    /// Appends a command to the log, wherever the leader is, and waits until the command was
    /// carried out on this node or the leader, at most for `limit`. The result is one of three: the
    /// outcome; an error with the reason why no log has the command; or [`ProposeError::Unknown`].
    ///
    /// A command with a `request` id is proposed again until its outcome is known: the id lets it
    /// be carried out once. Without an id, only a command that no log has is proposed again, while
    /// leadership is handed over. Commands that nodes propose by themselves have a budget, in which
    /// health goes before hints: refused hints are usual, and they are counted.
    ///
    /// # Errors
    /// Returns [`ProposeError::Unknown`] if the command may be carried out after all. The other
    /// kinds have the reason why no log has it.
    pub async fn propose(
        &self,
        command: Command,
        actor: Actor,
        request: Option<RequestId>,
        limit: Duration,
    ) -> Result<Proposed<Outcome>, ProposeError> {
        let urgency = urgency(&command, &actor);
        let mut attempts =
            Attempts::of_write(limit, urgency == Urgency::Operator, request.is_some());
        let write = ControlWrite { command, actor, request, urgency };
        let begun = Instant::now();
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            let error = match self.attempt(&write, attempts.is_open(), left).await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let is_led = self.log().is_some_and(|log| was_led(&log.status()));
            match attempts.after(AttemptFailure::from(&error), begun.elapsed(), is_led) {
                AttemptStep::Again => tokio::time::sleep(PAUSE).await,
                AttemptStep::Fail => return Err(error),
                AttemptStep::Unknown => return Err(ProposeError::Unknown),
            }
        }
    }

    /// Proposes once. A command that the state refuses is not proposed, unless an earlier attempt
    /// `is_open`: then the log knows the outcome, which may well be the reason why the state
    /// refuses it now.
    async fn attempt(
        &self,
        write: &ControlWrite,
        is_open: bool,
        limit: Duration,
    ) -> Result<Proposed<Outcome>, ProposeError> {
        let ControlWrite { command, actor, request, urgency } = write;
        if let Err(refusal) = self.look(|state| admits(state, command))
            && !is_open
        {
            return Ok(self.refused(refusal));
        }
        if *self.removed.borrow() {
            return Err(ProposeError::Stopped(removed_reason()));
        }
        if let Some(why) = self.halted.load_full() {
            return Err(ProposeError::Stopped((*why).clone()));
        }
        let Some(log) = self.log() else {
            return Err(ProposeError::NoQuorum { leader: None });
        };
        let entry = self.entry(command.clone(), actor.clone(), *request);
        // Refused here already, so that the log is spared an entry that every node would refuse.
        if let Err(refusal) = self.look(|state| state.check_proposer(&entry))
            && !is_open
        {
            return Ok(self.refused(refusal));
        }
        // On the heap, so that the tasks that wait for a write stay small.
        let writing = Box::pin(log.propose(&entry, *urgency, limit));
        let done = timeout(limit, writing).await;
        let done = done.unwrap_or(Err(ProposeError::Unknown));
        if matches!(done, Err(ProposeError::Budget { .. })) && *urgency == Urgency::Hint {
            self.hints.put_off();
        }
        done
    }

    /// Returns the result of a command that this node's state refuses.
    fn refused(&self, refusal: CommandError) -> Proposed<Outcome> {
        Proposed { index: self.look(State::applied), outcome: Outcome::Refused(refusal) }
    }
}

#[cfg(test)]
mod tests {
    use spillway_cluster_state::{Expect, RefusalCode};
    use spillway_testkit::{eventually, retried};

    use super::*;
    use crate::control_plane_test::{World, agreed_as};

    const LIMIT: Duration = Duration::from_secs(60);

    /// The order takes the right away by which it was given, so the state refuses it from then on.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_write_with_an_open_attempt_is_asked_about_though_the_state_refuses_it() {
        let world = World::started(3).await;
        world.settled().await;
        let is_enforced = || world.running().all(|node| node.look(State::is_enforced));
        eventually("orders need a right", is_enforced).await;
        let node = world.control_plane(0);
        let own = node.look(|state| state.node(&node.config.name).map(|(id, _)| id)).unwrap();
        let write = ControlWrite {
            command: Command::SetNodeOperators {
                node: own,
                is_operator: false,
                expect: Expect::Any,
            },
            actor: Actor::Operator("ada".to_owned()),
            request: Some(RequestId::unkeyed([7; 16])),
            urgency: Urgency::Operator,
        };
        let given = agreed_as(node, &write.command, write.request).await;
        assert!(matches!(given, Outcome::Applied { .. }), "{given:?}");
        let entry = node.entry(write.command.clone(), write.actor.clone(), None);
        let is_refused = || node.look(|state| state.check_proposer(&entry).is_err());
        eventually("the right is gone here", is_refused).await;
        let again = node.attempt(&write, false, LIMIT).await.unwrap().outcome;
        let Outcome::Refused(refusal) = again else { panic!("{again:?}") };
        assert_eq!(refusal.code, RefusalCode::NotPermitted);
        let open = retried(ProposeError::is_transient, || node.attempt(&write, true, LIMIT));
        assert_eq!(open.await.unwrap().outcome, given);
    }
}
