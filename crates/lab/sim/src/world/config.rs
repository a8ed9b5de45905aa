//! Settings of a world.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use spillway_engine::EngineConfig;

use super::Fault;
use crate::text::mix;

/// Regions with their nodes and replicas, and the delays between them.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// Regions of the world.
    pub regions: Vec<RegionConfig>,
    /// Round-trip times in milliseconds between regions, by their numbers.
    pub rtt_ms: Vec<Vec<f64>>,
    /// Settings of each replica's engine.
    pub engine: EngineConfig,
    /// Region in which the only nodes run, which own the replicas of all regions and get the
    /// requests of all clients over the network; `None` if each region has nodes.
    pub central: Option<usize>,
    /// Delays and errors of news.
    pub news: News,
    /// Seconds after which a request without a first token is given up.
    pub patience_s: f64,
    /// Seconds of warm-up: requests that come before don't count, since caches are cold.
    pub warm_up_s: f64,
    /// Seconds until the load ends; requests that come later don't count.
    pub end_s: f64,
    /// Slow replicas: number, and factor by which each step takes longer.
    pub slow: Vec<(usize, f64)>,
    /// Faults, in any order.
    pub faults: Vec<Fault>,
    /// Settings that the operator of this world gives Spillway.
    pub operator: Operator,
    /// Tenants among whom the sessions are divided; empty if all clients are one tenant.
    pub tenants: Vec<Tenant>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Moment that represents time 0 where code takes an `Instant`; results don't depend on it.
    pub origin: Instant,
}

/// Settings that an operator who knows the replicas and what clients want gives Spillway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Operator {
    /// Objective of the route in milliseconds to the first token; `None` for none.
    pub slo_ms: Option<u32>,
    /// Most requests in flight at a replica; `None` for the default.
    pub connections_max: Option<u32>,
    /// True if streams are continued elsewhere when their target fails or is being drained.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub continues_streams: bool,
}

/// Tenant: some of the clients, with a share of the queues.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tenant {
    /// Name in reports.
    pub name: String,
    /// Weight of its turns in a queue beside those of other tenants.
    pub weight: u16,
    /// Part of the sessions that is its own, in proportion to those of other tenants.
    pub load: u32,
}

/// Size of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RegionConfig {
    /// Number of gateways, each of which gets an equal part of the clients' requests; without a
    /// meaning where the nodes of one region serve all.
    pub nodes: usize,
    /// Number of model servers.
    pub replicas: usize,
}

/// Delays of each kind of news, and its errors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct News {
    /// Milliseconds between two looks at a replica. A look is known at the next one: it is 100 to
    /// 200 ms old when it is used. 0 for the truth at each moment.
    pub signals_ms: f64,
    /// Milliseconds until the region's other nodes know that a node sent a request to a replica;
    /// `None` if they never learn.
    pub share_ms: Option<f64>,
    /// Milliseconds between two deltas of a region to the hot trie; `None` for no hot trie.
    pub hot_ms: Option<f64>,
    /// Milliseconds from the proposal of a delta until all regions have applied it.
    pub agree_ms: f64,
    /// Milliseconds from the end of an engine's step until the nodes of its region have read the KV
    /// events of that step, if they read them.
    pub kv_events_ms: f64,
    /// One-way milliseconds from a node to a replica of its region.
    pub hop_ms: f64,
    /// Share of the datagrams of gossip and of the reports of neighbours that never arrives, 0 to
    /// 1.
    pub lost: f64,
    /// Largest random share by which a datagram of gossip is delayed.
    pub jitter: f64,
    /// Error of the round-trip times that nodes believe: each is off by a factor from `1 / (1 + e)`
    /// to `1 + e`, which stays the same for the run.
    pub rtt_error: f64,
    /// Error of the speeds of replicas that nodes learn, as [`News::rtt_error`].
    pub speed_error: f64,
}

impl Default for News {
    fn default() -> Self {
        Self {
            signals_ms: 100.0,
            share_ms: Some(30.0),
            hot_ms: Some(2_000.0),
            agree_ms: 300.0,
            kv_events_ms: 10.0,
            hop_ms: 0.25,
            lost: 0.0,
            jitter: 0.2,
            rtt_error: 0.0,
            speed_error: 0.0,
        }
    }
}

impl News {
    /// Returns news without delays.
    #[must_use]
    pub fn instant() -> Self {
        Self {
            signals_ms: 0.0,
            share_ms: Some(0.0),
            hot_ms: None,
            kv_events_ms: 0.0,
            ..Self::default()
        }
    }
}

impl WorldConfig {
    /// Returns the number of the tenant that a session belongs to; 0 if all clients are one tenant.
    #[must_use]
    pub fn tenant_of(&self, session: usize) -> usize {
        let all: u64 = self.tenants.iter().map(|tenant| u64::from(tenant.load)).sum();
        let seed = mix(self.seed, 0x7465_6E61);
        // Drawn by the session alone, so that tenants change no other random number of the run.
        let Some(mut drawn) = mix(seed, session as u64).checked_rem(all) else { return 0 };
        let is_its_own = |tenant: &Tenant| {
            let load = u64::from(tenant.load);
            let is_its_own = drawn < load;
            drawn = drawn.wrapping_sub(load);
            is_its_own
        };
        self.tenants.iter().position(is_its_own).unwrap_or(0)
    }

    /// Returns the world of one router that knows everything: all replicas in one region, no
    /// delays and no faults.
    #[must_use]
    pub fn omniscient(&self) -> Self {
        let replicas = self.regions.iter().map(|region| region.replicas).sum();
        Self {
            regions: vec![RegionConfig { nodes: 1, replicas }],
            rtt_ms: vec![vec![0.0]],
            central: None,
            news: News::instant(),
            faults: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns the tokens that the cache of each replica holds, which replicas report.
    #[must_use]
    pub fn kv_tokens(&self) -> f32 {
        (self.engine.kv_blocks.get() * self.engine.block_tokens.get()) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::super::world_test::config;
    use super::*;

    #[test]
    fn tenants_have_their_part_of_the_sessions_and_each_session_keeps_its_own() {
        let tenant = |name: &str, load| Tenant { name: name.to_owned(), weight: 1, load };
        let world = WorldConfig {
            tenants: vec![tenant("flood", 10), tenant("none", 0), tenant("calm", 1)],
            ..config(&[(1, 1)])
        };
        let all: Vec<usize> = (0..11_000).map(|session| world.tenant_of(session)).collect();
        let count = |number| all.iter().filter(|&&tenant| tenant == number).count();
        assert!((9_800..10_200).contains(&count(0)), "{}", count(0));
        assert_eq!((count(1), count(2)), (0, 11_000 - count(0)));
        assert!((0..11_000).all(|session| world.tenant_of(session) == all[session]));
        assert_eq!(config(&[(1, 1)]).tenant_of(7), 0);
    }
}
