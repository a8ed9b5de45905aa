//! Keeps the voters as the rule wants them, on the leader.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::{Duration, Instant};

use spillway_cluster_state::{Membership, MembershipPlan, State, VoterFacts, voters};
use spillway_raft::{ChangeError, Consensus, Former, Member, Role, Status};
use spillway_types::{NodeId, NodeName};

use crate::control_plane::ControlPlane;
use crate::machine::StateMachine;

/// Time between two looks of the leader.
const PERIOD: Duration = Duration::from_millis(500);
/// Time limit of one change.
const LIMIT: Duration = Duration::from_secs(10);
/// Number of missing entries up to which a learner, made a voter, delays no commit.
const LAG_MAX: u64 = 100;

/// Carries out the plan step by step while this node leads.
pub(crate) async fn run(control_plane: Weak<ControlPlane>) {
    let mut heard = LastConnected::default();
    while let Some(this) = control_plane.upgrade() {
        let Some(log) = this.log() else { return };
        let status = log.status();
        heard.look(&this, &status);
        match (status.role, status.is_joint) {
            (Role::Leader, false) => this.step(&log, &status, &heard).await,
            // A change is half done; no other one may begin before it is settled.
            (Role::Leader, true) => {
                if let Err(error) = log.settle(LIMIT).await {
                    tracing::warn!(%error, "a change of voters is still in progress");
                }
            }
            _ => {}
        }
        // Dropped before the pause, so that this task alone does not keep the node alive.
        drop((this, log));
        tokio::time::sleep(PERIOD).await;
    }
}

/// Time at which each node was last connected.
#[derive(Debug, Default)]
struct LastConnected(BTreeMap<NodeId, Instant>);

impl LastConnected {
    fn look(&mut self, control_plane: &ControlPlane, status: &Status) {
        let now = Instant::now();
        let connected: BTreeSet<_> = control_plane
            .link
            .peers()
            .into_iter()
            .filter(|peer| peer.is_connected())
            .map(|peer| peer.identity.node().clone())
            .collect();
        // A removed node takes part in the log until a majority has agreed to go on without it.
        let members = status.members.iter().map(|(id, member)| (*id, member.name.clone()));
        let mut ids: BTreeMap<NodeId, NodeName> = members.collect();
        control_plane.look(|state| {
            let nodes = state.records().nodes.iter();
            ids.extend(nodes.map(|(id, node)| (*id, node.spec.name.clone())));
        });
        for (id, name) in ids {
            if id == status.node || connected.contains(&name) {
                self.0.insert(id, now);
            } else {
                // A node that was never connected has its patience counted from now.
                self.0.entry(id).or_insert(now);
            }
        }
    }

    fn sight(&self, state: &State, status: &Status) -> VoterFacts {
        let patience = state.setting("voters.dead_after_ms").and_then(|text| text.parse().ok());
        let patience = Duration::from_millis(patience.unwrap_or(u64::MAX));
        let live = self.0.iter().filter(|(_, at)| at.elapsed() < patience).map(|(id, _)| *id);
        let last = status.last_index.unwrap_or(0);
        let has = |at: &Option<u64>| at.is_some_and(|at| at + LAG_MAX >= last);
        let caught_up = status.matched.iter().filter(|(_, at)| has(at)).map(|(id, _)| *id);
        VoterFacts { live: live.collect(), caught_up: caught_up.collect() }
    }
}

impl ControlPlane {
    async fn step(&self, log: &Consensus<StateMachine>, status: &Status, heard: &LastConnected) {
        // A cluster that was recreated still has the old one's nodes in its state at first.
        if self.look(State::cluster) != status.cluster {
            return;
        }
        let members = status.members.keys().copied();
        let learners = members.filter(|id| !status.voters.contains(id));
        let current = Membership { voters: status.voters.clone(), learners: learners.collect() };
        let plan = self.look(|state| voters(state, &heard.sight(state, status), &current));
        let done = match &plan {
            MembershipPlan::Nothing | MembershipPlan::NoMajority => return,
            MembershipPlan::AddLearner(id) => match self.member(*id) {
                Some(member) => log.add_learner(*id, member, LIMIT).await,
                None => return,
            },
            MembershipPlan::RemoveLearner(id) => log.remove_learners([*id].into(), LIMIT).await,
            MembershipPlan::ChangeVoters(ids) => {
                log.change_voters(ids.clone(), Former::Learners, LIMIT).await
            }
        };
        match done {
            Ok(()) => tracing::info!(?plan, "members changed"),
            // Leadership was lost by now: the next leader makes its own plan.
            Err(ChangeError::NotLeader { .. }) => {}
            Err(error) => tracing::warn!(?plan, %error, "members not changed"),
        }
    }

    fn member(&self, id: NodeId) -> Option<Member> {
        self.look(|state| {
            let node = state.records().nodes.get(&id)?;
            let (name, region) = (node.spec.name.clone(), node.spec.region.clone());
            Some(Member { name, region, disk: node.spec.disk })
        })
    }
}
