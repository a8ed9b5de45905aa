//! Which regions can be reached, and when that is known.

use std::time::Duration;

use spillway_gossip::{GossipConfig, GossipEvent, Reach};

use crate::world::{Network, World};

fn world(network: Network) -> World {
    let mut world = World::new(3, 2, network, GossipConfig::default(), 1);
    world.run_fed_ms(1_000);
    world
}

fn lossy() -> Network {
    Network { loss_permille: 200, double_permille: 50, ..Network::default() }
}

#[test]
fn all_regions_are_reached_one_round_trip_after_the_start() {
    let mut world = World::new(3, 2, Network::default(), GossipConfig::default(), 1);
    let waited_ms = world.wait_ms(1_000, |world| {
        (0..6).all(|node| {
            (0..3).filter(|r| *r != node / 2).all(|r| world.reach(node, r) == Reach::Both)
        })
    });
    // 80 ms one way, and a node that begins waits 400 ms for another one to speak.
    assert!(waited_ms <= 650, "{waited_ms}");
}

#[test]
fn a_region_that_is_cut_off_is_out_within_a_second() {
    let mut world = world(Network::default());
    world.cut_region(0, 1, true);
    world.cut_region(1, 0, true);
    // Datagrams in transit still arrive; from then on it takes a second at most.
    let waited_ms = world.wait_ms(1_100, |world| {
        world.of(1).iter().all(|node| world.reach(*node, 0) != Reach::Both)
            && world.of(0).iter().all(|node| world.reach(*node, 1) != Reach::Both)
    });
    assert!(waited_ms > 800, "{waited_ms}: given up too soon");
    world.run_fed_ms(500);
    assert_eq!(world.reach(0, 1), Reach::Silent);
    assert_eq!(world.reach(0, 2), Reach::Both, "the third region has nothing to do with it");
    assert_eq!(world.reach(2, 2), Reach::Both);
    let view = world.view(0, 1);
    assert_eq!(view.reachable_since, None);
    assert!(view.age_ms.unwrap() >= 900);
}

#[test]
fn a_region_is_out_a_second_after_its_last_datagram_even_if_nobody_wakes_the_machine() {
    let world = world(Network::default());
    let last = world.now;
    let gossip = world.gossip(0);
    let reach = |after_ms| {
        let views = gossip.regions(last + Duration::from_millis(after_ms));
        views.iter().map(|view| view.reach).collect::<Vec<_>>()
    };
    assert_eq!(reach(0), [Reach::Both, Reach::Both]);
    assert_eq!(reach(1_000), [Reach::Silent, Reach::Silent]);
}

#[test]
fn silence_one_way_is_known_on_both_sides() {
    let mut world = world(Network::default());
    world.cut_region(0, 1, true);
    let waited_ms = world.wait_ms(1_400, |world| {
        world.of(0).iter().all(|node| world.reach(*node, 1) == Reach::Deaf)
            && world.of(1).iter().all(|node| world.reach(*node, 0) == Reach::Silent)
    });
    // The deaf side is a silence, a way there and a way back, and at most a quick period late.
    assert!((900..=1_150).contains(&waited_ms), "{waited_ms}");
    world.cut_region(0, 1, false);
    let mended = world.now;
    let healed_ms = world.wait_ms(500, |world| {
        world.of(0).iter().all(|node| world.reach(*node, 1) == Reach::Both)
            && world.of(1).iter().all(|node| world.reach(*node, 0) == Reach::Both)
    });
    assert!(healed_ms <= 350, "{healed_ms}");
    assert!(world.view(0, 1).reachable_since.unwrap() > mended);
}

#[test]
fn a_region_whose_nodes_all_died_is_silent_and_one_that_returns_is_back() {
    let mut world = world(lossy());
    world.of(2).into_iter().for_each(|node| world.kill(node));
    world.wait_ms(1_100, |world| world.reach(0, 2) == Reach::Silent);
    world.of(2).into_iter().for_each(|node| world.boot(node));
    world.wait_ms(1_500, |world| world.reach(0, 2) == Reach::Both);
}

#[test]
fn the_loss_of_every_fifth_datagram_looks_like_no_silence() {
    let mut world = world(lossy());
    world.run_fed_ms(2_000);
    world.nodes.iter_mut().for_each(|node| node.events.clear());
    world.run_fed_ms(60_000);
    for node in &world.nodes {
        let alarms =
            node.events.iter().filter(|(_, event)| matches!(event, GossipEvent::Region { .. }));
        assert_eq!(alarms.count(), 0, "{:?}", node.events);
    }
}

#[test]
fn changes_of_reach_are_told_as_they_happen() {
    let mut world = world(Network::default());
    world.cut_region(0, 1, true);
    world.run_fed_ms(1_500);
    let told: Vec<&GossipEvent> = world.nodes[2].events.iter().map(|(_, event)| event).collect();
    let gone = GossipEvent::Region { region: "r00".into(), from: Reach::Both, to: Reach::Silent };
    assert_eq!(told.last(), Some(&&gone));
}

#[test]
fn nobody_is_woken_more_often_than_there_is_something_to_do() {
    let mut world = world(Network::default());
    world.of(1).into_iter().for_each(|node| world.kill(node));
    world.run_fed_ms(3_000);
    let before = world.timeouts;
    world.run_ms(1_000);
    let each = (world.timeouts - before) / 4;
    assert!((8..=60).contains(&each), "{each} a second and node");
}
