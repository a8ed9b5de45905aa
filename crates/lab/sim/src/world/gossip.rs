//! Gossip of a node: its `machine`, and the last reports that it read there of other regions.

use std::time::{Duration, Instant};

use spillway_gossip::{GossipMachine, Reach};
use spillway_types::{ModelLoad, ModelName, RegionName};

use crate::Time;

/// Load gossip of a node.
#[derive(Debug)]
pub(super) struct Gossip {
    pub(super) machine: GossipMachine,
    /// Moment on the world's agenda at which the gossip is due; `None` if there is none.
    pub(super) due: Option<Time>,
    /// Other regions by their numbers, as last read; `None` while a region can't be reached.
    pub(super) regions: Vec<Option<KnownRegion>>,
    /// Counts of other regions by their numbers, with the moment at which they were made.
    counts: Vec<(Time, RegionCounts)>,
}

/// Another region as a node read of it last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct KnownRegion {
    pub(super) load: ModelLoad,
    /// Milliseconds from the report to `read`, including the time in transit.
    pub(super) age_ms: f32,
    /// Moment at which the node read of the region.
    pub(super) read: Time,
    /// Requests of this node that were sent there, and that had ended, which the report knows of.
    pub(super) sent: u64,
    pub(super) ended: u64,
    pub(super) counts: RegionCounts,
}

/// Counts of a region that the gateway's reports lack and baselines read. They travel with the
/// datagrams of the region's speaker, and are as late or lost as those.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RegionCounts {
    /// Replicas at which no request waits.
    pub(super) available: u32,
    /// Requests that wait in the region's nodes.
    pub(super) waiting: u32,
    /// Mean share of the replicas' KV caches in use.
    pub(super) kv_use: f32,
}

impl Gossip {
    pub(super) fn new(machine: GossipMachine, regions: usize) -> Self {
        let counts = vec![(Time(0), RegionCounts::default()); regions];
        Self { machine, due: None, regions: vec![None; regions], counts }
    }

    /// Applies counts of another region, unless newer ones came before.
    pub(super) fn count(&mut self, region: usize, (made, counts): (Time, RegionCounts)) {
        if made >= self.counts[region].0 {
            self.counts[region] = (made, counts);
        }
    }

    /// Returns the last counts of another region that arrived.
    pub(super) fn counts_of(&self, region: usize) -> RegionCounts {
        self.counts[region].1
    }

    /// Returns the report of a region on a model and its age with the way here; `None` if the region
    /// can't be reached or has no replica that takes requests.
    pub(super) fn report(
        &self,
        (region, model): (&RegionName, &ModelName),
        way: Duration,
        now: Instant,
    ) -> Option<(ModelLoad, Duration)> {
        let view = self.machine.region(region, now).filter(|view| view.reach == Reach::Both)?;
        let report = view.model(model).filter(|report| !report.load.is_unserved())?;
        Some((report.load, Duration::from_millis(report.age_ms.into()) + way))
    }

    /// Returns true if the gossip has noticed a change that nodes act on at once.
    pub(super) fn take_news(&mut self) -> bool {
        let mut has_news = false;
        while self.machine.poll_event().is_some() {
            has_news = true;
        }
        has_news
    }
}
