//! Tells the data path how old what the cluster agreed on can be here.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use spillway_agreement::Agreement;
use spillway_proxy::{ControlState, Gateway};
use tokio::time::{MissedTickBehavior, interval};

/// How often it is noted: what replies say is too old by no more.
const PERIOD: Duration = Duration::from_millis(250);

/// Notes it as long as there is an agreement. When this ends the state only gets older, as it does for a
/// node that the cluster has removed.
pub(super) async fn keep(agreement: Weak<Agreement>, gateway: Arc<Gateway>) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(agreement) = agreement.upgrade() else { return };
        let age = agreement.status().age;
        gateway
            .control_age()
            .note(age.map_or(ControlState::Unknown, ControlState::Aged), Instant::now());
    }
}
