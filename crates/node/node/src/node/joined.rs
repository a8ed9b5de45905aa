//! A node's part in its cluster.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use spillway_cluster_state::State;
use spillway_config::{ClusterConfig, SpillConfig};
use spillway_control_plane::ControlPlane;
use spillway_dns::NameServerState;
use spillway_knowledge::{KnowledgeContext, KnowledgeTask};
use spillway_quota_division::{Division, DivisionParts};
use spillway_raft::{Consistency, Read};
use tokio::runtime::Handle;

use super::core::NodeCore;
use super::open::no_cluster;
use super::start_error::StartError;
use crate::agreed::{Agreed, ClusterMember};
use crate::cluster::{Cluster, PeerService, prefix_key};
use crate::fold::AgreedWorld;
use crate::local_node::LocalNode;
use crate::peer_answers::PeerAnswers;

/// Time limit for reading the agreed state from the own disk.
const RECALL_LIMIT: Duration = Duration::from_secs(1);

/// Parts that a node has in a cluster; none outside one.
#[derive(Debug, Default)]
pub(super) struct Joined {
    /// The link to other nodes.
    pub(super) cluster: Option<Cluster>,
    /// This node's part in the agreed state.
    pub(super) agreed: Option<Agreed>,
    /// This node's part in dividing limits.
    pub(super) division: Option<Division>,
}

impl Joined {
    /// Starts the cluster, the agreed state and the division of limits, if the config has them.
    ///
    /// # Errors
    /// Returns an error if the link can't be opened, or if the data folder can't be used.
    pub(super) async fn start(
        core: &NodeCore,
        local: &LocalNode,
        config: Option<ClusterConfig>,
        (spill, dns): (SpillConfig, Option<Arc<NameServerState>>),
        learning: &mut KnowledgeTask,
    ) -> Result<Self, StartError> {
        let (Some(config), Some(worker)) = (config, core.data_path.workers.last()) else {
            return Ok(Self::default());
        };
        let (prefix_key, data) = (prefix_key(&config)?, config.data.clone());
        let me = (local.name.as_str().into(), local.region().into());
        let member = ClusterMember::new(me, config, local, &core.resolver, &core.tasks);
        let answers = Arc::new(PeerAnswers::new(local.clone()));
        let service =
            PeerService { worker: Arc::clone(worker), answers: Arc::clone(&answers) as _ };
        let cluster = Cluster::start(&member, &core.data_path, service, spill, dns);
        let cluster = cluster.map_err(no_cluster)?;
        let gateway = &core.data_path.gateway;
        let agreeing = Agreed::start(&member, cluster.link(), &gateway.routing, &gateway.clients);
        let agreed = Box::pin(agreeing).await?;
        learning.connect(KnowledgeContext {
            me: (member.name.clone(), member.region.clone()),
            link: Arc::downgrade(cluster.link()),
            control_plane: agreed.as_ref().map(|agreed| Arc::downgrade(agreed.control_plane())),
            prefix_key,
            data: data.clone(),
            runtime: Handle::current(),
            tasks: core.tasks.tracker.clone(),
        });
        let mut joined = Self { cluster: Some(cluster), ..Self::default() };
        if let Some(agreed) = agreed {
            answers.watch(agreed.watched());
            let state = recall(core, &member, &agreed, learning).await;
            if let Some(folder) = data {
                joined.division = Some(divide(core, &member, &agreed, folder, state).await);
            }
            joined.agreed = Some(agreed);
        }
        Ok(joined)
    }

    /// Returns the control plane; `None` if this node takes no part in the agreed state.
    pub(super) fn control_plane(&self) -> Option<&Arc<ControlPlane>> {
        self.agreed.as_ref().map(Agreed::control_plane)
    }
}

/// Applies the agreed state that this node knew last, so that its first request is served by it.
/// Returns that state, empty if it can't be read.
async fn recall(
    core: &NodeCore,
    member: &ClusterMember,
    agreed: &Agreed,
    learning: &mut KnowledgeTask,
) -> Arc<State> {
    let read = agreed.control_plane().read(Consistency::Stale, RECALL_LIMIT, State::clone);
    let Ok(Read { value: state, .. }) = read.await else { return Arc::default() };
    if state.cluster().is_some() {
        learning.follow(&state);
        core.keys.take_state(&state);
        core.outcomes.usage.take_state(&state, SystemTime::now());
        member.keeper.take_agreed(AgreedWorld::of(&state, &member.region)).await;
    }
    Arc::new(state)
}

/// Starts holding limits, with the state that this node knew last.
async fn divide(
    core: &NodeCore,
    member: &ClusterMember,
    agreed: &Agreed,
    folder: PathBuf,
    state: Arc<State>,
) -> Division {
    let gateway = &core.data_path.gateway;
    let parts = DivisionParts {
        node: member.name.clone(),
        region: member.region.clone(),
        folder,
        clients: Arc::clone(&gateway.clients),
        seed: gateway.routing.seed,
        control_plane: Arc::clone(agreed.control_plane()),
        tasks: core.tasks.tracker.clone(),
        stop: core.tasks.stop.clone(),
    };
    let (division, dividing) = Division::start(parts, state).await;
    core.tasks.spawn_vital("division of limits", dividing);
    division
}
