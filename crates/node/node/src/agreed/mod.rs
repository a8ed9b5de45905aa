//! A node's part in the cluster's agreed state: applies the state to this node, and proposes what
//! only this node knows.
//!
//! The data path does not know of the cluster: the agreed state changes the regions that the driver
//! uses, the orders to the keeper, and the link's peers. A node that never reached its cluster
//! serves its configured replicas as if there were none.

mod age;
mod follow;
mod leader_log;
mod leases;
mod member;
mod peer_report;
mod peers;
mod region_facts;
mod seen;
mod speak;
#[cfg(test)]
pub(crate) mod test_state;
mod watched;

use std::path::PathBuf;
use std::sync::Arc;

use spillway_cluster_state::Fingerprint;
use spillway_control_plane::{ControlPlane, ControlPlaneConfig};
use spillway_link::Link;
use spillway_raft::{RaftStartError, Seed};
use spillway_request::gateway::{ClientState, RoutingState};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use crate::agreed::member::ClusterMember;
pub(crate) use crate::agreed::region_facts::{RegionFacts, SharedRegionFacts};
pub(crate) use crate::agreed::watched::WatchedControlPlane;
use crate::node_tasks::NodeTasks;
use crate::rollouts::RolloutGuard;

/// Handle of this node's control plane and of the tasks that follow it.
#[derive(Debug)]
pub(crate) struct Agreed {
    control_plane: Arc<ControlPlane>,
}

impl Agreed {
    /// Opens the data folder and takes part from now on; `None` if the config names none.
    ///
    /// # Errors
    /// Returns an error if the folder can't be used.
    pub(crate) async fn start(
        member: &ClusterMember,
        link: &Arc<Link>,
        routing: &Arc<RoutingState>,
        clients: &Arc<ClientState>,
    ) -> Result<Option<Self>, RaftStartError> {
        let Some(folder) = member.config.data.clone() else { return Ok(None) };
        let config = control_plane_config(member, link, folder);
        let control_plane = ControlPlane::start(config, Arc::clone(link)).await?;
        let aging = age::keep(Arc::downgrade(&control_plane), Arc::clone(clients));
        let telling = leader_log::run(Arc::downgrade(&control_plane));
        let mut peers = peers::Peers::new(member, link, Arc::clone(&control_plane));
        peers.look(&control_plane.known());
        let country = routing.own_country;
        let follower = follow::Follower::new(member, link, country, Arc::clone(&control_plane));
        let proposed_to = Arc::clone(&control_plane);
        let speaker = speak::Speaker::new(member, link, routing, proposed_to);
        let guard = RolloutGuard::new(&member.name, &control_plane, link, &member.rollouts);
        let tasks = MemberTasks::new(&member.tasks);
        tasks.spawn("age of the agreed state", aging);
        tasks.spawn("log of leaders", telling);
        let removed = Removed {
            removal: control_plane.removal(),
            link: Arc::clone(link),
            region_facts: Arc::clone(&member.region_facts),
            alone: RegionFacts::of_config(&member.config.regions),
            part: tasks.stop.clone(),
            doing: [
                tasks.spawn("peers", peers.run()),
                tasks.spawn("agreed state", follower.run()),
                tasks.spawn("proposals", speaker.run()),
                tasks.spawn("rollouts", guard.run()),
            ],
        };
        let NodeTasks { tracker, stop, watch } = member.tasks.clone();
        tracker.spawn(watch.vital("removal", async move {
            stop.run_until_cancelled(removed.wait()).await;
        }));
        Ok(Some(Self { control_plane }))
    }

    /// Returns the source of the control plane's figures.
    pub(crate) fn watched(&self) -> WatchedControlPlane {
        WatchedControlPlane(Arc::downgrade(&self.control_plane))
    }

    /// Returns the control plane, which holds the replicated state.
    pub(crate) fn control_plane(&self) -> &Arc<ControlPlane> {
        &self.control_plane
    }

    /// Hands the lead over if this node has it, and follows and votes on.
    pub(crate) async fn hand_over(&self) {
        self.control_plane.hand_over().await;
    }

    /// Hands the lead over if this node has it, and ends its part.
    pub(crate) async fn shutdown(&self) {
        self.control_plane.shutdown().await;
    }
}

fn control_plane_config(
    member: &ClusterMember,
    link: &Link,
    folder: PathBuf,
) -> ControlPlaneConfig {
    let config = &member.config;
    let own = Seed { name: member.name.clone(), region: member.region.clone() };
    let others = config.peers.iter();
    let others = others.map(|peer| Seed { name: peer.name.clone(), region: peer.region.clone() });
    let rtts = config.regions.iter().filter_map(|region| region.rtt);
    ControlPlaneConfig {
        name: member.name.clone(),
        region: member.region.clone(),
        advertise: config.advertise.clone(),
        fingerprint: Fingerprint(link.fingerprint()),
        folder,
        seeds: others.chain([own]).collect(),
        join_token: config.join_token_file.clone(),
        is_operator: config.has_replicas,
        rtt_max: rtts.max().unwrap_or(RTT_MAX_UNKNOWN),
        watch: member.tasks.watch.clone(),
    }
}

/// Tasks of this node as a member: they end with its membership, or with the node.
struct MemberTasks {
    node: NodeTasks,
    stop: CancellationToken,
}

impl MemberTasks {
    fn new(node: &NodeTasks) -> Self {
        Self { node: node.clone(), stop: node.stop.child_token() }
    }

    fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        // Boxed, since some tasks are large.
        let (stop, task) = (self.stop.clone(), Box::pin(task));
        self.node.tracker.spawn(self.node.watch.clone().vital(name, async move {
            let _: Option<()> = stop.run_until_cancelled(task).await;
        }))
    }
}

/// Cleanup after the cluster has removed this node.
struct Removed {
    removal: watch::Receiver<bool>,
    link: Arc<Link>,
    region_facts: Arc<SharedRegionFacts>,
    /// Terms of regions by the config alone.
    alone: RegionFacts,
    /// Stops all tasks that this node runs as a member.
    part: CancellationToken,
    /// Those of them that change the link and the terms of regions.
    doing: [JoinHandle<()>; 4],
}

impl Removed {
    /// Waits for the removal. Then the node is on its own: it sends nothing to the others and takes
    /// nothing from them, and serves its clients with its own replicas.
    async fn wait(mut self) {
        // An error means that the node ends.
        if self.removal.wait_for(|removed| *removed).await.is_ok() {
            self.part.cancel();
            for task in self.doing {
                // An error means that the task has ended in another way. No task is left that could
                // undo the lines below.
                drop(task.await);
            }
            self.link.set_peers(Vec::new());
            self.region_facts.store(Arc::new(self.alone));
        }
    }
}

/// The longest round trip between regions that neither config nor measurement knows: Virginia to
/// Singapore has less.
const RTT_MAX_UNKNOWN: std::time::Duration = std::time::Duration::from_millis(250);
