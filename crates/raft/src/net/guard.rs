//! Judgement of senders by this node's knowledge of the members, for [`Situation`].

use std::sync::OnceLock;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::type_config::alias::WatchReceiverOf;
use spillway_link::Identity;
use spillway_types::{NodeId, NodeName};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::context::Context;
use crate::ids::Member;
use crate::raft::Types;
use crate::rules::isolation::Voice;
use crate::rules::standing::{SenderStanding, Situation, is_near};
use crate::wire::{Ballot, Candidacy};

/// Shortest time between two cases in which a leader yields to a member without a vote.
const YIELD_PERIOD: Duration = Duration::from_secs(60);

type Metrics = openraft::RaftMetrics<Types>;

/// Knowledge of the members. Filled once the log runs.
#[derive(Default)]
pub(crate) struct Guard {
    metrics: OnceLock<WatchReceiverOf<Types, Metrics>>,
    /// Names that a member has told this node, while its own log does not know them.
    vouched: std::sync::Mutex<std::collections::BTreeSet<NodeName>>,
    /// Time at which this node last believed a member without a vote.
    yielded: std::sync::Mutex<Option<Instant>>,
    /// Latest wish of a leader to hand over.
    wanted: watch::Sender<Option<Wanted>>,
}

/// A leader has said that it wants another one to lead.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    to: NodeId,
    /// The leader's term.
    term: u64,
    at: Instant,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Guard {
    /// Starts to follow the metrics of the log that runs.
    pub(crate) fn begin(&self, metrics: WatchReceiverOf<Types, Metrics>) {
        // Only the start does it, once.
        drop(self.metrics.set(metrics));
    }

    /// A member has told that these are members too.
    pub(crate) fn vouch(&self, names: impl IntoIterator<Item = NodeName>) {
        let names = names.into_iter().collect();
        *self.vouched.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = names;
    }

    fn is_vouched(&self, name: &NodeName) -> bool {
        let vouched = self.vouched.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        vouched.contains(name)
    }

    /// Returns true if a leader may yield now to a member without a vote, and notes that it does.
    fn may_yield(&self) -> bool {
        let mut yielded = self.yielded.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let may = yielded.is_none_or(|at| at.elapsed() >= YIELD_PERIOD);
        if may {
            *yielded = Some(Instant::now());
        }
        may
    }

    fn look<R>(&self, look: impl FnOnce(&Metrics) -> R) -> Option<R> {
        Some(look(&self.metrics.get()?.borrow_watched()))
    }
}

impl Context {
    /// Returns the standing of a sender that calls itself `id` and has shown the certificate of
    /// `from`. `None` if that number is another node's.
    pub(crate) fn standing(&self, id: NodeId, from: &Identity) -> Option<SenderStanding> {
        let judged = self.guard.look(|metrics| {
            let members = metrics.membership_config.membership();
            if members.get_node(&self.node).is_none() {
                return Some(SenderStanding::Unjudged);
            }
            match members.get_node(&id) {
                Some(Member { name, region, .. })
                    if *name == *from.node() && *region == *from.region() =>
                {
                    let votes = members.voter_ids().any(|voter| voter == id);
                    Some(if votes { SenderStanding::Voter } else { SenderStanding::Member })
                }
                Some(_) => None,
                None if self.guard.is_vouched(from.node()) => Some(SenderStanding::Member),
                None => Some(SenderStanding::Stranger),
            }
        });
        judged.unwrap_or(Some(SenderStanding::Unjudged))
    }

    /// Returns true if this node should listen to a sender as the leader or candidate of `ballot`.
    /// `heard` is the time since a leader was heard; `None` for never.
    pub(crate) fn listens(
        &self,
        id: NodeId,
        from: &Identity,
        ballot: Ballot,
        heard: Option<Duration>,
    ) -> bool {
        let Some(standing) = self.standing(id, from) else { return false };
        let seen = self.guard.look(|metrics| {
            let leads = metrics.current_leader == Some(self.node);
            (metrics.current_term, leads)
        });
        let (term, leads) = seen.unwrap_or_default();
        let is_confirmed = leads && *self.voice.borrow() == Voice::Confirmed;
        // A leader was never heard, so the silence is as old as the start.
        let silence = heard.unwrap_or_else(|| self.now());
        let situation = Situation {
            sender: id,
            standing,
            is_followed: self.follows_now(id, ballot),
            // A new node's term says nothing: the cluster that it joins may have had any number of
            // elections.
            term: (!self.log.is_blank()).then_some(term),
            // A leader whom a quorum answers hears no other leader, and that is no silence.
            silence: if is_confirmed { Duration::ZERO } else { silence },
            lease: self.timing().lease(),
        };
        situation.admits(ballot)
    }

    /// Returns true if `id` won the election of `ballot`, which is the latest that this node knows.
    pub(crate) fn follows_now(&self, id: NodeId, ballot: Ballot) -> bool {
        let is_latest = self.guard.look(|metrics| Ballot::from(&metrics.vote) == ballot);
        ballot.node == id && ballot.is_won && is_latest == Some(true)
    }

    /// Waits until this node follows that leader, a heartbeat at most: what a node has just heard
    /// counts once it is on its disk.
    pub(crate) async fn follows_soon(&self, id: NodeId, ballot: Ballot) -> bool {
        let Some(mut metrics) = self.guard.metrics.get().cloned() else { return false };
        let following = async {
            while !self.follows_now(id, ballot) {
                metrics.changed().await.ok()?;
            }
            Some(())
        };
        matches!(timeout(self.timing().heartbeat, following).await, Ok(Some(())))
    }

    /// Returns true if a later ballot in another node's answer is to be believed: only voters
    /// decide who leads, and none of them leaps over terms. A member without a vote is believed
    /// once a minute: one that lost its vote while it stood for election follows no leader of an
    /// earlier term.
    pub(crate) fn believes(&self, id: NodeId, ballot: Ballot) -> bool {
        let believed = self.guard.look(|metrics| {
            let members = metrics.membership_config.membership();
            let votes = members.voter_ids().any(|it| it == id);
            let may_count = votes || (members.get_node(&id).is_some() && self.guard.may_yield());
            is_near(ballot, metrics.current_term) && may_count
        });
        believed != Some(false)
    }

    /// The leader of `ballot` has said, or says now, that it wants `to` to lead.
    pub(crate) fn want(&self, ballot: Ballot, to: NodeId) {
        let wanted = Wanted { to, term: ballot.term, at: Instant::now() };
        self.guard.wanted.send_replace(Some(wanted));
    }

    /// Returns true if the leader that this node follows has said that it wants this candidate.
    /// Waits up to a heartbeat, as the leader's message may come a little later than the
    /// candidate's.
    pub(crate) async fn is_wanted(&self, candidacy: &Candidacy) -> bool {
        let timing = self.timing();
        let ballot = candidacy.ballot;
        let mut wanted = self.guard.wanted.subscribe();
        let is_it = |wanted: &Option<Wanted>| {
            wanted.is_some_and(|it| {
                it.to == ballot.node
                    && it.term < ballot.term
                    && it.at.elapsed() < 2 * timing.lease()
            })
        };
        timeout(timing.heartbeat, wanted.wait_for(is_it)).await.is_ok_and(|found| found.is_ok())
    }
}
