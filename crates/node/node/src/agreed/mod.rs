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
mod parts;
mod peer_report;
mod peers;
mod region_facts;
mod seen;
mod speak;
#[cfg(test)]
pub(crate) mod test_state;
mod watched;

use std::pin::Pin;
use std::sync::Arc;

use spillway_cluster_state::Fingerprint;
use spillway_control_plane::{ControlPlane, ControlPlaneConfig};
use spillway_link::Link;
use spillway_raft::{RaftStartError, Seed};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use crate::agreed::parts::AgreedParts;
pub(crate) use crate::agreed::region_facts::{RegionFacts, SharedRegionFacts};
pub(crate) use crate::agreed::watched::WatchedControlPlane;
use crate::node_tasks::NodeTasks;

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
    pub(crate) async fn start(parts: AgreedParts<'_>) -> Result<Option<Self>, RaftStartError> {
        let Some(folder) = parts.config.data.clone() else { return Ok(None) };
        let (name, region) = parts.me.clone();
        let own = Seed { name: name.clone(), region: region.clone() };
        let others = parts.config.peers.iter();
        let others =
            others.map(|peer| Seed { name: peer.name.clone(), region: peer.region.clone() });
        let rtts = parts.config.regions.iter().filter_map(|region| region.rtt);
        let config = ControlPlaneConfig {
            name,
            region,
            advertise: parts.config.advertise.clone(),
            fingerprint: Fingerprint(parts.link.fingerprint()),
            folder,
            seeds: others.chain([own]).collect(),
            join_token: parts.config.join_token_file.clone(),
            is_operator: parts.config.has_replicas,
            rtt_max: rtts.max().unwrap_or(RTT_MAX_UNKNOWN),
            watch: parts.tasks.watch.clone(),
        };
        let control_plane = ControlPlane::start(config, Arc::clone(&parts.link)).await?;
        parts.feedback.watch_control_plane(WatchedControlPlane(Arc::downgrade(&control_plane)));
        // The tasks of this node as a member end with its membership, or with the node.
        let NodeTasks { tracker: tasks, stop: node_stops, watch } = parts.tasks.clone();
        let stop = node_stops.child_token();
        let removed = Removed {
            removal: control_plane.removal(),
            link: Arc::clone(&parts.link),
            region_facts: Arc::clone(&parts.region_facts),
            alone: RegionFacts::of_config(&parts.config.regions),
            part: stop.clone(),
        };
        let gateway = Arc::clone(&parts.feedback.gateway);
        let aging = age::keep(Arc::downgrade(&control_plane), gateway);
        let telling = leader_log::run(Arc::downgrade(&control_plane));
        let mut peers = peers::Peers::new(&parts, Arc::clone(&control_plane));
        peers.look(&control_plane.known());
        let peers = Box::pin(peers.run());
        let follower = follow::Follower::new(&parts, Arc::clone(&control_plane));
        let speaker = speak::Speaker::new(parts, Arc::clone(&control_plane));
        let (following, speaking) = (Box::pin(follower.run()), Box::pin(speaker.run()));
        let member = |name, task: Pin<Box<dyn Future<Output = ()> + Send>>| {
            let (stop, watch) = (stop.clone(), watch.clone());
            tasks.spawn(watch.vital(name, async move {
                let _: Option<()> = stop.run_until_cancelled(task).await;
            }))
        };
        member("age of the agreed state", Box::pin(aging));
        member("log of leaders", Box::pin(telling));
        let doing = [
            member("peers", peers),
            member("agreed state", following),
            member("proposals", speaking),
        ];
        let waiting = removed.wait(doing);
        tasks.spawn(watch.clone().vital("removal", async move {
            node_stops.run_until_cancelled(waiting).await;
        }));
        Ok(Some(Self { control_plane }))
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

/// Cleanup after the cluster has removed this node.
struct Removed {
    removal: watch::Receiver<bool>,
    link: Arc<Link>,
    region_facts: Arc<SharedRegionFacts>,
    /// Terms of regions by the config alone.
    alone: RegionFacts,
    /// Stops all tasks that this node runs as a member.
    part: CancellationToken,
}

impl Removed {
    /// Waits for the removal. Then the node is on its own: it sends nothing to the others and takes
    /// nothing from them, and serves its clients with its own replicas.
    async fn wait(mut self, doing: [JoinHandle<()>; 3]) {
        // An error means that the node ends.
        if self.removal.wait_for(|removed| *removed).await.is_ok() {
            self.part.cancel();
            for task in doing {
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
