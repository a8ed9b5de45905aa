//! Metrics of refused requests and of hedges.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use spillway_types::Outcome;

use crate::catalog::requests;
use crate::register::{Labels, metric, registered};

/// Label value of a route or model that the config does not name.
const UNKNOWN: &str = "unknown";
/// Last priority class: higher numbers count as this one.
const PRIORITY_MAX: u8 = 3;

registered! {
    /// Counters of refusals under load and of hedges.
    #[derive(Debug)]
    pub(crate) struct ShedMetrics {
        sheds: Family<Labels, Counter> = metric(requests::SHEDS),
        hedges: Family<Labels, Counter> = metric(requests::HEDGES),
    }
}

impl ShedMetrics {
    pub(crate) fn record(&self, outcome: &Outcome) {
        let known = |name: Option<String>| name.unwrap_or_else(|| UNKNOWN.to_owned());
        let route = || known(outcome.route.as_ref().map(ToString::to_string));
        if let Some(shed) = outcome.shed {
            let labels = vec![
                ("route", route()),
                ("model", known(outcome.model.as_ref().map(ToString::to_string))),
                ("reason", shed.reason.to_owned()),
                ("priority", shed.priority.min(PRIORITY_MAX).to_string()),
            ];
            self.sheds.get_or_create(&labels).inc();
        }
        if let Some(hedge) = outcome.hedge {
            let labels = vec![("route", route()), ("result", hedge.name().to_owned())];
            self.hedges.get_or_create(&labels).inc();
        }
    }
}
