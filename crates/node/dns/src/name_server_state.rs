//! Sources of the name server's answers, and its counters.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use spillway_geo::ClientLocation;
use spillway_geo::dns::{
    DnsConfig, DnsReply, DnsView, QueryKind, QueryOutcome, QueryTransport, Sources, Zone, answer,
};
use spillway_telemetry::{LiveDns, LiveDnsRegion};

/// Function that finds the place of an address.
pub type Locate = Arc<dyn Fn(IpAddr) -> ClientLocation + Send + Sync>;

/// Sources of the name server's answers: config, regions and locations.
pub struct NameServerState {
    config: DnsConfig,
    view: ArcSwap<DnsView>,
    locate: Locate,
    counters: DnsCounters,
}

/// Counters of queries since the start.
#[derive(Debug, Default)]
struct DnsCounters {
    udp: [AtomicU64; QueryKind::ALL.len()],
    tcp: [AtomicU64; QueryKind::ALL.len()],
    outcomes: [AtomicU64; QueryOutcome::ALL.len()],
    regions: Vec<AtomicU64>,
    connections: AtomicU64,
    connections_refused: AtomicU64,
}

impl NameServerState {
    /// Creates the sources without a view of regions.
    pub fn new(config: DnsConfig, locate: Locate) -> Self {
        let regions = config.zone.regions().iter().map(|_| AtomicU64::default()).collect();
        let counters = DnsCounters { regions, ..DnsCounters::default() };
        Self { config, view: ArcSwap::default(), locate, counters }
    }

    /// Returns the settings of the name server.
    pub fn config(&self) -> &DnsConfig {
        &self.config
    }

    /// Returns the zone of the settings.
    pub fn zone(&self) -> &Zone {
        &self.config.zone
    }

    /// Returns true if other regions have reported since the start, or the wait for them is over.
    pub(super) fn is_settled(&self) -> bool {
        self.view.load().is_settled
    }

    /// Replaces the state of regions.
    pub(super) fn replace_view(&self, view: DnsView) {
        if **self.view.load() != view {
            self.view.store(Arc::new(view));
        }
    }

    /// Answers a message, and counts it.
    pub(super) fn answer(
        &self,
        message: &[u8],
        source: IpAddr,
        transport: QueryTransport,
    ) -> Option<Vec<u8>> {
        let view = self.view.load();
        let locate = |address| (self.locate)(address);
        let sources = Sources { zone: &self.config.zone, view: &view, locate: &locate };
        let reply = answer(message, source, transport, &sources);
        self.count(&reply, transport);
        reply.bytes
    }

    fn count(&self, reply: &DnsReply, transport: QueryTransport) {
        let kinds = match transport {
            QueryTransport::Udp => &self.counters.udp,
            QueryTransport::Tcp => &self.counters.tcp,
        };
        raise(kinds.get(reply.kind as usize));
        self.count_outcome(reply.outcome);
        raise(reply.region.and_then(|region| self.counters.regions.get(region)));
    }

    pub(super) fn count_outcome(&self, outcome: QueryOutcome) {
        raise(self.counters.outcomes.get(outcome as usize));
    }

    pub(super) fn count_connections(&self, now: usize) {
        self.counters.connections.store(now as u64, Ordering::Relaxed);
    }

    pub(super) fn count_refused_connection(&self) {
        raise(Some(&self.counters.connections_refused));
    }

    /// Returns the current figures.
    pub fn live(&self) -> LiveDns {
        let counters = &self.counters;
        let kinds = |transport: QueryTransport, totals: &[AtomicU64]| -> Vec<_> {
            let kinds = QueryKind::ALL.iter().zip(totals);
            kinds.map(|(kind, total)| (transport.as_str(), kind.as_str(), read(total))).collect()
        };
        let view = self.view.load();
        let region = |((index, region), total): ((usize, &spillway_geo::dns::ZoneRegion), _)| {
            LiveDnsRegion {
                name: region.name.to_string(),
                is_offered: view.regions.get(index).is_some_and(|region| region.is_offered),
                answers: read(total),
            }
        };
        let regions = self.zone().regions().iter().enumerate().zip(&counters.regions);
        LiveDns {
            queries: [
                kinds(QueryTransport::Udp, &counters.udp),
                kinds(QueryTransport::Tcp, &counters.tcp),
            ]
            .concat(),
            answers: QueryOutcome::ALL
                .iter()
                .zip(&counters.outcomes)
                .map(|(outcome, total)| (outcome.as_str(), read(total)))
                .collect(),
            regions: regions.map(region).collect(),
            connections: read(&counters.connections),
            connections_refused: read(&counters.connections_refused),
        }
    }
}

impl std::fmt::Debug for NameServerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NameServerState").field("view", &self.view).finish_non_exhaustive()
    }
}

fn raise(counter: Option<&AtomicU64>) {
    if let Some(counter) = counter {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
