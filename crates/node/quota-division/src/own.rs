//! Limits of the config file: this node enforces them by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_request::gateway::ClientState;
use tokio::time::interval;

/// Period of paying debt to these limits.
const PACE: Duration = Duration::from_millis(500);

/// Pays debt to the limits of the config file while no request does.
pub async fn pay_own(clients: Arc<ClientState>) {
    let mut ticks = interval(PACE);
    loop {
        ticks.tick().await;
        clients.quotas.pay_own(Instant::now());
    }
}
