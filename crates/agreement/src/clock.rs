//! Keeps the cluster's clock going when nobody has anything to write.

use std::sync::Weak;
use std::time::Duration;

use spillway_consensus::Role;
use spillway_control::{Actor, Command};

use crate::agreement::{Agreement, now_ms};

/// How often a node looks whether it should say something.
const PERIOD: Duration = Duration::from_secs(1);
/// How long one attempt may take. The next one says a later time.
const LIMIT: Duration = Duration::from_secs(5);

/// Registers this node again, which changes nothing, whenever the cluster's clock needs its stamp:
/// in a cluster that is idle two or three nodes do so twice a minute.
pub(crate) async fn run(agreement: Weak<Agreement>) {
    while let Some(this) = agreement.upgrade() {
        if this.status().role == Role::Stopped {
            return;
        }
        if this.look(|state| state.is_time_due(&this.config.name, now_ms())) {
            let command = Command::RegisterNode { node: this.spec(), token: None };
            match this.propose(command, Actor::Node, None, LIMIT).await {
                Ok(done) => tracing::trace!(index = done.index, "said the time"),
                Err(error) => tracing::debug!(%error, "the time was not said"),
            }
        }
        drop(this);
        tokio::time::sleep(PERIOD).await;
    }
}
