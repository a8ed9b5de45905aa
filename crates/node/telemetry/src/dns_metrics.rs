//! Metrics of the name server.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::catalog::dns;
use crate::register::{Labels, metric, raise, registered, signed};

/// Region that DNS answers can name.
#[derive(Clone, Debug)]
pub struct LiveDnsRegion {
    /// Name of the region.
    pub name: String,
    /// True if DNS answers name the region now.
    pub is_offered: bool,
    /// Answers with the region's addresses since start.
    pub answers: u64,
}

/// State of the name server at the moment of a scrape.
#[derive(Clone, Debug, Default)]
pub struct LiveDns {
    /// Queries since start by transport and record type.
    pub queries: Vec<(&'static str, &'static str, u64)>,
    /// Queries since start by result.
    pub answers: Vec<(&'static str, u64)>,
    /// Regions with addresses.
    pub regions: Vec<LiveDnsRegion>,
    /// TCP connections open now.
    pub connections: u64,
    /// TCP connections since start that were refused over the limit.
    pub connections_refused: u64,
}

registered! {
    /// Metrics of the name server.
    #[derive(Debug)]
    pub(crate) struct DnsMetrics {
        queries: Family<Labels, Counter> = metric(dns::DNS_QUERIES),
        answers: Family<Labels, Counter> = metric(dns::DNS_ANSWERS),
        region_answers: Family<Labels, Counter> = metric(dns::DNS_REGION_ANSWERS),
        offered: Family<Labels, Gauge> = metric(dns::DNS_REGION_OFFERED),
        connections: Family<Labels, Gauge> = metric(dns::DNS_CONNECTIONS),
        refused: Family<Labels, Counter> = metric(dns::DNS_CONNECTIONS_REFUSED),
    }
}

impl DnsMetrics {
    /// Shows `live`; a node that is no name server shows nothing.
    pub(crate) fn show(&self, live: Option<&LiveDns>) {
        let Some(live) = live else { return };
        for (transport, kind, total) in &live.queries {
            let labels = vec![("transport", (*transport).to_owned()), ("type", (*kind).to_owned())];
            raise(&self.queries.get_or_create(&labels), *total);
        }
        for (result, total) in &live.answers {
            raise(&self.answers.get_or_create(&vec![("result", (*result).to_owned())]), *total);
        }
        for region in &live.regions {
            let labels = vec![("region", region.name.clone())];
            raise(&self.region_answers.get_or_create(&labels), region.answers);
            self.offered.get_or_create(&labels).set(region.is_offered.into());
        }
        self.connections.get_or_create(&Labels::new()).set(signed(live.connections));
        raise(&self.refused.get_or_create(&Labels::new()), live.connections_refused);
    }
}
