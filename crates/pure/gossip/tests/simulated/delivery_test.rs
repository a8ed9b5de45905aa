//! Delivery of reports over a network that loses, delays and doubles datagrams.

use proptest::prelude::*;
use spillway_gossip::{GossipConfig, ModelShare, OwnLoad, ReplicaLoad, ReplicaSignals};
use spillway_types::{ModelLoad, ShedState};

use crate::world::{Network, World};

fn load(rng: &mut fastrand::Rng, models: u32, replicas: u32) -> OwnLoad {
    let mut load = OwnLoad::default();
    for n in (0..models).filter(|_| rng.u32(0..10) > 0).collect::<Vec<_>>() {
        let model = ModelLoad {
            queued: rng.u32(0..90) as f32,
            running: rng.u32(0..90) as f32,
            capacity: rng.bool().then(|| rng.u32(0..200) as f32),
            shed: if rng.bool() { ShedState::Open } else { ShedState::Reserved },
            ..ModelLoad::default()
        };
        load.models.insert(format!("m{n}").as_str().into(), model);
        let share = ModelShare { waiting: rng.u32(0..9), rate_per_s: None };
        load.shares.insert(format!("m{n}").as_str().into(), share);
    }
    for n in 0..replicas {
        let in_flight = rng.u32(0..50);
        let signals = ReplicaSignals { queued: Some(rng.u32(0..9) as f32), ..Default::default() };
        let replica = ReplicaLoad {
            in_flight,
            pending_tokens: rng.u32(0..200),
            wanted: in_flight,
            limit: None,
            signals,
        };
        load.replicas.insert(format!("gpu-{n}").as_str().into(), replica);
    }
    load
}

/// Changes of these sizes are always reported, so that readers get the exact values.
fn exact() -> GossipConfig {
    GossipConfig { ignored_permille: 0, ..GossipConfig::default() }
}

fn check_all_arrived(world: &World) {
    for reader in 0..world.nodes.len() {
        for teller in (0..world.nodes.len()).filter(|teller| *teller != reader) {
            check_arrived(world, reader, teller);
        }
    }
}

fn check_arrived(world: &World, reader: usize, teller: usize) {
    let (told, from) = (&world.nodes[teller].load, &world.nodes[teller].member);
    if world.nodes[reader].region == world.nodes[teller].region {
        let peers = world.gossip(reader).peers(world.now);
        let peer = peers.iter().find(|peer| peer.node == from.node).unwrap();
        assert!(peer.live);
        assert_eq!(peer.replicas.len(), told.replicas.len());
        assert_eq!(peer.shares.len(), told.shares.len());
        for (name, replica) in &told.replicas {
            let read = peer.replica(name).unwrap();
            assert_eq!(read.in_flight, replica.in_flight);
            assert_eq!(read.pending_tokens, replica.pending_tokens);
            assert_eq!(read.signals, replica.signals);
            assert!(read.age_ms < 500, "{}", read.age_ms);
        }
        for (name, share) in &told.shares {
            assert_eq!(peer.share(name), Some(share));
        }
    } else if *world.gossip(teller).speaker() == from.node {
        let view = world.view(reader, world.nodes[teller].region);
        assert_eq!(view.speaker.as_ref(), Some(&from.node));
        assert_eq!(view.models.len(), told.models.len());
        for (name, model) in &told.models {
            assert_eq!(view.model(name).unwrap().load, *model);
            assert!(view.model(name).unwrap().age_ms < 500);
        }
    }
}

proptest! {
    // More with PROPTEST_CASES.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 8))]

    #[test]
    fn what_was_told_last_arrives_in_the_end(
        seed in any::<u64>(),
        loss_permille in 0_u32..400,
        double_permille in 0_u32..400,
        jitter_us in 0_u64..80_000,
    ) {
        let network = Network { loss_permille, double_permille, jitter_us, ..Network::default() };
        let mut world = World::new(2, 2, network, exact(), seed);
        for _ in 0..20 {
            for node in 0..4 {
                let rng = &mut world.rng;
                world.nodes[node].load = load(rng, 4, 6);
                world.feed(node);
            }
            let pause_ms = world.rng.u64(1..200);
            world.run_ms(pause_ms);
        }
        // The network recovers, and nothing is sent that was not sent before.
        world.network = Network::default();
        world.run_fed_ms(2_000);
        check_all_arrived(&world);
    }
}

#[test]
fn more_than_a_datagram_holds_is_spread_over_several() {
    let mut world = World::new(2, 2, Network::default(), exact(), 5);
    for node in 0..4 {
        let mut rng = fastrand::Rng::with_seed(node as u64);
        world.nodes[node].load = load(&mut rng, 300, 250);
    }
    world.run_fed_ms(1_500);
    check_all_arrived(&world);
    let longest = world.nodes.iter().map(|node| node.longest_bytes).max().unwrap();
    assert!((900..=1_150).contains(&longest), "{longest}");
}

#[test]
fn when_all_of_much_changes_everything_gets_its_turn() {
    let network = Network { loss_permille: 50, ..Network::default() };
    let mut world = World::new(1, 2, network, exact(), 5);
    let mut rng = fastrand::Rng::with_seed(9);
    for _ in 0..40 {
        for node in 0..2 {
            world.nodes[node].load = load(&mut rng, 0, 600);
            world.feed(node);
        }
        let before = world.nodes[0].sent;
        world.run_ms(50);
        let parts = world.nodes[0].sent - before;
        // Four parts each period; one or two answers to questions may come between.
        assert!(parts <= 4 + 2 * 8, "{parts}");
    }
    // Stop here, with most of the last numbers untold, and let them come in their turn.
    world.network.loss_permille = 0;
    world.run_fed_ms(2_000);
    check_all_arrived(&world);
}

#[test]
fn a_model_that_is_gone_goes_everywhere() {
    let mut world = World::new(2, 2, Network::default(), exact(), 5);
    let mut rng = fastrand::Rng::with_seed(1);
    for node in 0..4 {
        world.nodes[node].load = load(&mut rng, 5, 5);
    }
    world.run_fed_ms(1_000);
    for node in 0..4 {
        world.nodes[node].load.models.pop_last();
        world.nodes[node].load.replicas.pop_first();
    }
    world.run_fed_ms(500);
    check_all_arrived(&world);
}

#[test]
fn a_node_that_starts_again_is_believed_and_learns_all() {
    let mut world = World::new(2, 2, Network::default(), exact(), 5);
    let mut rng = fastrand::Rng::with_seed(1);
    for node in 0..4 {
        world.nodes[node].load = load(&mut rng, 5, 5);
    }
    world.run_fed_ms(1_000);
    world.kill(0);
    world.nodes[0].load = load(&mut rng, 5, 5);
    world.boot(0);
    world.run_fed_ms(1_200);
    check_all_arrived(&world);
    // A few datagrams of its earlier life may still be in transit, but nothing is refused forever.
    let before = world.gossip(1).counters().old;
    world.run_fed_ms(1_000);
    assert_eq!(world.gossip(1).counters().old, before);
}

#[test]
fn a_quiet_cluster_repeats_no_values() {
    let mut world = World::new(2, 3, Network::default(), GossipConfig::default(), 5);
    let mut rng = fastrand::Rng::with_seed(1);
    for node in 0..6 {
        world.nodes[node].load = load(&mut rng, 30, 30);
    }
    world.run_fed_ms(2_000);
    world.nodes.iter_mut().for_each(|node| node.longest_bytes = 0);
    world.run_fed_ms(2_000);
    let longest = world.nodes.iter().map(|node| node.longest_bytes).max().unwrap();
    assert!(longest <= 70, "{longest}");
    let view = world.view(0, 1);
    assert!(view.models.values().all(|model| model.age_ms <= 260), "confirmed all the same");
}

#[test]
fn a_large_change_goes_out_sooner_than_a_small_one() {
    let mut world = World::new(1, 2, Network::default(), GossipConfig::default(), 5);
    world.nodes[0].load.replicas.insert("g".into(), ReplicaLoad::default());
    world.run_fed_ms(1_000);
    let time_to_tell = |world: &mut World, in_flight: u32| {
        // Right behind a report, so that a whole period lies ahead.
        let sent = world.nodes[0].sent;
        while world.nodes[0].sent == sent {
            world.run_ms(1);
        }
        world.nodes[0].load.replicas.get_mut("g").unwrap().in_flight = in_flight;
        world.wait_ms(200, |world| world.gossip(1).elsewhere(&"g".into()).in_flight == in_flight)
    };
    let small_ms = time_to_tell(&mut world, 1);
    let large_ms = time_to_tell(&mut world, 9);
    assert!(large_ms <= 60, "{large_ms}");
    assert!((80..=110).contains(&small_ms), "{small_ms}");
}

#[test]
fn nobody_asks_for_parts_that_are_under_way() {
    let network = Network { jitter_us: 0, ..Network::default() };
    let mut world = World::new(1, 2, network, exact(), 5);
    let mut rng = fastrand::Rng::with_seed(9);
    for _ in 0..20 {
        for node in 0..2 {
            world.nodes[node].load = load(&mut rng, 0, 300);
            world.feed(node);
        }
        world.run_ms(50);
    }
    // The first report may come before the other node listens.
    let asked: Vec<u64> = (0..2).map(|node| world.gossip(node).counters().asked).collect();
    assert!(asked.iter().all(|asked| *asked <= 1), "{asked:?}");
}
