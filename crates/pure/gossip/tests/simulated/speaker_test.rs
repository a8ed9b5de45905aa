//! Choice of the speaker of a region.

use spillway_gossip::{GossipConfig, GossipEvent, OwnLoad, Reach};
use spillway_types::ModelLoad;

use crate::world::{Network, World};

fn world(loss_permille: u32) -> World {
    let network = Network { loss_permille, ..Network::default() };
    let mut world = World::new(2, 3, network, GossipConfig::default(), 3);
    for node in 0..6 {
        let load = ModelLoad { queued: 7.0, ..ModelLoad::default() };
        world.nodes[node].load =
            OwnLoad { models: [("m".into(), load)].into(), ..OwnLoad::default() };
    }
    world.run_fed_ms(2_000);
    world
}

fn speakers(world: &World, region: usize) -> Vec<String> {
    let alive = world.of(region).into_iter().filter(|node| world.nodes[*node].gossip.is_some());
    alive.map(|node| world.gossip(node).speaker().to_string()).collect()
}

#[test]
fn the_first_name_speaks_and_nobody_else_does() {
    let mut world = world(0);
    assert_eq!(speakers(&world, 0), ["n00-0"; 3]);
    let before = world.nodes[1].sent;
    world.run_fed_ms(1_000);
    // Two siblings, ten or eleven heartbeats: nothing to the other region.
    let sent = world.nodes[1].sent - before;
    assert!((18..=23).contains(&sent), "{sent}");
}

#[test]
fn another_speaker_takes_over_unnoticed() {
    for loss_permille in [0, 100] {
        let mut world = world(loss_permille);
        world.nodes.iter_mut().for_each(|node| node.events.clear());
        world.kill(0);
        let mut oldest_ms = 0;
        for _ in 0..60 {
            world.run_fed_ms(50);
            for node in world.of(1) {
                assert_eq!(world.reach(node, 0), Reach::Both);
                let view = world.view(node, 0);
                let model = *view.model(&"m".into()).unwrap();
                assert_eq!(model.load.queued, 7.0);
                oldest_ms = oldest_ms.max(model.age_ms);
            }
        }
        assert!(oldest_ms < 900, "{oldest_ms}");
        assert_eq!(speakers(&world, 0), ["n00-1"; 2]);
        assert_eq!(world.view(3, 0).speaker.unwrap().as_str(), "n00-1");
        let told = |event: &GossipEvent| world.nodes[1].events.iter().any(|(_, e)| e == event);
        assert!(told(&GossipEvent::Speaker("n00-1".into())));
    }
}

#[test]
fn a_speaker_that_returns_speaks_again() {
    let mut world = world(0);
    world.kill(0);
    world.run_fed_ms(1_000);
    world.boot(0);
    world.run_fed_ms(1_000);
    assert_eq!(speakers(&world, 0), ["n00-0"; 3]);
    assert_eq!(world.view(4, 0).speaker.unwrap().as_str(), "n00-0");
    assert_eq!(world.reach(4, 0), Reach::Both);
}

#[test]
fn a_speaker_that_nobody_of_its_region_hears_is_replaced_and_both_are_heard() {
    let mut world = world(0);
    for node in [1, 2] {
        world.cuts.insert((0, node));
    }
    world.run_fed_ms(2_000);
    assert_eq!(speakers(&world, 0), ["n00-0", "n00-1", "n00-1"]);
    assert_eq!(world.reach(5, 0), Reach::Both);
    assert!(world.view(5, 0).model(&"m".into()).unwrap().age_ms < 400);
}
