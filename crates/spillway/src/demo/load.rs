//! Open loop: requests are sent when they are due, whatever the outcome of earlier ones.

use std::sync::Arc;
use std::time::Instant;

use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::demo::client::{Doors, ask};
use crate::demo::sample::Samples;
use crate::demo::workload::DemoArrival;

/// Sends all requests, the first ones now, and returns once the last has ended.
pub(crate) async fn send(arrivals: Vec<DemoArrival>, doors: Doors, samples: Arc<Samples>) {
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for arrival in arrivals {
        let due = started + arrival.at;
        sleep_until(due.into()).await;
        let samples = Arc::clone(&samples);
        clients.spawn(async move { samples.add(ask(&arrival, due, doors).await) });
        while clients.try_join_next().is_some() {}
    }
    while clients.join_next().await.is_some() {}
}
