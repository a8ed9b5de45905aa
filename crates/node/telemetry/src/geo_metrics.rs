//! Metrics of clients' locations.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::catalog::{dns, requests};
use crate::register::{Labels, metric, raise, registered};

/// Knowledge of clients' locations at the moment of a scrape.
#[derive(Clone, Debug, Default)]
pub struct LiveGeo {
    /// Requests since start, by the client's country or `unknown`.
    pub countries: Vec<(String, u64)>,
    /// Location databases in use, `place`, each with its build time in seconds since 1970.
    pub databases: Vec<(&'static str, u64)>,
}

registered! {
    /// Metrics of clients' countries and of location databases.
    #[derive(Debug)]
    pub(crate) struct GeoMetrics {
        requests: Family<Labels, Counter> = metric(requests::CLIENT_COUNTRY_REQUESTS),
        built: Family<Labels, Gauge> = metric(dns::GEO_DATABASE_BUILT),
        reloads: Family<Labels, Counter> = metric(dns::GEO_RELOADS),
    }
}

impl GeoMetrics {
    /// Counts one reading of location databases that may have changed.
    pub(crate) fn reload(&self, is_applied: bool) {
        let result = if is_applied { "applied" } else { "refused" };
        self.reloads.get_or_create(&vec![("result", result.to_owned())]).inc();
    }

    pub(crate) fn show(&self, live: &LiveGeo) {
        for (country, total) in &live.countries {
            let labels = vec![("country", country.clone())];
            raise(&self.requests.get_or_create(&labels), *total);
        }
        // Cleared first, so that a database that is no longer in use vanishes.
        self.built.clear();
        for (database, built) in &live.databases {
            let labels = vec![("database", (*database).to_owned())];
            let built = i64::try_from(*built).unwrap_or(i64::MAX);
            self.built.get_or_create(&labels).set(built);
        }
    }
}
