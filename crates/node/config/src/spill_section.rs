//! `[spill]`: requests to other regions, and waiting requests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_route::{SpillTerms, WaitLimits};
use spillway_view::{QueueSpec, WaitTotals};
use toml::Spanned;

use crate::error::{ConfigError, ConfigErrors};
use crate::source::Source;

/// `[spill]`: conditions for sending requests to other regions, and limits on requests that wait or
/// come from there.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SpillSection {
    /// True if requests may go to other regions.
    pub(crate) enabled: bool,
    /// Share of the capacity reserved for this region's own requests, in percent.
    #[schemars(with = "u16", range(max = 100))]
    pub(crate) reserve_percent: Spanned<u16>,
    /// Maximum share of the capacity for requests of other regions, in percent; no maximum by
    /// default, because `reserve_percent` works better.
    #[schemars(with = "Option<u16>", range(max = 100))]
    pub(crate) guests_percent_max: Option<Spanned<u16>>,
    /// Maximum number of regions that are tried for one request, one after the other.
    pub(crate) regions_max: u8,
    /// Maximum number of requests that wait in this node for a slot, for each route and model.
    pub(crate) queue_max: usize,
    /// Maximum total size of these waiting requests, in bytes, for each route and model.
    pub(crate) queue_bytes_max: usize,
    /// Longest wait of one request in ms; 600,000 by default, the usual timeout of clients of
    /// language models. A request with its own limit waits no longer than that.
    pub(crate) queue_ms: u32,
    /// Maximum number of requests that wait in this node, over all routes and models.
    pub(crate) queue_total_max: usize,
    /// Maximum total size of all waiting requests, in bytes.
    pub(crate) queue_total_bytes_max: usize,
    /// Share of healthy replicas of a model, in percent, below which the least urgent requests are
    /// shed first; 0 disables this.
    #[schemars(with = "u16", range(max = 100))]
    pub(crate) degraded_below_percent: Spanned<u16>,
    /// Maximum share of a model's slots, in percent, that a tenant above its fair share leaves to
    /// other active tenants; 0 disables this.
    #[schemars(with = "u16", range(max = 100))]
    pub(crate) tenant_room_percent: Spanned<u16>,
}

impl Default for SpillSection {
    fn default() -> Self {
        let (totals, queue) = (WaitTotals::default(), QueueSpec::default());
        Self {
            enabled: true,
            reserve_percent: Spanned::new(0..0, 10),
            guests_percent_max: None,
            regions_max: 2,
            queue_max: queue.limits.count_max,
            queue_bytes_max: queue.limits.bytes_max,
            queue_ms: u32::try_from(queue.limits.wait_ms_max).unwrap_or(u32::MAX),
            queue_total_max: totals.count_max,
            queue_total_bytes_max: totals.bytes_max,
            degraded_below_percent: Spanned::new(0..0, queue.degraded_below_permille / 10),
            tenant_room_percent: Spanned::new(0..0, queue.tenant_room_permille / 10),
        }
    }
}

/// Conditions for sending requests to other regions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpillConfig {
    /// Maximum number of regions that one request asks; 0 keeps all requests here.
    pub asked_max: usize,
    /// Terms by which regions are weighed against each other.
    pub terms: SpillTerms,
}

impl SpillSection {
    /// Checks the section.
    ///
    /// # Errors
    /// Returns all faults, with their lines.
    pub(crate) fn lower(&self, source: &Source) -> Result<SpillConfig, ConfigErrors> {
        let part = |percent: &Spanned<u16>| permille(source, percent);
        let mut errors = ConfigErrors::default();
        let reserve = errors.keep(part(&self.reserve_percent));
        let guests = errors.keep(self.guests_percent_max.as_ref().map(part).transpose());
        errors.or(SpillConfig {
            asked_max: if self.enabled { self.regions_max.into() } else { 0 },
            terms: SpillTerms {
                reserve_permille: reserve.unwrap_or_default(),
                guests_max_permille: guests.flatten(),
                ..SpillTerms::default()
            },
        })
    }

    /// Returns the limits of all waiting requests together.
    pub(crate) fn totals(&self) -> WaitTotals {
        WaitTotals { count_max: self.queue_total_max, bytes_max: self.queue_total_bytes_max }
    }

    /// Returns the queue of waiting requests, for routes that set none.
    ///
    /// # Errors
    /// Returns all faults, with their lines.
    pub(crate) fn queue(&self, source: &Source) -> Result<QueueSpec, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let degraded = errors.keep(permille(source, &self.degraded_below_percent));
        let tenant_room = errors.keep(permille(source, &self.tenant_room_percent));
        errors.or(QueueSpec {
            limits: WaitLimits {
                count_max: self.queue_max,
                bytes_max: self.queue_bytes_max,
                wait_ms_max: self.queue_ms.into(),
            },
            start_wait_ms: 0,
            slo: None,
            degraded_below_permille: degraded.unwrap_or_default(),
            tenant_room_permille: tenant_room.unwrap_or_default(),
        })
    }
}

/// Converts percent to permille.
///
/// # Errors
/// Returns an error if the value is more than 100, with its line.
pub(crate) fn permille(source: &Source, percent: &Spanned<u16>) -> Result<u16, ConfigError> {
    match *percent.get_ref() {
        percent if percent <= 100 => Ok(percent * 10),
        _ => Err(source.fault(percent.span(), "more than all", "use 0 to 100")),
    }
}
