//! Tells the data path how old the agreed state can be on this node.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use spillway_control_plane::ControlPlane;
use spillway_request::gateway::ClientState;
use spillway_view::ControlState;
use tokio::time::{MissedTickBehavior, interval};

/// Period between two notes: the age that replies show is wrong by no more.
const PERIOD: Duration = Duration::from_millis(250);

/// Notes the age as long as there is a control plane. After that the state only gets older, as it
/// does on a node that the cluster has removed.
pub(super) async fn keep(control_plane: Weak<ControlPlane>, clients: Arc<ClientState>) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(control_plane) = control_plane.upgrade() else { return };
        let age = control_plane.status().age;
        clients
            .control_age
            .note(age.map_or(ControlState::Unknown, ControlState::Aged), Instant::now());
    }
}
