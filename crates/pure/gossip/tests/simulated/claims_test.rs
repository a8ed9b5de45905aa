//! Nodes of a region share a replica's limit.

use proptest::prelude::*;
use spillway_gossip::{GossipConfig, ReplicaLoad};

use crate::world::{Network, World};

/// A region whose nodes all send to one replica, and start requests only as their claim allows.
struct Shop {
    world: World,
    limit: u32,
    /// Load of each node, in flight included.
    wanted: Vec<u32>,
}

impl Shop {
    fn new(size: usize, limit: u32, network: Network, config: GossipConfig, seed: u64) -> Self {
        let world = World::new(1, size, network, config, seed);
        let mut shop = Self { world, limit, wanted: vec![0; size] };
        shop.work(1_000, |_| {});
        shop
    }

    /// Lets `ms` milliseconds pass, with a report from each node every 20 and `look` between.
    fn work(&mut self, ms: u64, mut look: impl FnMut(&mut Self)) {
        for _ in 0..ms / 20 {
            look(self);
            for node in 0..self.wanted.len() {
                self.start_and_end(node);
            }
            let end = self.world.now + std::time::Duration::from_millis(20);
            let limit = self.limit;
            self.world.run_until(end, |world| check(world, limit));
        }
    }

    /// A node ends what it does not want any more, and starts what it may.
    fn start_and_end(&mut self, node: usize) {
        let Some(gossip) = &self.world.nodes[node].gossip else { return };
        let claim = gossip.claim(&"gpu".into()).unwrap_or(0);
        let wanted = self.wanted[node];
        let limit = Some(self.limit);
        let load = self.world.nodes[node].load.replicas.entry("gpu".into()).or_default();
        let in_flight = load.in_flight.max(claim).min(wanted);
        *load = ReplicaLoad { in_flight, wanted, limit, ..ReplicaLoad::default() };
        self.world.feed(node);
        check(&self.world, self.limit);
    }

    fn claims(&self) -> Vec<u32> {
        claims(&self.world)
    }

    /// Returns the time until the claims are so, milliseconds.
    fn until(&mut self, most_ms: u64, is_so: impl Fn(&[u32]) -> bool) -> u64 {
        let begin = self.world.now;
        while !is_so(&self.claims()) {
            let waited = self.world.now - begin;
            assert!(waited.as_millis() < most_ms.into(), "{:?} after {waited:?}", self.claims());
            self.work(20, |_| {});
        }
        (self.world.now - begin).as_millis() as u64
    }
}

fn claims(world: &World) -> Vec<u32> {
    let alive = world.nodes.iter().filter_map(|node| node.gossip.as_ref());
    alive.map(|gossip| gossip.claim(&"gpu".into()).unwrap_or(0)).collect()
}

/// The invariant.
fn check(world: &World, limit: u32) {
    let claims = claims(world);
    let in_flight = world.nodes.iter().filter(|node| node.gossip.is_some());
    let in_flight: u32 =
        in_flight.filter_map(|node| Some(node.load.replicas.get("gpu")?.in_flight)).sum();
    assert!(claims.iter().sum::<u32>() <= limit, "{claims:?} of {limit}");
    assert!(in_flight <= limit, "{in_flight} of {limit}");
}

/// Silence never counts here, so that the members stay the same whatever is lost.
fn stable() -> GossipConfig {
    GossipConfig { silence_ms: 3_600_000, ..GossipConfig::default() }
}

proptest! {
    // More with PROPTEST_CASES.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    #[test]
    fn the_limit_holds_whatever_the_network_does(
        seed in any::<u64>(),
        size in 2_usize..6,
        limit in 1_u32..40,
        loss_permille in prop_oneof![0_u32..50, 0_u32..900],
        double_permille in 0_u32..300,
        jitter_us in prop_oneof![0_u64..5_000, 0_u64..1_500_000],
    ) {
        let network = Network { loss_permille, double_permille, jitter_us, ..Network::default() };
        let mut shop = Shop::new(size, limit, network, stable(), seed);
        shop.work(6_000, |shop| {
            // Now and then a node has more or less to do.
            if shop.world.rng.u32(0..8) == 0 {
                let node = shop.world.rng.usize(0..size);
                let most = if shop.world.rng.bool() { 1 } else { limit + 4 };
                shop.wanted[node] = shop.world.rng.u32(0..=most);
            }
        });
    }

    /// As above, with more replicas than a report has room for: a proposal that was not sent yet
    /// may not be used, whatever is echoed.
    #[test]
    fn limits_hold_while_reports_are_crowded(
        seed in any::<u64>(),
        limit in 1_u32..12,
        loss_permille in 0_u32..400,
    ) {
        let network = Network { loss_permille, ..Network::default() };
        let config = GossipConfig { datagram_bytes_max: 150, parts_max: 1, ..stable() };
        let mut world = World::new(1, 3, network, config, seed);
        let name = |n: u32| format!("gpu-{n}").as_str().into();
        for _ in 0..40 {
            for node in 0..3 {
                for n in 0..12 {
                    let wanted = if world.rng.bool() { 0 } else { limit * 2 };
                    let claim = world.gossip(node).claim(&name(n)).unwrap_or(0);
                    let load = world.nodes[node].load.replicas.entry(name(n)).or_default();
                    let in_flight = load.in_flight.max(claim).min(wanted);
                    *load = ReplicaLoad { in_flight, wanted, limit: Some(limit), ..*load };
                }
                world.feed(node);
            }
            for _ in 0..12 {
                world.run_ms(5);
                for n in 0..12 {
                    let claims = (0..3).map(|node| world.gossip(node).claim(&name(n)).unwrap_or(0));
                    prop_assert!(claims.sum::<u32>() <= limit);
                }
            }
        }
    }

    #[test]
    fn claims_follow_the_demand(seed in any::<u64>(), size in 2_usize..6, limit in 8_u32..200) {
        let mut shop = Shop::new(size, limit, Network::default(), GossipConfig::default(), seed);
        let first = shop.world.rng.usize(0..size);
        shop.wanted[first] = limit * 2;
        let first_ms = shop.until(300, |claims| claims[first] == limit);
        // And another one comes: both have the same, the others none.
        let second = (first + 1) % size;
        shop.wanted[second] = limit * 2;
        shop.work(100, |_| {});
        // Requests in flight have to end first, and the last place stays until the node counts as
        // idle.
        shop.wanted[first] = 0;
        let second_ms = shop.until(300, |claims| claims[second] >= limit - 1);
        shop.until(1_000, |claims| claims[second] == limit);
        prop_assert!(first_ms <= 300 && second_ms <= 300);
    }
}

#[test]
fn an_idle_region_shares_evenly() {
    let shop = Shop::new(3, 13, Network::default(), GossipConfig::default(), 1);
    assert_eq!(shop.claims(), [5, 4, 4]);
}

#[test]
fn a_node_alone_has_it_all_at_once() {
    let shop = Shop::new(1, 13, Network::default(), GossipConfig::default(), 1);
    assert_eq!(shop.claims(), [13]);
}

#[test]
fn busy_nodes_come_to_share_evenly() {
    let mut shop = Shop::new(3, 12, Network::default(), GossipConfig::default(), 1);
    shop.wanted = vec![30, 0, 0];
    shop.work(500, |_| {});
    assert_eq!(shop.claims(), [12, 0, 0]);
    shop.wanted = vec![30, 30, 30];
    // Requests end and others begin: each time one ends the claim may be lower than before.
    shop.work(3_000, |shop| {
        for node in &mut shop.world.nodes {
            if let Some(load) = node.load.replicas.get_mut("gpu") {
                load.in_flight = load.in_flight.saturating_sub(1);
            }
        }
    });
    assert_eq!(shop.claims(), [4, 4, 4]);
}

#[test]
fn where_there_is_less_than_one_for_each_work_gets_it() {
    let mut shop = Shop::new(4, 2, Network::default(), GossipConfig::default(), 1);
    shop.wanted = vec![0, 0, 5, 5];
    shop.until(500, |claims| claims == [0, 0, 1, 1]);
    shop.wanted = vec![5, 0, 0, 0];
    shop.until(500, |claims| claims[0] == 2 || claims[0] == 1);
}

#[test]
fn the_claim_of_a_node_that_died_is_free_after_its_silence() {
    let mut shop = Shop::new(2, 10, Network::default(), GossipConfig::default(), 1);
    shop.wanted = vec![5, 20];
    shop.work(500, |_| {});
    shop.world.kill(0);
    let took_ms = shop.until(1_200, |claims| claims == [10]);
    assert!(took_ms >= 780, "{took_ms}: before its silence was over");
    assert_eq!(shop.world.gossip(1).elsewhere(&"gpu".into()).in_flight, 0);
}

#[test]
fn one_that_joins_or_starts_again_begins_with_nothing() {
    let mut shop = Shop::new(3, 12, Network::default(), GossipConfig::default(), 1);
    shop.wanted = vec![20, 20, 20];
    shop.work(500, |_| {});
    shop.world.kill(2);
    shop.world.nodes[2].load = Default::default();
    shop.work(1_500, |_| {});
    assert_eq!(shop.claims(), [6, 6]);
    shop.world.boot(2);
    assert_eq!(shop.claims(), [6, 6, 0]);
    for _ in 0..25 {
        shop.work(20, |_| {});
        let claims = shop.claims();
        assert!(claims[0] > 0 && claims[1] > 0, "nobody stops for it: {claims:?}");
    }
    // The others give some back as their requests end.
    shop.wanted = vec![2, 2, 20];
    shop.until(800, |claims| claims[2] >= 6);
}

#[test]
fn a_node_that_is_not_heard_stops_before_the_others_take_what_it_had() {
    let mut shop = Shop::new(2, 10, Network::default(), GossipConfig::default(), 1);
    shop.wanted = vec![0, 20];
    shop.work(500, |_| {});
    shop.wanted = vec![20, 0];
    shop.until(1_000, |claims| claims == [10, 0]);
    // Its requests end, and it would start others, but it learns that its datagrams do not arrive.
    shop.wanted = vec![0, 20];
    shop.world.cuts.insert((0, 1));
    shop.work(2_000, |_| {});
    assert_eq!(shop.claims(), [0, 10]);
    shop.world.cuts.clear();
    shop.wanted = vec![0, 3];
    shop.until(1_000, |claims| claims[0] >= 1);
}

/// If a dead node's claim may be used, no rule can prevent this: the two halves of a region that
/// lost contact with each other each take all of it. They agree again as soon as they have contact.
#[test]
fn two_halves_of_a_region_that_meet_again_share_again() {
    let mut world = World::new(1, 2, Network::default(), GossipConfig::default(), 1);
    let replica = ReplicaLoad { limit: Some(10), ..ReplicaLoad::default() };
    for node in &mut world.nodes {
        node.load.replicas.insert("gpu".into(), replica);
    }
    world.cuts.extend([(0, 1), (1, 0)]);
    world.run_fed_ms(2_000);
    assert_eq!(claims(&world), [10, 10]);
    world.cuts.clear();
    let healed_ms = world.wait_ms(500, |world| claims(world) == [5, 5]);
    assert!(healed_ms <= 300, "{healed_ms}");
}

#[test]
fn a_lower_limit_holds_as_soon_as_it_is_known() {
    let mut shop = Shop::new(2, 20, Network::default(), GossipConfig::default(), 1);
    shop.limit = 6;
    // Until both know it the old one holds.
    for node in 0..2 {
        let load = shop.world.nodes[node].load.replicas.get_mut("gpu").unwrap();
        load.limit = Some(6);
        shop.world.feed(node);
    }
    shop.work(500, |_| {});
    assert_eq!(shop.claims(), [3, 3]);
}
