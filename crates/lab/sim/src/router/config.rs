//! Settings of the gateway's router.

use serde::{Deserialize, Serialize};
use spillway_route::{Policy, RetryBudgetConfig, SpillTerms, Tuning};
use spillway_types::Speed;

/// Settings of a node's routing.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RouterConfig {
    /// Policy that chooses a replica of the region.
    pub policy: Policy,
    /// Settings of the policy.
    pub tuning: Tuning,
    /// Weights between regions.
    #[serde(rename = "spill")]
    pub terms: SpillTerms,
    /// True if requests may go to other regions.
    pub spills: bool,
    /// Regions that one request asks at most, as `spill.regions_max` of the gateway.
    pub regions_asked_max: usize,
    /// Attempts of one request at most, as `retry.attempts_max` of the gateway.
    pub attempts_max: u32,
    /// Budget of retries of all requests of a node.
    #[serde(skip)]
    pub retries: RetryBudgetConfig,
    /// Source of the node's knowledge of caches.
    pub knowledge: Knowledge,
    /// True if the node finds limits of the requests in flight at its replicas.
    pub limits: bool,
    /// Most requests in flight at a replica, as `connections_max` of one, within which a limit is
    /// found; `None` for the 1,024 of the gateway.
    pub connections_max: Option<u32>,
    /// Milliseconds to the first token beyond which a reply is of no use, as `slo_ms` of a route;
    /// `None` without such an objective.
    pub slo_ms: Option<u32>,
    /// True if requests sent since a report are added to it.
    pub corrects: bool,
    /// True if the node remembers its forwards to other regions.
    pub remembers_forwards: bool,
    /// True if the node learns the blocks that replies add to caches.
    pub learns_replies: bool,
    /// True if the node learns the speed of replicas from their replies.
    pub learns: bool,
    /// Error of the speeds that the node learns: each is off by a factor from `1 / (1 + e)` to `1 + e`,
    /// which stays the same for the run.
    pub speed_error: f32,
    /// Speed that replicas are assumed to have before anything was learned.
    pub speed: Speed,
}

/// Source of a node's knowledge of caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Knowledge {
    /// No knowledge.
    None,
    /// Requests sent by the node and its neighbours, corrected by the replies.
    Index,
    /// As `index`, with the KV events of the engines, which report stored and evicted blocks.
    Events,
    /// The caches themselves.
    Truth,
}

impl RouterConfig {
    /// Returns the settings of a policy with all defaults.
    #[must_use]
    pub fn new(policy: Policy, speed: Speed) -> Self {
        Self {
            policy,
            tuning: Tuning::default(),
            terms: SpillTerms::default(),
            spills: true,
            regions_asked_max: 2,
            attempts_max: 3,
            retries: RetryBudgetConfig::default(),
            knowledge: Knowledge::Index,
            limits: true,
            connections_max: None,
            slo_ms: None,
            speed_error: 0.0,
            corrects: true,
            learns: true,
            remembers_forwards: true,
            learns_replies: true,
            speed,
        }
    }

    /// Returns the most requests in flight at a replica; `None` if no limit is found.
    pub(super) fn in_flight_max(&self) -> Option<u32> {
        self.limits.then(|| self.connections_max.unwrap_or(IN_FLIGHT_MAX))
    }
}

/// Most requests in flight at a replica, by default in the gateway.
const IN_FLIGHT_MAX: u32 = 1_024;
