//! Duties of a leader beside the log: sends heartbeats, fits the timers to the round trips between
//! the voters, and transfers leadership to a voter in a better place.

use std::sync::Arc;
use std::time::Duration;

use openraft::ServerState;
use spillway_types::NodeId;
use tokio::time::Instant;

use crate::machine::Machine;
use crate::net::Context;
use crate::peer_server::round_trips;
use crate::raft::Types;
use crate::rules::distances::{Placement, Retiming};
use crate::rules::timing::Timing;
use crate::state_machine::Raft;
use crate::status;

type Metrics = openraft::RaftMetrics<Types>;

/// Duties of a leader beside the log.
pub(super) struct Steering<M: Machine> {
    pub(super) raft: Raft<M>,
    pub(super) context: Arc<Context>,
    placement: Placement,
    retiming: Retiming,
    /// Time of the next heartbeat; `None` while this node does not lead.
    beats_at: Option<Instant>,
    /// Earliest time of the next handover.
    hand_over_from: Instant,
}

impl<M: Machine> Steering<M> {
    pub(super) fn new(raft: Raft<M>, context: Arc<Context>, patience: Duration) -> Self {
        Self {
            raft,
            context,
            placement: Placement::new(patience),
            retiming: Retiming::new(patience / 3),
            beats_at: None,
            hand_over_from: Instant::now(),
        }
    }

    /// Sends a heartbeat when it is due, and transfers leadership when another node should lead. Has
    /// to be called many times in a heartbeat.
    pub(super) async fn look(&mut self, now: Instant, metrics: &Metrics) {
        if metrics.state != ServerState::Leader {
            self.beats_at = None;
            self.placement.forget();
            self.retiming.forget();
            return;
        }
        if self.beats_at.is_none_or(|at| now >= at) {
            // An error means that the log ends.
            drop(self.raft.trigger().heartbeat().await);
            self.keep_time(now, metrics);
            self.beats_at = Some(now + self.context.timing().heartbeat);
        }
        if let Some(to) = self.heir(now, metrics) {
            // This handover gets time to succeed before another one is tried.
            self.hand_over_from = now + 2 * self.context.timing().heartbeat;
            self.placement.forget();
            // Before the handover begins: from then on no read may rest on the followers' promises.
            status::give_up_lease(&self.raft, &self.context, to);
            tracing::info!(%to, "transfers leadership");
            drop(self.raft.trigger().transfer_leader(to).await);
        }
    }

    /// Fits the timers to the round trips between the voters; heartbeats carry them to the
    /// followers.
    fn keep_time(&mut self, now: Instant, metrics: &Metrics) {
        let context = &self.context;
        let voters = metrics.membership_config.membership().voter_ids().collect();
        let own = round_trips(context, &self.raft);
        let longest = {
            let mut distances = context.distances();
            distances.receive(context.node, &own);
            distances.longest(&voters)
        };
        let now = context.since_start(now);
        if let Some(rtt) = self.retiming.judge(now, longest, &context.timing()) {
            context.set_timing(Timing::for_rtt(rtt));
            self.retiming.forget();
        }
    }

    /// Returns the voter that should lead instead; `None` if this node should go on. A leader
    /// without a vote hands over to the voter with the longest log: openraft does so only for a
    /// leader that is no member any more. A leader with a vote hands over to a voter whose commits
    /// are faster.
    fn heir(&mut self, now: Instant, metrics: &Metrics) -> Option<NodeId> {
        let members = &metrics.membership_config;
        let is_joint = members.membership().get_joint_config().len() > 1;
        // While the voters change, the one that would get the lead may be losing its vote.
        if metrics.committed_membership_config != *members || is_joint || now < self.hand_over_from
        {
            return None;
        }
        let (me, mut voters) = (self.context.node, members.membership().voter_ids());
        if !voters.any(|id| id == me) {
            let matched = metrics.replication.as_ref();
            let has = |id: &NodeId| matched.and_then(|matched| *matched.get(id)?);
            return members.membership().voter_ids().max_by_key(has);
        }
        if let Some(by) = self.context.take_dispute() {
            let matched = metrics.replication.as_ref();
            let has = |id: &NodeId| matched.and_then(|matched| *matched.get(id)?);
            let others = members.membership().voter_ids().filter(|id| *id != me && *id != by);
            let heir = others.max_by_key(has);
            tracing::warn!(%by, ?heir, "a member claims a later term and refuses this leader");
            return heir;
        }
        let voters = members.membership().voter_ids().collect();
        let better = self.context.distances().better(me, &voters);
        self.placement.judge(self.context.since_start(now), better)
    }
}
