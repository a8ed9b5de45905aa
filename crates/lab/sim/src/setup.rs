//! Setups: ways of routing that are compared with each other.

use spillway_route::{Policy, Push};
use spillway_types::Speed;

use crate::{Figures, Knowledge, RouterConfig, Scenario};

/// Named way of routing.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Name in tables.
    pub name: String,
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
    /// No hot trie: regions don't agree on hot prefixes.
    NoHotTrie,
    /// Signals of replicas once a second only.
    Slow,
}

impl Setup {
    /// Returns the setup of a policy with all defaults, which does not know the speed of replicas
    /// at first.
    #[must_use]
    pub fn policy(policy: Policy) -> Self {
        let speed = Speed { kv_tokens: KV_TOKENS, ..Speed::UNKNOWN };
        Self {
            name: policy.name().to_owned(),
            router: RouterConfig::new(policy, speed),
            hearing: Hearing::AsItIs,
        }
    }

    /// Returns the setup of a policy in one router that knows all caches and loads and is next to
    /// all replicas.
    #[must_use]
    pub fn omniscient(policy: Policy) -> Self {
        let mut setup = Self::policy(policy).named("omniscient");
        setup.router.knowledge = Knowledge::Truth;
        Self { hearing: Hearing::Omniscient, ..setup }
    }

    /// Returns the whole policy, and then setups with one part of it changed or left out.
    #[must_use]
    pub fn ablations() -> Vec<Self> {
        let whole = || Self::policy(Policy::PredictedLatency);
        let with = |name: &str, change: fn(&mut RouterConfig)| {
            let mut setup = whole().named(name);
            change(&mut setup.router);
            setup
        };
        let hears = |name: &str, hearing| Self { hearing, ..whole().named(name) };
        vec![
            whole().named("whole"),
            with("without the index", |router| router.knowledge = Knowledge::None),
            hears("without sharing between nodes", Hearing::Unshared),
            hears("without the hot trie", Hearing::NoHotTrie),
            hears("with signals of each second", Hearing::Slow),
            with("without spilling", |router| router.spills = false),
            with("without what was sent since a report", |router| router.corrects = false),
            with("without learning speeds", |router| router.learns = false),
            with("gain 100 ms", |router| router.terms.gain_min_ms = 100.0),
            with("gain 200 ms", |router| router.terms.gain_min_ms = 200.0),
            with("kappa 0", |router| router.tuning.predicted.kappa = 0.0),
            with("kappa 1", |router| router.tuning.predicted.kappa = 1.0),
            with("kappa 3", |router| router.tuning.predicted.kappa = 3.0),
            with("crowding 0", |router| router.tuning.predicted.crowding = 0.0),
            with("push always", |router| router.tuning.predicted.push = Push::Always),
            with("push with nothing pending", |router| {
                router.tuning.predicted.push = Push::NoPending;
            }),
            with("no preference among equals", |router| router.tuning.predicted.tie_ms = 0.0),
        ]
    }

    /// Returns this setup under another name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Runs a scenario with this setup.
    #[must_use]
    pub fn run(&self, scenario: &Scenario) -> Figures {
        let mut scenario = match self.hearing {
            Hearing::Omniscient => scenario.omniscient(),
            _ => scenario.clone(),
        };
        match self.hearing {
            Hearing::AsItIs | Hearing::Omniscient => {}
            Hearing::Unshared => scenario.world.news.share_ms = None,
            Hearing::NoHotTrie => scenario.world.news.hot_ms = None,
            Hearing::Slow => scenario.world.news.signals_ms = SLOW_MS,
        }
        scenario.run(&self.router)
    }
}

/// Size of a replica's cache in tokens until a scenario sets another: that of the L4.
const KV_TOKENS: f32 = 40_000.0;

/// Milliseconds between two looks at the replicas, where looks are rare.
const SLOW_MS: f64 = 1_000.0;
