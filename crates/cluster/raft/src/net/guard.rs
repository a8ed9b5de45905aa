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
use super::elections::{Elections, Voters};
use crate::ids::Member;
use crate::raft::{LogId, Members, Types};
use crate::rules::isolation::Voice;
use crate::rules::standing::{BallotClaim, SenderStanding, Situation, is_near};
use crate::wire::{Ballot, Candidacy};

type Metrics = openraft::RaftMetrics<Types>;

/// Knowledge of the members. Filled once the log runs.
#[derive(Default)]
pub(crate) struct Guard {
    metrics: OnceLock<WatchReceiverOf<Types, Metrics>>,
    /// Names that a member has reported, while this node's own log does not know them.
    vouched: std::sync::Mutex<std::collections::BTreeSet<NodeName>>,
    /// Elections as this node has seen them.
    pub(crate) elections: Elections,
    /// Latest wish of a leader to hand over.
    wanted: watch::Sender<Option<HandoverWish>>,
}

/// Announcement of a leader that it wants another node to lead.
#[derive(Clone, Copy, Debug)]
struct HandoverWish {
    to: NodeId,
    /// The leader's term.
    term: u64,
    at: Instant,
}

impl HandoverWish {
    fn is_for(&self, ballot: Ballot, limit: Duration) -> bool {
        self.to == ballot.node && self.term < ballot.term && self.at.elapsed() < limit
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Guard {
    /// Starts to follow the metrics of the log that runs.
    pub(crate) fn begin(&self, metrics: WatchReceiverOf<Types, Metrics>) {
        // The disk holds the vote that this node gave before its restart.
        self.elections.grant(Ballot::from(&metrics.borrow_watched().vote));
        // Only the start does it, once.
        drop(self.metrics.set(metrics));
    }

    /// Notes that, according to a member, these are members too.
    pub(crate) fn vouch(&self, names: impl IntoIterator<Item = NodeName>) {
        let names = names.into_iter().collect();
        *self.vouched.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = names;
    }

    fn is_vouched(&self, name: &NodeName) -> bool {
        let vouched = self.vouched.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        vouched.contains(name)
    }

    /// Returns the latest ballot that this node knows.
    pub(crate) fn vote(&self) -> Option<Ballot> {
        self.look(|metrics| Ballot::from(&metrics.vote))
    }

    /// Returns the voters; `None` before the log runs.
    pub(crate) fn voters(&self) -> Option<Voters> {
        self.look(|metrics| {
            let members = metrics.membership_config.membership();
            let known = |id: NodeId| Some((id, members.get_node(&id)?.clone()));
            let voters = members.voter_ids().filter_map(known).collect();
            (members.get_joint_config().clone(), voters)
        })
    }

    /// Returns true if a leader has announced within `limit` that it hands over to the sender of
    /// `ballot`.
    pub(crate) fn is_handed_over(&self, ballot: Ballot, limit: Duration) -> bool {
        self.wanted.borrow().is_some_and(|wanted| wanted.is_for(ballot, limit))
    }

    /// Returns the members and the leader, as far as this node knows.
    pub(crate) fn members(&self) -> Option<(Members, Option<NodeId>)> {
        self.look(|metrics| {
            (metrics.membership_config.membership().clone(), metrics.current_leader)
        })
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

    /// Returns what this node knows of a sender and its ballot; `None` if the sender's number
    /// belongs to another node. `heard` is the time since the last message of a leader; `None` for
    /// never.
    pub(crate) fn situation(
        &self,
        id: NodeId,
        from: &Identity,
        ballot: Ballot,
        heard: Option<Duration>,
    ) -> Option<Situation> {
        let standing = self.standing(id, from)?;
        let term = self.guard.look(|metrics| metrics.current_term).unwrap_or_default();
        // No leader has sent anything yet, so the silence is as old as the start.
        let silence = heard.unwrap_or_else(|| self.now());
        Some(Situation {
            sender: id,
            standing,
            is_proven: ballot.is_won && self.backs(ballot),
            // A new node's term shows nothing: the cluster that it joins may have had any number of
            // elections.
            term: (!self.log.is_blank()).then_some(term),
            // A leader that a quorum answers receives from no other leader. That does not count as
            // silence.
            silence: if self.is_confirmed() { Duration::ZERO } else { silence },
            lease: self.timing().lease(),
        })
    }

    /// Returns true if this node leads and a quorum has answered it within its lease.
    fn is_confirmed(&self) -> bool {
        let leads = self.guard.look(|metrics| metrics.current_leader == Some(self.node));
        leads == Some(true) && *self.voice.borrow() == Voice::Confirmed
    }

    /// Returns true if this node should believe that the sender of `ballot` leads. Asks the other
    /// voters if its own knowledge is not enough.
    pub(crate) async fn follows(&self, situation: Situation, ballot: Ballot) -> bool {
        let is_admitted = situation.admits(BallotClaim::Leader, ballot);
        let may_be_proven = situation.standing != SenderStanding::Stranger
            && situation.is_well_formed(BallotClaim::Leader, ballot);
        let follows = is_admitted || (may_be_proven && self.is_elected(ballot).await);
        // Until openraft has taken the ballot in, further messages of the leader rest on this.
        if follows && situation.term.is_none_or(|own| ballot.term >= own) {
            self.guard.elections.grant(ballot);
        }
        follows
    }

    /// Returns a member, as the latest members in the log have it.
    pub(crate) fn member(&self, id: NodeId) -> Option<Member> {
        self.guard.look(|metrics| metrics.membership_config.membership().get_node(&id).cloned())?
    }

    /// Returns the last entry that a follower of this leader has confirmed, as far as known.
    pub(crate) fn matched(&self, id: NodeId) -> Option<LogId> {
        self.guard.look(|metrics| *metrics.replication.as_ref()?.get(&id)?).flatten()
    }

    /// Returns true if `id` won the election of `ballot`, which is the latest that this node knows.
    pub(crate) fn follows_now(&self, id: NodeId, ballot: Ballot) -> bool {
        let is_latest = self.guard.look(|metrics| Ballot::from(&metrics.vote) == ballot);
        ballot.node == id && ballot.is_won && is_latest == Some(true)
    }

    /// Waits until this node follows that leader, for at most a heartbeat. A message that has just
    /// arrived counts once it is on this node's disk.
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
    /// decide who leads, and none of them leaps over terms. A leader with a majority believes no
    /// member, because a single answer would depose it. It notes the dispute: a member that lost an
    /// election follows no leader of an earlier term, so another node has to lead.
    pub(crate) fn believes(&self, id: NodeId, ballot: Ballot) -> bool {
        let believed = self.guard.look(|metrics| {
            let members = metrics.membership_config.membership();
            let is_member = members.get_node(&id).is_some();
            let votes = members.voter_ids().any(|it| it == id);
            let is_later = ballot.term > metrics.current_term;
            (is_member && is_near(ballot, metrics.current_term), votes, is_later)
        });
        let Some((may_count, votes, is_later)) = believed else { return true };
        if may_count && is_later && self.is_confirmed() {
            self.guard.elections.dispute(id);
            return false;
        }
        may_count && votes
    }

    /// Notes that the leader of `ballot` has announced, or announces now, that it wants `to` to
    /// lead.
    pub(crate) fn want(&self, ballot: Ballot, to: NodeId) {
        let wanted = HandoverWish { to, term: ballot.term, at: Instant::now() };
        self.guard.wanted.send_replace(Some(wanted));
    }

    /// Returns true if the leader that this node follows has announced that it wants this
    /// candidate. Waits up to a heartbeat, as the leader's message may come a little later than the
    /// candidate's.
    pub(crate) async fn is_wanted(&self, candidacy: &Candidacy) -> bool {
        let timing = self.timing();
        let ballot = candidacy.ballot;
        let mut wanted = self.guard.wanted.subscribe();
        let is_it = |wanted: &Option<HandoverWish>| {
            wanted.is_some_and(|wanted| wanted.is_for(ballot, 2 * timing.lease()))
        };
        timeout(timing.heartbeat, wanted.wait_for(is_it)).await.is_ok_and(|found| found.is_ok())
    }
}
