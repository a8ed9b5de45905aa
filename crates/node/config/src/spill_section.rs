//! `[spill]`: requests to other regions, and waiting requests.

use spillway_route::{SpillTerms, WaitLimits};
use spillway_types::settings;
use spillway_view::QueueSpec;

settings! {
    /// `[spill]`: conditions for sending requests to other regions, and limits on requests that wait
    /// or come from there.
    pub(crate) struct SpillSection {
        /// True if requests may go to other regions.
        enabled: bool = true,
        /// Share of the capacity reserved for this region's own requests, in percent.
        #[schemars(range(max = 100))]
        reserve_percent: u16 = 10,
        /// Maximum number of requests that wait in this node for a slot, for each route and model.
        #[schemars(extend("x-restart" = false))]
        queue_max: usize = WaitLimits::default().count_max,
        /// Longest wait of one request in ms; 600,000 by default, the usual timeout of clients of
        /// language models. A request with its own limit waits no longer than that.
        #[schemars(extend("x-restart" = false))]
        queue_ms: u32 = 600_000,
        /// Maximum share of a model's slots, in percent, that a tenant above its fair share leaves to
        /// other active tenants; 0 disables this.
        #[schemars(range(max = 100), extend("x-restart" = false))]
        tenant_room_percent: u16 = QueueSpec::default().tenant_room_permille / 10,
    }
}

/// Maximum number of regions that are tried for one request, one after the other.
const REGIONS_MAX: usize = 2;

/// Conditions for sending requests to other regions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpillConfig {
    /// Maximum number of regions that one request asks; 0 keeps all requests here.
    pub asked_max: usize,
    /// Terms by which regions are weighed against each other.
    pub terms: SpillTerms,
}

impl SpillSection {
    /// Returns the conditions for other regions.
    pub(crate) fn config(&self) -> SpillConfig {
        SpillConfig {
            asked_max: if self.enabled { REGIONS_MAX } else { 0 },
            terms: SpillTerms {
                reserve_permille: self.reserve_percent * 10,
                ..SpillTerms::default()
            },
        }
    }

    /// Returns the queue of waiting requests, for routes that set none.
    pub(crate) fn queue(&self) -> QueueSpec {
        QueueSpec {
            limits: WaitLimits {
                count_max: self.queue_max,
                wait_ms_max: self.queue_ms.into(),
                ..WaitLimits::default()
            },
            tenant_room_permille: self.tenant_room_percent * 10,
            ..QueueSpec::default()
        }
    }
}
