//! Discovery that this node is a member no more, or never was one.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use spillway_cluster_state::RefusalCode;
use spillway_link::PeerConfig;
use spillway_raft::{Role, Status};

use super::message::{JoinAnswer, Question, Wish};
use crate::control_plane::ControlPlane;
use crate::removed::REMOVED;

/// Time between two looks at the own state.
const PERIOD: Duration = Duration::from_millis(500);
/// Time without a leader after which a node asks the others for its standing: longer than any
/// election takes.
const LOST: Duration = Duration::from_secs(10);
/// Time between two questions.
const ASK_PERIOD: Duration = Duration::from_secs(20);
/// Time limit of one node's answer.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// Longest time that a removed voter or leader waits for the others to go on without it: many
/// elections.
const STAY_LIMIT: Duration = Duration::from_secs(30);

/// Stops this node's part in the cluster once it has been removed. A node that is merely cut off
/// goes on: only members of its cluster, or its own log, can show that it was removed.
pub(crate) async fn run(control_plane: Weak<ControlPlane>) {
    let start = Instant::now();
    let (mut removed_at, mut asked_at) = (None, None::<Instant>);
    while let Some(this) = control_plane.upgrade() {
        let status = this.status();
        if this.is_removed_here(&status) {
            let since = *removed_at.get_or_insert_with(Instant::now);
            // The others first agree on voters and a leader without it, so that no election
            // interrupts them.
            let is_needed = status.voters.contains(&status.node)
                || matches!(status.role, Role::Leader | Role::IsolatedLeader);
            if !is_needed || since.elapsed() > STAY_LIMIT {
                return this.leave().await;
            }
        } else if start.elapsed() > LOST
            && is_lost(&status)
            && asked_at.is_none_or(|at| at.elapsed() > ASK_PERIOD)
        {
            asked_at = Some(Instant::now());
            if this.ask_where_it_stands(&status).await {
                return this.leave().await;
            }
        }
        // Dropped before the pause, so that this task alone does not keep the node alive.
        drop(this);
        tokio::time::sleep(PERIOD).await;
    }
}

/// Returns true if there has been no contact with a leader for long.
fn is_lost(status: &Status) -> bool {
    let is_led = status.age.is_some_and(|age| age < LOST);
    !is_led && status.role != Role::Leader && status.role != Role::Stopped
}

impl ControlPlane {
    /// Returns true if this node was removed according to its own log.
    fn is_removed_here(&self, status: &Status) -> bool {
        self.look(|state| state.cluster() == status.cluster && state.is_retired(status.disk))
    }

    /// Asks the others for this node's standing. Returns true if a member of its own cluster
    /// reports that it was removed.
    async fn ask_where_it_stands(&self, status: &Status) -> bool {
        let cluster = status.cluster;
        for peer in self.everybody() {
            let question = Question { cluster, node: self.spec(), wish: Wish::Standing };
            match self.link.ask_to_join::<_, JoinAnswer>(&peer, &question, ASK_LIMIT).await {
                Ok(JoinAnswer::Member(membership)) => {
                    self.trouble.store(None);
                    if cluster == Some(membership.cluster) {
                        // The leader may be newer than everything that this node's state knows.
                        self.meet(&peer, &membership);
                    }
                    return false;
                }
                Ok(JoinAnswer::Refused(refusal)) => {
                    let at = &peer.identity;
                    tracing::error!(asked = %at, "this node is not in the cluster: {refusal}");
                    let why = format!("{at} says that this node is not in the cluster: {refusal}");
                    self.trouble.store(Some(Arc::new(why)));
                    // A folder of no cluster, or of another one, was not removed from this cluster.
                    return cluster.is_some() && refusal.code == RefusalCode::RetiredDisk;
                }
                Ok(answer) => {
                    tracing::debug!(asked = %peer.identity, ?answer, "asked for this node's standing");
                }
                Err(fault) => {
                    tracing::debug!(asked = %peer.identity, %fault, "asked for this node's standing");
                }
            }
        }
        false
    }

    /// Returns all peers that the config or the link names.
    fn everybody(&self) -> Vec<PeerConfig> {
        let mut all = self.contacts.clone();
        for peer in self.link.peers() {
            if all.iter().all(|known| known.identity != peer.identity) {
                let (identity, address) = (peer.identity, peer.address);
                all.push(PeerConfig { identity, address, rtt_ms: None });
            }
        }
        all
    }

    async fn leave(&self) {
        tracing::error!(
            "{REMOVED}: it takes no part any more and serves its own replicas alone. Stop it; to \
             let it join again, empty its data folder and give it a join token"
        );
        self.link.serve_joins(None);
        self.removed.send_replace(true);
        if let Some(log) = self.log() {
            log.shutdown().await;
        }
    }
}
