//! Refusals and bounds of the gossip.

use std::time::{Duration, Instant};

use spillway_codec::{DecodeError, Wire, encode};

use super::*;
use crate::datagram::{Body, Datagram, Echo, Report};
use crate::datagram_older::OlderDatagram;
use crate::{Elsewhere, GossipError, ReplicaLoad};

#[expect(clippy::disallowed_methods, reason = "a test needs some starting moment")]
fn start() -> Instant {
    Instant::now()
}

fn members() -> Vec<GossipMember> {
    [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")]
        .map(|(n, r)| GossipMember::new(n, r))
        .into()
}

fn gossip(me: &str, region: &str, now: Instant) -> GossipMachine {
    let rng = fastrand::Rng::with_seed(1);
    let mut gossip =
        GossipMachine::new(GossipMember::new(me, region), 1, GossipConfig::default(), rng, now);
    gossip.set_members(&members(), now);
    gossip
}

fn report<E>(version: u64) -> Report<E> {
    let (digest, entries) = ([0; 4], Vec::new());
    Report { age_ms: 0, version, digest, whole: false, more: false, entries }
}

fn sibling(node: &str, incarnation: u64, seq: u64) -> Vec<u8> {
    let body = Body::Sibling { echo: Echo::default(), report: report(0) };
    let origin = NameId::of_node(&"a".into(), &node.into());
    encode(&Datagram { origin, incarnation, seq, heard: 1, body }).unwrap().to_vec()
}

fn region(node: &str, seq: u64) -> Vec<u8> {
    let origin = NameId::of_node(&"b".into(), &node.into());
    let body = Body::Region(report(0));
    encode(&Datagram { origin, incarnation: 5, seq, heard: 1, body }).unwrap().to_vec()
}

fn refusal(
    gossip: &mut GossipMachine,
    now: Instant,
    from: (&str, &str),
    bytes: &[u8],
) -> Option<GossipError> {
    gossip.handle_datagram(now, &from.0.into(), &from.1.into(), bytes).err()
}

#[test]
fn what_is_refused_is_counted_and_changes_nothing() {
    let now = start();
    let mut gossip = gossip("a1", "a", now);
    let mut check = |from, bytes: &[u8], expected: GossipError| {
        assert_eq!(refusal(&mut gossip, now, from, bytes), Some(expected));
        assert!(gossip.peers(now).iter().all(|peer| peer.age_ms.is_none()));
        assert!(gossip.regions(now).iter().all(|region| region.age_ms.is_none()));
    };
    let stranger = |node: &str| GossipError::Stranger(node.into());
    check(("a9", "a"), &sibling("a9", 1, 1), stranger("a9"));
    check(("a2", "b"), &sibling("a2", 1, 1), stranger("a2"));
    check(("b1", "a"), &region("b1", 1), stranger("b1"));
    check(("b1", "c"), &region("b1", 1), stranger("b1"));
    check(("a2", "a"), &sibling("a1", 1, 1), GossipError::Origin("a2".into()));
    check(("b1", "b"), &region("b2", 1), GossipError::Origin("b1".into()));
    check(("a2", "a"), &sibling("b1", 1, 1), GossipError::Origin("a2".into()));
    let short = DecodeError::TooShort { bytes: 3, needed: 14 };
    check(("a2", "a"), &[1, 2, 3], GossipError::Malformed(short));
    let counters = gossip.counters();
    assert_eq!((counters.strangers, counters.wrong_origins, counters.malformed), (4, 3, 1));
    assert_eq!(counters.taken, 0);
}

/// During a rolling upgrade, datagrams of the version before and of the version after arrive.
#[test]
fn the_version_before_is_taken_in_and_the_one_after_is_counted_as_malformed() {
    let now = start();
    let mut gossip = gossip("a1", "a", now);
    let datagram: Datagram = spillway_codec::decode(&sibling("a2", 1, 1)).unwrap();
    let older = encode(&OlderDatagram::from(datagram.clone())).unwrap();
    assert!(older.len() < encode(&datagram).unwrap().len());
    assert_eq!(refusal(&mut gossip, now, ("a2", "a"), &older), None);
    let is_heard =
        |gossip: &GossipMachine| gossip.peers(now).iter().filter(|it| it.age_ms.is_some()).count();
    assert_eq!((is_heard(&gossip), gossip.counters().taken), (1, 1));
    let newest = Datagram::VERSION;
    let newer = encode(&NewerDatagram(datagram)).unwrap();
    let error = DecodeError::Version { kind: Datagram::KIND, found: newest + 1, newest };
    let expected = Some(GossipError::Malformed(error));
    assert_eq!(refusal(&mut gossip, now, ("a2", "a"), &newer), expected);
    assert_eq!((is_heard(&gossip), gossip.counters().malformed), (1, 1));
}

#[derive(serde::Serialize, serde::Deserialize)]
struct NewerDatagram(Datagram);

impl Wire for NewerDatagram {
    const KIND: u16 = Datagram::KIND;
    const VERSION: u16 = Datagram::VERSION + 1;
    const BYTES_MAX: usize = Datagram::BYTES_MAX;
}

#[test]
fn reports_of_the_wrong_kind_are_refused() {
    let now = start();
    let mut gossip = gossip("a1", "a", now);
    let as_node = |region: &str, node: &str, body| {
        let origin = NameId::of_node(&region.into(), &node.into());
        encode(&Datagram { origin, incarnation: 1, seq: 1, heard: 0, body }).unwrap()
    };
    let inside = as_node("a", "a2", Body::Region(report(0)));
    let outside = as_node("b", "b1", Body::Sibling { echo: Echo::default(), report: report(0) });
    let expected = Some(GossipError::Misplaced("a2".into()));
    assert_eq!(refusal(&mut gossip, now, ("a2", "a"), &inside), expected);
    let expected = Some(GossipError::Misplaced("b1".into()));
    assert_eq!(refusal(&mut gossip, now, ("b1", "b"), &outside), expected);
    assert_eq!(gossip.counters().misplaced, 2);
    assert!(gossip.peers(now)[0].age_ms.is_none());
}

#[test]
fn what_came_before_does_not_come_again() {
    let now = start();
    let mut gossip = gossip("a1", "a", now);
    let mut take = |incarnation, seq| {
        refusal(&mut gossip, now, ("a2", "a"), &sibling("a2", incarnation, seq)).is_none()
    };
    assert!(take(3, 7));
    assert!(!take(3, 7), "doubled");
    assert!(take(3, 9));
    assert!(take(3, 8), "late, but not seen");
    assert!(!take(3, 8));
    assert!(take(3, 900));
    assert!(!take(3, 9), "replayed");
    assert!(!take(2, 5_000), "of an earlier life");
    assert!(take(4, 1), "of a new life");
    assert!(!take(3, 901));
    assert_eq!(gossip.counters().old, 5);
    let late = region("b1", 7);
    assert_eq!(refusal(&mut gossip, now, ("b1", "b"), &late), None);
    let expected = Some(GossipError::Old("b1".into()));
    assert_eq!(refusal(&mut gossip, now, ("b1", "b"), &late), expected);
}

#[test]
fn late_datagrams_are_no_sign_of_life() {
    let now = start();
    let mut gossip = gossip("a1", "a", now);
    assert_eq!(refusal(&mut gossip, now, ("b1", "b"), &region("b1", 9)), None);
    let later = now + Duration::from_millis(500);
    assert_eq!(refusal(&mut gossip, later, ("b1", "b"), &region("b1", 8)), None);
    assert_eq!(gossip.regions(later)[0].age_ms, Some(500));
    assert_eq!(refusal(&mut gossip, now, ("a2", "a"), &sibling("a2", 1, 9)), None);
    assert_eq!(refusal(&mut gossip, later, ("a2", "a"), &sibling("a2", 1, 8)), None);
    assert_eq!(gossip.peers(later)[0].age_ms, Some(500));
}

/// The reports that a node sends to `to`.
fn sent(gossip: &mut GossipMachine, to: &str) -> Vec<Report<SiblingEntry>> {
    let all = std::iter::from_fn(|| gossip.poll_transmit());
    all.filter(|(node, _)| node.as_str() == to)
        .filter_map(|(_, bytes)| match spillway_codec::decode::<Datagram>(&bytes).unwrap().body {
            Body::Sibling { report, .. } => Some(report),
            Body::Region(_) | Body::Ask { .. } => None,
        })
        .collect()
}

#[test]
fn a_question_about_another_life_is_answered_with_all() {
    let now = start();
    let mut gossip = gossip("a1", "a", now);
    let replica = ReplicaLoad { in_flight: 3, ..ReplicaLoad::default() };
    let load = OwnLoad { replicas: [("g".into(), replica)].into(), ..OwnLoad::default() };
    gossip.set_load(now, &load);
    gossip.handle_timeout(now);
    assert_eq!(sent(&mut gossip, "a2")[0].entries.len(), 1);
    let mut answer = |at_ms, incarnation, have| {
        let now = now + Duration::from_millis(at_ms);
        let origin = NameId::of_node(&"a".into(), &"a2".into());
        let body = Body::Ask { incarnation, have };
        let ask = encode(&Datagram { origin, incarnation: 1, seq: at_ms, heard: 0, body }).unwrap();
        assert_eq!(refusal(&mut gossip, now, ("a2", "a"), &ask), None);
        sent(&mut gossip, "a2").pop().map(|report| (report.whole, report.entries.len()))
    };
    assert_eq!(answer(30, 1, 1), Some((false, 0)), "it has all");
    assert_eq!(answer(60, 1, 0), Some((true, 1)), "it has nothing");
    assert_eq!(answer(90, 7, 1), Some((true, 1)), "what it has is of another life");
    assert_eq!(answer(95, 7, 1), None, "it cannot have got the last answer yet");
}

#[test]
fn queues_are_bounded_and_the_newest_stays() {
    let now = start();
    let rng = fastrand::Rng::with_seed(1);
    let config = GossipConfig { transmit_max: 5, events_max: 2, ..GossipConfig::default() };
    let mut gossip = GossipMachine::new(GossipMember::new("a1", "a"), 1, config, rng, now);
    gossip.set_members(&members(), now);
    for step in 0..30 {
        gossip.handle_timeout(now + Duration::from_millis(step * 130));
    }
    let sent = std::iter::from_fn(|| gossip.poll_transmit()).count();
    assert_eq!(sent, 5);
    assert!(gossip.counters().transmits_dropped > 5);
    for node in ["a2", "b1"] {
        for seq in 0..9 {
            let now = now + Duration::from_secs(10 + 5 * seq);
            let (region_name, bytes) = if node == "a2" {
                ("a", sibling(node, 1, seq + 1))
            } else {
                ("b", region(node, seq + 1))
            };
            drop(gossip.handle_datagram(now, &node.into(), &region_name.into(), &bytes));
            gossip.handle_timeout(now + Duration::from_secs(2));
        }
    }
    assert_eq!(std::iter::from_fn(|| gossip.poll_event()).count(), 2);
    assert!(gossip.counters().events_dropped > 0);
}

#[test]
fn members_and_names_are_bounded() {
    let now = start();
    let rng = fastrand::Rng::with_seed(1);
    let config = GossipConfig { members_max: 2, entries_max: 3, ..GossipConfig::default() };
    let mut gossip = GossipMachine::new(GossipMember::new("a1", "a"), 1, config, rng, now);
    gossip.set_members(&members(), now);
    // The own region comes first.
    assert_eq!(gossip.peers(now).len(), 1);
    assert_eq!(gossip.regions(now).len(), 1);
    assert_eq!(gossip.counters().members_left_out, 1);
    let replica = |n: u32| (format!("g{n}").as_str().into(), ReplicaLoad::default());
    let load = OwnLoad { replicas: (0..9).map(replica).collect(), ..OwnLoad::default() };
    gossip.set_load(now, &load);
    assert_eq!(gossip.counters().names_left_out, 6);
}

#[test]
fn a_request_is_heard_of_before_the_whole_load_is_told_again() {
    let now = start();
    let (mut a1, mut a2) = (gossip("a1", "a", now), gossip("a2", "a", now));
    let replicas = [("g".into(), ReplicaLoad::default())].into();
    a1.set_load(now, &OwnLoad { replicas, ..OwnLoad::default() });
    let mut pass = |a1: &mut GossipMachine, now: Instant| {
        a1.handle_timeout(now);
        let datagrams: Vec<_> = std::iter::from_fn(|| a1.poll_transmit()).collect();
        for (_, datagram) in datagrams.iter().filter(|(to, _)| to.as_str() == "a2") {
            a2.handle_datagram(now, &"a1".into(), &"a".into(), datagram).unwrap();
        }
        let Elsewhere { in_flight, pending_tokens } = a2.elsewhere(&"g".into());
        (in_flight, pending_tokens)
    };
    assert_eq!(pass(&mut a1, now), (0, 0));
    let later = now + Duration::from_millis(u64::from(a1.config.fast_ms));
    let counts = ReplicaCounts { in_flight: 1, pending_tokens: 5_000 };
    let ids = ["g", "unknown"].map(|name| NameId::of_replica(&name.into()));
    a1.set_counts(ids.map(|id| (id, counts)));
    assert!(a1.poll_timeout().is_some_and(|due| due <= later), "it is told at once");
    let (in_flight, pending_tokens) = pass(&mut a1, later);
    assert!(in_flight == 1 && pending_tokens.abs_diff(5_000) <= 125, "{pending_tokens}");
}

#[test]
fn members_come_and_go() {
    let now = start();
    let mut gossip = gossip("a1", "a", now);
    assert_eq!(refusal(&mut gossip, now, ("a2", "a"), &sibling("a2", 1, 1)), None);
    assert_eq!(refusal(&mut gossip, now, ("b1", "b"), &region("b1", 1)), None);
    gossip.set_members(&members()[..3], now);
    assert!(gossip.peers(now)[0].age_ms.is_some(), "what is known of those that stay is kept");
    assert!(gossip.regions(now)[0].age_ms.is_some());
    // One moves to the other region: nothing is known of it there.
    let moved = [GossipMember::new("a2", "b"), GossipMember::new("c1", "c")];
    gossip.set_members(&moved, now);
    assert!(gossip.peers(now).is_empty());
    let regions = gossip.regions(now);
    assert_eq!(regions.iter().map(|r| r.region.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    assert!(regions.iter().all(|region| region.speaker.is_none()));
}

#[test]
fn a_node_alone_has_nothing_to_wait_for() {
    let now = start();
    let rng = fastrand::Rng::with_seed(1);
    let mut gossip =
        GossipMachine::new(GossipMember::new("a1", "a"), 1, GossipConfig::default(), rng, now);
    assert_eq!(gossip.poll_timeout(), None);
    let replica = ReplicaLoad { limit: Some(7), ..ReplicaLoad::default() };
    let load = OwnLoad { replicas: [("g".into(), replica)].into(), ..OwnLoad::default() };
    gossip.set_load(now, &load);
    assert_eq!(gossip.claim(&"g".into()), Some(7));
    assert_eq!(gossip.claim(&"other".into()), None);
    assert!(gossip.poll_transmit().is_none());
}
