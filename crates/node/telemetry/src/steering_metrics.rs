//! Metrics of the advice about sending clients to this node.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use spillway_types::{AwayReason, Steering};

use crate::catalog::regions;
use crate::register::{Labels, metric, registered};

registered! {
    /// Advice about new clients, and its reason.
    #[derive(Debug)]
    pub(crate) struct SteeringMetrics {
        takes_clients: Gauge = metric(regions::TAKES_CLIENTS),
        steered_away: Family<Labels, Gauge> = metric(regions::STEERED_AWAY),
    }
}

impl SteeringMetrics {
    pub(crate) fn show(&self, steering: Steering) {
        self.takes_clients.set(steering.takes_clients().into());
        // All of them, so that reasons that do not hold show 0.
        for reason in AwayReason::ALL {
            let is_so = steering.reason() == Some(reason);
            let labels = vec![("reason", reason.name().to_owned())];
            self.steered_away.get_or_create(&labels).set(is_so.into());
        }
    }
}
