//! Setups: ways of routing that are compared with each other.

use spillway_route::Policy;
use spillway_types::Speed;

use crate::{Figures, Knowledge, RouterConfig, Scenario};

/// Way of routing.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Settings of each node's routing.
    pub router: RouterConfig,
    /// News that reach the nodes.
    pub hearing: Hearing,
}

/// News that reach the nodes of a setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hearing {
    /// News as in the scenario.
    AsItIs,
    /// All news at once: one router for all regions.
    Omniscient,
    /// No news of neighbours: nodes of a region don't learn of each other's requests.
    Unshared,
}

impl Setup {
    /// Returns the setup of a policy with all defaults, which does not know the speed of replicas
    /// at first.
    #[must_use]
    pub fn policy(policy: Policy) -> Self {
        let speed = Speed { kv_tokens: KV_TOKENS, ..Speed::UNKNOWN };
        Self { router: RouterConfig::new(policy, speed), hearing: Hearing::AsItIs }
    }

    /// Returns the setup of a policy in one router that knows all caches and loads and is next to
    /// all replicas.
    #[must_use]
    pub fn omniscient(policy: Policy) -> Self {
        let mut setup = Self::policy(policy);
        setup.router.knowledge = Knowledge::Truth;
        Self { hearing: Hearing::Omniscient, ..setup }
    }

    /// Runs a scenario with this setup.
    #[must_use]
    pub fn run(&self, scenario: &Scenario) -> Figures {
        let mut scenario = match self.hearing {
            Hearing::Omniscient => scenario.omniscient(),
            _ => scenario.clone(),
        };
        if self.hearing == Hearing::Unshared {
            scenario.world.news.share_ms = None;
        }
        scenario.run(&self.router)
    }
}

/// Size of a replica's cache in tokens until a scenario sets another: that of the L4.
const KV_TOKENS: f32 = 40_000.0;
