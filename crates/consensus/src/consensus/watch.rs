//! Watches over the log: whether it is time to stand for election, whether a leader is still
//! heard, and how long the log has grown.

use std::sync::Arc;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Instant as _, ServerState};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::config::Compaction;
use crate::machine::Machine;
use crate::net::{Context, Heard};
use crate::proposer::Raft;
use crate::raft::Types;
use crate::rules::campaign::{Campaign, Seen, Turn};
use crate::rules::isolation::Voice;
use crate::wire::Ballot;

/// Looks so many times in a heartbeat.
const LOOKS: u32 = 16;

type Metrics = openraft::RaftMetrics<Types>;

/// Watches over the log.
pub(super) struct Watch<M: Machine> {
    raft: Raft<M>,
    context: Arc<Context>,
    heard: Heard,
    voice: watch::Sender<Voice>,
    campaign: Campaign,
    random: fastrand::Rng,
    started: Instant,
    /// Since when it leads, and in which term.
    leads: Option<(u64, Instant)>,
    /// When it may hand over again.
    hand_over_from: Instant,
    /// Whether a snapshot was asked for and is not made yet.
    is_compacting: bool,
}

impl<M: Machine> Watch<M> {
    pub(super) fn new(
        raft: Raft<M>,
        context: Arc<Context>,
        heard: Heard,
        voice: watch::Sender<Voice>,
    ) -> Self {
        let started = Instant::now();
        Self {
            raft,
            heard,
            voice,
            campaign: Campaign::new(context.timing, std::time::Duration::ZERO),
            context,
            random: fastrand::Rng::new(),
            started,
            leads: None,
            hand_over_from: started,
            is_compacting: false,
        }
    }

    pub(super) async fn run(mut self, compaction: Compaction) {
        let mut looks = interval(self.context.timing.heartbeat / LOOKS);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let now = Instant::now();
            let metrics = self.raft.metrics().borrow_watched().clone();
            let voice = self.voice_at(now, &metrics);
            self.voice.send_if_modified(|current| {
                if *current != voice {
                    tracing::info!(from = ?*current, to = ?voice, "whether a quorum answers");
                }
                std::mem::replace(current, voice) != voice
            });
            self.campaign(now, &metrics).await;
            self.hand_over(now, &metrics).await;
            self.compact(compaction).await;
        }
    }

    async fn campaign(&mut self, now: Instant, metrics: &Metrics) {
        let since_start = |at: Instant| at.saturating_duration_since(self.started);
        let ballot = Ballot::from(&metrics.vote);
        let seen = Seen {
            heard: self.heard.at().map(since_start),
            ballot: (ballot.node != self.context.node).then_some(ballot),
            turn: self.turn(metrics),
        };
        let random = self.random.f64();
        if self.campaign.stands(since_start(now), seen, random) {
            // An error means that the log ends.
            drop(self.raft.trigger().elect(true).await);
        }
    }

    /// The voters besides the leader that is missed, by number.
    fn turn(&self, metrics: &Metrics) -> Turn {
        let voters: std::collections::BTreeSet<_> =
            metrics.membership_config.membership().voter_ids().collect();
        let me = self.context.node;
        if metrics.state == ServerState::Leader || !voters.contains(&me) {
            return Turn::None;
        }
        if voters.len() == 1 {
            return Turn::Alone;
        }
        let missed = metrics.vote.leader_id.voted_for;
        let others: Vec<_> = voters.into_iter().filter(|id| *id != missed || *id == me).collect();
        let at = others.iter().position(|id| *id == me).unwrap_or(0);
        Turn::Of(at, others.len())
    }

    fn voice_at(&mut self, now: Instant, metrics: &Metrics) -> Voice {
        if metrics.state != ServerState::Leader {
            self.leads = None;
            return Voice::Confirmed;
        }
        let term = metrics.current_term;
        let since = self.leads.filter(|(led, _)| *led == term).map_or(now, |(_, since)| since);
        self.leads = Some((term, since));
        let mut voters = metrics.membership_config.membership().voter_ids();
        if voters.all(|id| id == self.context.node) {
            return Voice::Confirmed;
        }
        let begun = now.saturating_duration_since(since);
        let age = metrics.last_quorum_acked.map_or(begun, |at| at.elapsed().min(begun));
        Voice::of(age, &self.context.timing)
    }

    /// A leader without a vote hands over to the voter that has most: openraft does so only for
    /// one that is no member any more.
    async fn hand_over(&mut self, now: Instant, metrics: &Metrics) {
        let members = &metrics.membership_config;
        let mut voters = members.membership().voter_ids();
        let has_vote = voters.any(|id| id == self.context.node);
        let is_settled = metrics.committed_membership_config == *members;
        let leads = metrics.state == ServerState::Leader;
        if !leads || has_vote || !is_settled || now < self.hand_over_from {
            return;
        }
        let matched = metrics.replication.as_ref();
        let most = members
            .membership()
            .voter_ids()
            .max_by_key(|id| matched.and_then(|matched| *matched.get(id)?));
        if let Some(to) = most {
            self.hand_over_from = now + 2 * self.context.timing.heartbeat;
            // An error means that the log ends.
            drop(self.raft.trigger().transfer_leader(to).await);
        }
    }

    /// Has a snapshot made when the log has grown by too many bytes; by its entries openraft does.
    async fn compact(&mut self, compaction: Compaction) {
        let is_long = self.context.log.bytes_since_snapshot() > compaction.bytes;
        if is_long && !self.is_compacting {
            // An error means that the log ends.
            drop(self.raft.trigger().snapshot().await);
        }
        self.is_compacting = is_long;
    }
}
