use std::path::Path;

use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

use super::super::config;
use super::super::control::{ControlAnswer, ControlCommand, ControlError};
use super::super::link::LinkCounts;
use super::super::packet::testing::{is_sound, udp};
use super::super::shape::ShapePatch;
use super::*;

const MS: u64 = 1_000_000;

/// Region `a` has two nodes apart, `b` two together, `c` and `d` translate the same addresses.
const NETWORK: &str = r#"
    every_link = { rtt_ms = 10 }
    [[region]]
    name = "a"
    subnet = "10.77.1.0/24"
    nodes = 2
    isolate = "node"
    [[region]]
    name = "b"
    subnet = "10.77.2.0/24"
    nodes = 2
    [[region]]
    name = "c"
    subnet = "192.168.0.0/24"
    nodes = 2
    isolate = "node"
    nat = { public = "203.0.113.3", forward = [{ protocol = "udp", port = 7400, to = "192.168.0.2" }] }
    [[region]]
    name = "d"
    subnet = "192.168.0.0/24"
    nat = { public = "203.0.113.4" }
"#;

// Namespaces, in the order of the config.
const A1: usize = 0;
const A2: usize = 1;
const B: usize = 2;
const C1: usize = 3;
const C2: usize = 4;
const D: usize = 5;

fn hub() -> Hub {
    Hub::new(config::parse(NETWORK, Path::new(".")).unwrap())
}

fn address(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn packet(from: &str, to: &str) -> Vec<u8> {
    let end = |text: &str| {
        let (address, port) = text.split_once(':').unwrap();
        (address.parse().unwrap(), port.parse().unwrap())
    };
    udp(end(from), end(to), b"hello")
}

/// Returns the namespace where a packet arrives within a second, and its source and destination there.
fn send(hub: &mut Hub, namespace: usize, from: &str, to: &str) -> Option<(usize, String, String)> {
    hub.offer(0, namespace, &packet(from, to));
    let mut parcel = hub.take(1_000 * MS)?;
    assert!(is_sound(&parcel.bytes));
    let (_, source, destination) = Packet::parse(&mut parcel.bytes).unwrap().flow().unwrap();
    let text = |(address, port)| format!("{address}:{port}");
    Some((parcel.namespace, text(source), text(destination)))
}

fn apply(hub: &mut Hub, json: &str) -> Result<ControlAnswer, ControlError> {
    hub.apply(&serde_json::from_str::<ControlCommand>(json).unwrap())
}

fn counts(hub: &Hub, from: usize, to: usize) -> LinkCounts {
    hub.links[from * 4 + to].counts
}

#[test]
fn a_packet_comes_out_where_it_belongs_and_not_before_its_time() {
    let mut hub = hub();
    hub.offer(3 * MS, A1, &packet("10.77.1.1:1", "10.77.2.2:2"));
    assert_eq!(hub.next_due_ns(), Some(8 * MS));
    assert_eq!(hub.take(8 * MS - 1), None);
    let parcel = hub.take(8 * MS).unwrap();
    assert_eq!((parcel.namespace, parcel.bytes), (B, packet("10.77.1.1:1", "10.77.2.2:2")));
    assert_eq!(hub.take(u64::MAX), None);
    assert_eq!(counts(&hub, 0, 1).delivered_bytes, 33);
}

#[test]
fn packets_that_are_due_together_keep_their_order() {
    let mut hub = hub();
    for port in 1..=100 {
        hub.offer(0, A1, &packet(&format!("10.77.1.1:{port}"), "10.77.2.2:2"));
    }
    for port in 1..=100 {
        let expected = packet(&format!("10.77.1.1:{port}"), "10.77.2.2:2");
        assert_eq!(hub.take(5 * MS).unwrap().bytes, expected);
    }
}

#[test]
fn strays_are_counted_and_go_nowhere() {
    let mut hub = hub();
    assert_eq!(send(&mut hub, A1, "10.77.1.2:1", "10.77.2.1:2"), None);
    assert_eq!(send(&mut hub, A1, "10.77.1.1:1", "10.77.9.1:2"), None);
    hub.offer(0, A1, &[0x60; 40]);
    let mut fragment = packet("192.168.0.1:1", "10.77.1.1:2");
    fragment[6] = 0x20;
    hub.offer(0, C1, &fragment);
    let one_each = StrayCounts { not_ipv4: 1, foreign: 1, no_route: 1, untranslatable: 1 };
    assert_eq!(hub.strays, one_each);
    assert_eq!(hub.in_flight(), 0);
    hub.reset_counts();
    assert_eq!(hub.strays, StrayCounts::default());
}

#[test]
fn a_one_way_cut_stops_that_way_with_all_that_is_on_it() {
    let mut hub = hub();
    hub.offer(0, A1, &packet("10.77.1.1:1", "10.77.2.1:2"));
    apply(&mut hub, r#"{"do": "cut", "from": "a", "to": "b", "one_way": true}"#).unwrap();
    assert_eq!(hub.take(1_000 * MS), None);
    assert_eq!(send(&mut hub, A1, "10.77.1.1:1", "10.77.2.1:2"), None);
    assert!(send(&mut hub, B, "10.77.2.1:2", "10.77.1.1:1").is_some());
    assert_eq!((counts(&hub, 0, 1).cut, counts(&hub, 1, 0).cut), (2, 0));
    apply(&mut hub, r#"{"do": "mend", "from": "a", "to": "b", "one_way": true}"#).unwrap();
    assert!(send(&mut hub, A1, "10.77.1.1:1", "10.77.2.1:2").is_some());
}

#[test]
fn a_cut_of_a_region_from_all_leaves_the_others_and_itself_alone() {
    let mut hub = hub();
    apply(&mut hub, r#"{"do": "cut", "from": "a", "to": "*"}"#).unwrap();
    assert_eq!(send(&mut hub, A1, "10.77.1.1:1", "10.77.2.1:2"), None);
    assert_eq!(send(&mut hub, B, "10.77.2.1:2", "10.77.1.1:1"), None);
    assert_eq!(send(&mut hub, B, "10.77.2.1:2", "203.0.113.3:7400").unwrap().0, C2);
    assert_eq!(send(&mut hub, A1, "10.77.1.1:1", "10.77.1.2:2").unwrap().0, A2);
    apply(&mut hub, r#"{"do": "cut", "from": "*", "to": "*"}"#).unwrap();
    assert_eq!(send(&mut hub, B, "10.77.2.1:2", "203.0.113.3:7400"), None);
    assert_eq!(send(&mut hub, A1, "10.77.1.1:1", "10.77.1.2:2").unwrap().0, A2);
    apply(&mut hub, r#"{"do": "cut", "from": "a", "to": "a"}"#).unwrap();
    assert_eq!(send(&mut hub, A1, "10.77.1.1:1", "10.77.1.2:2"), None);
    apply(&mut hub, r#"{"do": "heal"}"#).unwrap();
    assert!(send(&mut hub, A1, "10.77.1.1:1", "10.77.1.2:2").is_some());
    assert!(send(&mut hub, A1, "10.77.1.1:1", "10.77.2.1:2").is_some());
}

#[test]
fn a_block_is_between_two_nodes_or_one_and_everyone() {
    let mut hub = hub();
    apply(&mut hub, r#"{"do": "block", "from": "10.77.1.1", "to": "10.77.2.1"}"#).unwrap();
    assert_eq!(send(&mut hub, A1, "10.77.1.1:1", "10.77.2.1:2"), None);
    assert_eq!(send(&mut hub, B, "10.77.2.1:2", "10.77.1.1:1"), None);
    assert!(send(&mut hub, A1, "10.77.1.1:1", "10.77.2.2:2").is_some());
    assert!(send(&mut hub, A2, "10.77.1.2:1", "10.77.2.1:2").is_some());
    assert_eq!(counts(&hub, 0, 1).blocked, 1);
    apply(&mut hub, r#"{"do": "unblock", "from": "10.77.2.1", "to": "10.77.1.1"}"#).unwrap();
    assert!(send(&mut hub, A1, "10.77.1.1:1", "10.77.2.1:2").is_some());

    let everyone = r#"{"do": "block", "from": null, "to": "10.77.1.2", "one_way": true}"#;
    hub.offer(0, B, &packet("10.77.2.1:2", "10.77.1.2:1"));
    apply(&mut hub, everyone).unwrap();
    assert_eq!(hub.take(1_000 * MS), None, "what is on its way is lost too");
    assert_eq!(send(&mut hub, A1, "10.77.1.1:1", "10.77.1.2:1"), None);
    assert!(send(&mut hub, A2, "10.77.1.2:1", "10.77.1.1:1").is_some());
}

#[test]
fn regions_with_equal_addresses_reach_each_other_by_their_public_ones() {
    let mut hub = hub();
    let (namespace, source, destination) =
        send(&mut hub, D, "192.168.0.1:500", "203.0.113.3:7400").unwrap();
    assert_eq!((namespace, source.as_str()), (C2, "203.0.113.4:500"));
    assert_eq!(destination, "192.168.0.2:7400");
    let (namespace, source, destination) =
        send(&mut hub, C2, "192.168.0.2:7400", "203.0.113.4:500").unwrap();
    assert_eq!((namespace, source.as_str()), (D, "203.0.113.3:7400"));
    assert_eq!(destination, "192.168.0.1:500");
    assert_eq!(send(&mut hub, A1, "10.77.1.1:7400", "203.0.113.4:500"), None);
    assert_eq!(counts(&hub, 0, 3).refused, 1);
    // From inside, the own public address leads back inside.
    let (namespace, source, _) = send(&mut hub, C1, "192.168.0.1:9", "203.0.113.3:7400").unwrap();
    assert_eq!((namespace, source.as_str()), (C2, "203.0.113.3:9"));
    assert_eq!(send(&mut hub, C1, "192.168.0.1:9", "192.168.0.2:1").unwrap().0, C2);
}

#[test]
fn a_node_behind_translation_can_be_blocked_by_its_own_address() {
    let mut hub = hub();
    let inside = address("192.168.0.2");
    hub.blocks.insert(HubBlock { from: None, to: Some(inside) });
    assert_eq!(send(&mut hub, A1, "10.77.1.1:1", "203.0.113.3:7400"), None);
    assert_eq!(counts(&hub, 0, 2).blocked, 1);
    assert!(send(&mut hub, C2, "192.168.0.2:7400", "10.77.1.1:1").is_some());
    hub.blocks = BTreeSet::from([HubBlock { from: Some(inside), to: None }]);
    assert_eq!(send(&mut hub, C2, "192.168.0.2:7400", "10.77.1.1:1"), None);
}

#[test]
fn a_rebind_closes_the_flows_of_that_region() {
    let mut hub = hub();
    let (_, source, _) = send(&mut hub, D, "192.168.0.1:500", "10.77.1.1:1").unwrap();
    assert!(send(&mut hub, A1, "10.77.1.1:1", &source).is_some());
    apply(&mut hub, r#"{"do": "rebind", "region": "d"}"#).unwrap();
    assert!(send(&mut hub, A1, "10.77.1.1:1", &source).is_none());
    assert_ne!(send(&mut hub, D, "192.168.0.1:500", "10.77.1.1:1").unwrap().1, source);
    let refused = apply(&mut hub, r#"{"do": "rebind", "region": "a"}"#);
    assert_eq!(refused, Err(ControlError::NoNat("a".to_owned())));
}

#[test]
fn what_is_on_its_way_has_a_limit() {
    let mut hub = hub();
    hub.topology.packets_max = 10;
    for _ in 0..15 {
        hub.offer(0, A1, &packet("10.77.1.1:1", "10.77.2.1:2"));
    }
    assert_eq!((hub.in_flight(), counts(&hub, 0, 1).overflowed), (10, 5));
    while hub.take(MS * 5).is_some() {}
    hub.topology.bytes_max = 100;
    for _ in 0..15 {
        hub.offer(MS * 5, A1, &packet("10.77.1.1:1", "10.77.2.1:2"));
    }
    assert_eq!((hub.in_flight(), counts(&hub, 0, 1).overflowed), (3, 17));
}

#[test]
fn commands_that_cannot_be_meant_change_nothing() {
    let mut hub = hub();
    let before = format!("{:?}", hub.links);
    let unknown = apply(&mut hub, r#"{"do": "cut", "from": "a", "to": "x"}"#).unwrap_err();
    assert_eq!(unknown.to_string(), "there is no region x; there are: a, b, c, d");
    let shape = r#"{"do": "shape", "from": "a", "to": "*", "set": {"loss_percent": 101}}"#;
    assert!(matches!(apply(&mut hub, shape), Err(ControlError::Shape(_))));
    assert_eq!(format!("{:?}", hub.links), before);
    for broken in [
        r#"{"do": "cut", "from": "a", "to": "b", "oneway": true}"#,
        r#"{"do": "shape", "from": "a", "to": "b", "set": {"los_percent": 1}}"#,
        r#"{"do": "dance"}"#,
    ] {
        assert!(serde_json::from_str::<ControlCommand>(broken).is_err(), "{broken}");
    }
}

#[test]
fn a_shape_is_for_the_ways_that_were_named_until_healing() {
    let mut hub = hub();
    let shape =
        r#"{"do": "shape", "from": "a", "to": "b", "one_way": true, "set": {"delay_ms": 7}}"#;
    apply(&mut hub, shape).unwrap();
    hub.offer(0, A1, &packet("10.77.1.1:1", "10.77.2.1:2"));
    assert_eq!(hub.next_due_ns(), Some(7 * MS));
    assert!(hub.take(7 * MS).is_some());
    hub.offer(0, B, &packet("10.77.2.1:2", "10.77.1.1:1"));
    assert_eq!(hub.next_due_ns(), Some(5 * MS));
    assert!(hub.take(5 * MS).is_some());
    apply(&mut hub, r#"{"do": "heal"}"#).unwrap();
    hub.offer(0, A1, &packet("10.77.1.1:1", "10.77.2.1:2"));
    assert_eq!(hub.next_due_ns(), Some(5 * MS));
}

#[test]
fn the_number_of_blocks_has_a_limit() {
    let mut hub = hub();
    let block = |n: u32| ControlCommand::Block {
        from: Some(Ipv4Addr::from(n)),
        to: Some(address("10.77.1.1")),
        one_way: true,
    };
    for n in 0..super::super::control::BLOCKS_MAX as u32 {
        hub.apply(&block(n)).unwrap();
    }
    assert_eq!(hub.apply(&block(u32::MAX)), Err(ControlError::Blocks));
    hub.apply(&block(0)).unwrap();
}

proptest! {
    #[test]
    fn no_packet_is_forgotten_and_none_is_early(
        seed: u64,
        loss in 0.0..50.0_f64, burst in 1.0..10.0_f64, duplicate in 0.0..50.0_f64,
        reorder in 0.0..50.0_f64, jitter_ms in 0.0..2.0_f64, rate_mbit in 0.0..10.0_f64,
        gaps_us in proptest::collection::vec(0..2_000_u64, 1..300),
        cut_at in 0..300_usize, mend_at in 0..300_usize,
    ) {
        let mut hub = hub();
        hub.rng = Rng::with_seed(seed);
        hub.topology.packets_max = 40;
        let set = ShapePatch {
            loss_percent: Some(loss), loss_burst: Some(burst),
            duplicate_percent: Some(duplicate), reorder_percent: Some(reorder),
            jitter_ms: Some(jitter_ms), queue_bytes_max: Some(500),
            rate_mbit: Some(if rate_mbit < 0.1 { 0.0 } else { rate_mbit }),
            ..ShapePatch::default()
        };
        let (a, b) = ("a".to_owned(), "b".to_owned());
        hub.apply(&ControlCommand::Shape { from: a.clone(), to: b.clone(), one_way: true, set }).unwrap();
        let (mut now_ns, mut taken) = (0, 0);
        for (n, gap_us) in gaps_us.iter().enumerate() {
            now_ns += gap_us * 1_000;
            let (from, to) = (a.clone(), b.clone());
            if n == cut_at {
                hub.apply(&ControlCommand::Cut { from, to, one_way: true }).unwrap();
            } else if n == mend_at {
                hub.apply(&ControlCommand::Mend { from, to, one_way: true }).unwrap();
            }
            while let Some(parcel) = hub.take(now_ns) {
                taken += 1;
                hub.recycle(parcel.bytes);
            }
            prop_assert!(hub.next_due_ns().is_none_or(|due_ns| due_ns > now_ns));
            hub.offer(now_ns, A1, &packet("10.77.1.1:1", "10.77.2.1:2"));
        }
        let sum = |counts: LinkCounts| counts.delivered + counts.lost + counts.queue_full
            + counts.cut + counts.blocked + counts.refused + counts.overflowed;
        let counts = counts(&hub, 0, 1);
        prop_assert_eq!(counts.offered, gaps_us.len() as u64);
        prop_assert_eq!(counts.delivered, taken);
        prop_assert_eq!(counts.offered + counts.duplicated, sum(counts) + hub.in_flight() as u64);
    }
}
