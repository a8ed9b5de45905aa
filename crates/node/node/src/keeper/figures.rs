//! Figures of the keeper, for metrics and operators.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use spillway_admin::DiscoveryOverview;
use spillway_telemetry::LiveDiscovery;
use tokio::time::Instant;

use crate::discovery_watch::DiscoveryWatch;
use crate::fold::NoteCounts;

/// Figures that the keeper writes, and pages and scrapes read.
#[derive(Debug, Default)]
pub(crate) struct KeeperFigures {
    facts_dropped: AtomicU64,
    agreed: ArcSwap<NoteCounts>,
    discoveries: ArcSwap<Vec<DiscoveryWatch>>,
}

impl KeeperFigures {
    /// Notes the number of facts about replicas that did not fit into the keeper's queue so far.
    pub(super) fn note_facts_dropped(&self, total: u64) {
        self.facts_dropped.store(total, Ordering::Relaxed);
    }

    /// Notes the counts of agreed items by kind and use.
    pub(super) fn note_agreed(&self, counts: NoteCounts) {
        self.agreed.store(Arc::new(counts));
    }

    /// Takes over views of the discoveries.
    pub(super) fn note_discoveries(&self, discoveries: Vec<DiscoveryWatch>) {
        self.discoveries.store(Arc::new(discoveries));
    }

    /// Returns the number of facts about replicas that did not fit into the keeper's queue so far.
    pub(crate) fn facts_dropped(&self) -> u64 {
        self.facts_dropped.load(Ordering::Relaxed)
    }

    /// Returns the counts of agreed items by kind and use.
    pub(crate) fn agreed(&self) -> Arc<NoteCounts> {
        self.agreed.load_full()
    }

    /// Returns the state of each discovery, for operators.
    pub(crate) fn discoveries(&self) -> Vec<DiscoveryOverview> {
        let now = Instant::now();
        self.discoveries.load().iter().map(|it| it.overview(now)).collect()
    }

    /// Returns the state of each discovery, for metrics.
    pub(crate) fn live_discoveries(&self) -> Vec<LiveDiscovery> {
        let now = Instant::now();
        self.discoveries.load().iter().map(|it| it.live(now)).collect()
    }
}
