//! Keeps the cluster's clock going while nothing else is written.

use std::sync::Weak;
use std::time::{Duration, SystemTime};

use spillway_cluster_state::{Actor, Command};
use spillway_raft::Role;
use spillway_types::unix_ms;

use crate::control_plane::ControlPlane;

/// Time between two checks of the clock.
const PERIOD: Duration = Duration::from_secs(1);
/// Time limit of one attempt. The next attempt carries a later time.
const LIMIT: Duration = Duration::from_secs(5);

/// Registers this node again, which changes nothing, whenever the cluster's clock needs the time
/// stamp. In an idle cluster two or three nodes do so twice a minute.
pub(crate) async fn run(control_plane: Weak<ControlPlane>) {
    while let Some(this) = control_plane.upgrade() {
        // A log that has stopped is opened again.
        let is_stopped = this.status().role == Role::Stopped;
        if !is_stopped
            && this.look(|state| state.is_time_due(&this.config.name, unix_ms(SystemTime::now())))
        {
            let command = Command::RegisterNode { node: this.spec() };
            match this.propose(command, Actor::Node, None, LIMIT).await {
                Ok(done) => tracing::trace!(index = done.index, "said the time"),
                Err(error) => tracing::debug!(%error, "this node's time was not recorded"),
            }
        }
        // Dropped before the pause, so that this task alone does not keep the node alive.
        drop(this);
        tokio::time::sleep(PERIOD).await;
    }
}
