//! Steering of clients: the regions that new clients are to be sent to.

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_types::AwayReason;

use crate::error::ApiError;
use crate::reply::{Reply, json};
use crate::steering::{Steered, SteeredRegion};

/// Knowledge of this node about steering clients.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SteeringAnswer {
    /// Every region, the node's own first.
    pub(crate) regions: Vec<RegionSteering>,
}

/// Advice about sending clients to a region.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RegionSteering {
    /// Name of the region.
    pub(crate) region: String,
    /// True if the region is heard. No clients are to be sent to a region that is not.
    pub(crate) is_heard: bool,
    /// True if clients are to be sent there.
    pub(crate) takes_clients: bool,
    /// Reason to send none: `draining`, `ordered`, `starting`, `no_usable_replica`, `shedding`,
    /// `silent` or `other`. Null if clients are to be sent.
    pub(crate) reason: Option<String>,
    /// Round-trip time from this node in milliseconds; 0 for its own region.
    pub(crate) rtt_ms: f64,
}

/// Answers with the advice of gossip. Needs no cluster's log.
pub(crate) fn steering(by: Option<&dyn Steered>) -> Result<Reply, ApiError> {
    let by = by.ok_or_else(|| ApiError::internal("this process has no data about regions"))?;
    let regions = by.regions().into_iter().map(RegionSteering::from).collect();
    Ok(json(StatusCode::OK, &SteeringAnswer { regions }))
}

impl From<SteeredRegion> for RegionSteering {
    fn from(known: SteeredRegion) -> Self {
        let reason = match known.steering.reason() {
            // The last report of a silent region does not count any more.
            _ if !known.is_heard => Some("silent"),
            reason => reason.map(AwayReason::name),
        };
        Self {
            region: known.name.to_string(),
            is_heard: known.is_heard,
            takes_clients: reason.is_none(),
            reason: reason.map(str::to_owned),
            // Rounded, since the measurement is no finer than a tenth.
            rtt_ms: (f64::from(known.rtt_ms) * 10.0).round() / 10.0,
        }
    }
}
