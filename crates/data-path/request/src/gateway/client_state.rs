//! State by which clients are admitted and limited.

use std::sync::Arc;
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use spillway_front::access::Authenticator;
use spillway_rate_limit::Quotas;
use spillway_usage::BudgetGate;
use spillway_view::ControlAge;

use crate::cors::Cors;
use crate::readiness_polls::ReadinessPolls;

/// Keys, limits and budgets of clients. The config and the cluster's agreed state write them.
#[derive(Debug)]
pub struct ClientState {
    /// Checks the keys and tokens of clients.
    pub authenticator: Authenticator,
    /// Limits on clients' requests. There are none until they are set here.
    pub quotas: Quotas,
    /// Tenants whose budgets are spent. There are none until they are set here.
    pub budgets: BudgetGate,
    /// Age of this node's copy of the agreed state, which keys, limits and budgets follow.
    pub control_age: ControlAge,
    /// Observation of the clients that ask whether the node is ready.
    pub readiness_polls: ReadinessPolls,
    cors: ArcSwap<Cors>,
}

impl ClientState {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            authenticator: Authenticator::new(),
            quotas: Quotas::new(now),
            budgets: BudgetGate::default(),
            control_age: ControlAge::new(now),
            readiness_polls: ReadinessPolls::default(),
            cors: ArcSwap::default(),
        }
    }

    /// Returns the origins whose pages may use the gateway.
    pub fn cors(&self) -> Guard<Arc<Cors>> {
        self.cors.load()
    }

    /// Lets web pages of these origins use the gateway from now on.
    pub fn replace_cors(&self, cors: Cors) {
        self.cors.store(Arc::new(cors));
    }
}
