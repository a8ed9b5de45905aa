//! Regular checks of the log: starts an election when it is time, notices that no quorum answers a
//! leader, and requests a snapshot when the log has grown long.

use std::sync::Arc;
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::steering::Steering;
use crate::config::Compaction;
use crate::machine::Machine;
use crate::net::{Context, LeaderContact};
use crate::raft::Types;
use crate::rules::campaign::{Campaign, CampaignTurn, LeaderObservation};
use crate::rules::isolation::Voice;
use crate::rules::knowledge::KnowledgeStatement;
use crate::state_machine::Raft;
use crate::wire::Ballot;

/// Checks in a heartbeat.
const LOOKS: u32 = 16;

type Metrics = openraft::RaftMetrics<Types>;

/// Regular checks of one node's log.
pub(super) struct LogWatch<M: Machine> {
    raft: Raft<M>,
    context: Arc<Context>,
    steering: Steering<M>,
    heard: LeaderContact,
    voice: watch::Sender<Voice>,
    campaign: Campaign,
    random: fastrand::Rng,
    /// Term in which this node leads, and the start of its lead; `None` while it does not lead.
    leads: Option<(u64, Instant)>,
    /// True if a snapshot was asked for and is not made yet.
    is_compacting: bool,
}

impl<M: Machine> LogWatch<M> {
    pub(super) fn new(
        steering: Steering<M>,
        heard: LeaderContact,
        voice: watch::Sender<Voice>,
    ) -> Self {
        Self {
            raft: steering.raft.clone(),
            context: Arc::clone(&steering.context),
            steering,
            heard,
            voice,
            campaign: Campaign::new(Duration::ZERO),
            random: fastrand::Rng::new(),
            leads: None,
            is_compacting: false,
        }
    }

    pub(super) async fn run(mut self, compaction: Compaction) {
        loop {
            sleep(self.context.timing().heartbeat / LOOKS).await;
            let now = Instant::now();
            let metrics = self.raft.metrics().borrow_watched().clone();
            let voice = self.voice_at(now, &metrics);
            self.voice.send_if_modified(|current| {
                if *current != voice {
                    tracing::info!(from = ?*current, to = ?voice, "contact with the quorum changed");
                }
                std::mem::replace(current, voice) != voice
            });
            self.mend(now, &metrics).await;
            self.campaign(now, &metrics).await;
            self.steering.look(now, &metrics).await;
            self.compact(compaction).await;
        }
    }

    /// Has openraft send again what followers have lost, and ends the time of a disk from the past.
    async fn mend(&self, now: Instant, metrics: &Metrics) {
        let comparison = &self.context.comparison;
        comparison.keep_lost(metrics.replication.as_ref(), self.context.since_start(now));
        for id in comparison.to_allow() {
            if let Ok(Ok(())) = self.raft.trigger().allow_next_revert(&id, true).await {
                tracing::error!(%id, "a follower lacks entries that it had confirmed: resending them");
                comparison.allow(id);
            }
        }
        if !comparison.is_settled() && self.is_whole(metrics) {
            comparison.settle();
        }
        if let Some(past) = comparison.to_raise()
            && self.context.log.raise_serial(past + 1).await.is_ok()
        {
            tracing::warn!("this node has all entries again that its disk once had, and votes");
            comparison.raised(past);
        }
    }

    /// Returns true if this node has all that was ever committed: a quorum has confirmed a leader since
    /// this node started, and all that was committed by then is here.
    fn is_whole(&self, metrics: &Metrics) -> bool {
        let mut voters = metrics.membership_config.membership().voter_ids();
        let is_alone = voters.next() == Some(self.context.node) && voters.next().is_none();
        let applied_next = metrics.last_applied.map_or(0, |last| last.index + 1);
        let as_follower = self.heard.as_of(applied_next);
        let word = self.context.word().filter(|word| word.next_index <= applied_next);
        is_alone || as_follower.max(word.map(|word| word.as_of)) > Some(Duration::ZERO)
    }

    async fn campaign(&mut self, now: Instant, metrics: &Metrics) {
        let since_start = |at: Instant| self.context.since_start(at);
        let ballot = Ballot::from(&metrics.vote);
        let seen = LeaderObservation {
            heard: self.heard.at().map(since_start),
            ballot: (ballot.node != self.context.node).then_some(ballot),
            turn: self.turn(metrics),
        };
        let random = self.random.f64();
        let timing = self.context.timing();
        // A candidate votes for itself, which this node may have promised its leader not to do.
        let is_free = self.context.promise().is_free(since_start(now));
        let sets = metrics.membership_config.membership().get_joint_config();
        let may_stand = self.context.comparison.may_stand(self.context.node, sets);
        if self.campaign.stands(since_start(now), &timing, seen, random) && is_free && may_stand {
            // An error means that the log ends.
            drop(self.raft.trigger().elect(true).await);
        }
    }

    /// Returns the place of this node among the voters that may stand, in the order of their
    /// numbers. The leader that is missing is left out.
    fn turn(&self, metrics: &Metrics) -> CampaignTurn {
        let voters: std::collections::BTreeSet<_> =
            metrics.membership_config.membership().voter_ids().collect();
        let me = self.context.node;
        if metrics.state == ServerState::Leader || !voters.contains(&me) {
            return CampaignTurn::None;
        }
        if voters.len() == 1 {
            return CampaignTurn::Alone;
        }
        let missed = metrics.vote.leader_id.voted_for;
        // After a campaign that failed, this node's last vote is for itself; that is no missing
        // leader.
        let others: Vec<_> = voters.into_iter().filter(|id| *id != missed || *id == me).collect();
        let at = others.iter().position(|id| *id == me).unwrap_or(0);
        CampaignTurn::Of(at, others.len())
    }

    fn voice_at(&mut self, now: Instant, metrics: &Metrics) -> Voice {
        if metrics.state != ServerState::Leader {
            self.leads = None;
            return Voice::Confirmed;
        }
        let (term, ballot) = (metrics.current_term, Ballot::from(&metrics.vote));
        let since = self.leads.filter(|(led, _)| *led == term).map_or(now, |(_, since)| since);
        self.leads = Some((term, since));
        let sets = metrics.membership_config.membership().get_joint_config();
        let confirmed = self.context.followers.borrow().confirmed(ballot, self.context.node, sets);
        // A leader that needs no other node is confirmed at any time, which is now.
        let confirmed = confirmed.map(|at| at.min(self.context.since_start(now)));
        if let Some((as_of, committed)) = confirmed.zip(metrics.cluster_committed)
            // Before an entry of its own term is committed, a leader may not know all that was.
            && committed.leader_id.term == term
        {
            self.context.set_word(KnowledgeStatement { as_of, next_index: committed.index + 1 });
        }
        let begun = now.saturating_duration_since(since);
        let unconfirmed = confirmed.map(|at| self.context.since_start(now).saturating_sub(at));
        // Followers have had no time yet to answer a leader that was just elected.
        Voice::of(unconfirmed.map_or(begun, |age| age.min(begun)), &self.context.timing())
    }

    /// Asks for a snapshot when the log has grown by too many bytes; openraft itself counts the
    /// entries.
    async fn compact(&mut self, compaction: Compaction) {
        let is_long = self.context.log.bytes_since_snapshot() > compaction.bytes;
        if is_long && !self.is_compacting {
            // An error means that the log ends.
            drop(self.raft.trigger().snapshot().await);
        }
        // Requested only once: the count of bytes restarts from zero when the snapshot is made.
        self.is_compacting = is_long;
    }
}
