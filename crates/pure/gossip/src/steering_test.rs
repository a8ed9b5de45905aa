//! Steering reports between nodes.

use std::time::Duration;

use spillway_codec::golden;
use spillway_types::AwayReason;

use super::*;
use crate::fuzz::some_moment as start;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
const DRAINING: Steering = Steering::Away(AwayReason::Draining);
const SHEDDING: Steering = Steering::Away(AwayReason::Shedding);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn gossip(region: &str, incarnation: u64) -> SteeringGossip {
    SteeringGossip::new(region.into(), incarnation)
}

fn receive(gossip: &mut SteeringGossip, now: Instant, from: (&str, &str), word: &Bytes) -> bool {
    let (node, region) = (NodeName::from(from.0), RegionName::from(from.1));
    gossip.handle_datagram(now, &node, &region, word).is_ok()
}

#[test]
fn the_bytes_are_those_on_file() {
    let code = SHEDDING.code();
    let word = SteeringWord { incarnation: 1_800_000_000_000, seq: 70_000, code };
    golden::check(FOLDER, "steering", &word);
}

#[test]
fn a_change_is_told_twice_at_once_and_then_now_and_again() {
    let (mut us, mut now, mut told) = (gossip("us", 1), start(), Vec::new());
    for turn in 0..40 {
        let own = if turn < 20 { Steering::Send } else { DRAINING };
        if us.report_inside(own, now).is_some() {
            told.push(turn);
        }
        now += ms(50);
    }
    assert_eq!(told, [0, 1, 11, 20, 21, 31]);
}

#[test]
fn what_is_told_inside_is_of_the_node_and_outside_of_the_region() {
    let now = start();
    let (mut us, mut eu) = (gossip("us", 1), gossip("eu", 1));
    let inside = us.report_inside(DRAINING, now).unwrap();
    let mut sibling = gossip("us", 9);
    assert!(receive(&mut sibling, now, ("a", "us"), &inside));
    assert_eq!(sibling.sibling(&"a".into(), now), Some(DRAINING));
    let outside = us.report_outside(Steering::Send, now).unwrap();
    assert!(receive(&mut eu, now, ("a", "us"), &outside));
    assert_eq!(eu.region(&"us".into(), now), Some(Steering::Send));
    assert_eq!(eu.sibling(&"a".into(), now), None, "it is none");
}

#[test]
fn the_newest_word_counts_whoever_of_the_region_speaks() {
    let now = start();
    let (mut first, mut second, mut eu) = (gossip("us", 5), gossip("us", 3), gossip("eu", 1));
    let old = first.report_outside(Steering::Send, now).unwrap();
    let new = first.report_outside(SHEDDING, now).unwrap();
    assert!(receive(&mut eu, now, ("a", "us"), &new));
    assert!(!receive(&mut eu, now, ("a", "us"), &old), "overtaken on the way");
    assert!(!receive(&mut eu, now, ("a", "us"), &new), "doubled on the way");
    assert_eq!(eu.region(&"us".into(), now), Some(SHEDDING));
    let other = second.report_outside(DRAINING, now).unwrap();
    assert!(receive(&mut eu, now + ms(1), ("b", "us"), &other));
    assert_eq!(eu.region(&"us".into(), now + ms(1)), Some(DRAINING));
    // A node that was restarted counts from zero.
    let reborn = gossip("us", 6).report_outside(Steering::Send, now).unwrap();
    assert!(receive(&mut eu, now + ms(2), ("a", "us"), &reborn));
    assert_eq!(eu.region(&"us".into(), now + ms(2)), Some(Steering::Send));
}

#[test]
fn an_old_word_is_none_and_so_is_that_of_a_node_that_left() {
    let now = start();
    let (mut us, mut eu) = (gossip("us", 1), gossip("eu", 1));
    let word = us.report_outside(DRAINING, now).unwrap();
    assert!(receive(&mut eu, now, ("a", "us"), &word));
    assert_eq!(eu.region(&"us".into(), now + ms(5_000)), Some(DRAINING));
    assert_eq!(eu.region(&"us".into(), now + ms(5_001)), None);
    eu.keep(|node| node.as_str() != "a");
    assert_eq!(eu.region(&"us".into(), now), None);
    assert!(!receive(&mut eu, now, ("a", "us"), &Bytes::from_static(b"SW")));
}

#[test]
fn a_region_takes_clients_as_long_as_one_of_its_nodes_does() {
    let of = |nodes: &[Steering]| steering_of_region(nodes.iter().copied());
    assert_eq!(of(&[DRAINING, Steering::Send]), Steering::Send);
    assert_eq!(of(&[DRAINING, Steering::SendShedding]), Steering::SendShedding);
    assert_eq!(of(&[Steering::SendShedding, Steering::Send]), Steering::Send);
    assert_eq!(of(&[DRAINING, SHEDDING]), DRAINING, "the own reason");
    assert_eq!(of(&[]), Steering::Send);
}
