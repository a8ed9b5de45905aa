//! The format, and what strange bytes do.

use spillway_codec::{decode, encode, golden, payload_bytes};
use spillway_types::{ModelLoad, ShedState};

use super::*;
use crate::entry::{ClaimEntry, ReplicaEntry, ShareEntry};
use crate::own_load::{ModelShare, ReplicaLoad, ReplicaSignals};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");

fn datagram(body: Body) -> Datagram {
    let origin = NameId::of_node(&"eu".into(), &"a".into());
    Datagram { origin, incarnation: 1_800_000_000_000, seq: 70_000, heard: 41, body }
}

fn report<E>(entries: Vec<E>) -> Report<E> {
    Report { age_ms: 12, version: 300, digest: [1, 2, 3, 4], whole: true, more: false, entries }
}

fn region() -> Datagram {
    let load = ModelLoad {
        queued: 3.0,
        running: 250.0,
        capacity: Some(256.0),
        rate_per_s: Some(12.5),
        kv_use: Some(0.75),
        wait_ms: Some(480.0),
        replicas: 4,
        pending_tokens: Some(3_000.0),
        shed: ShedState::Reserved,
    };
    let entry = |name: &str, load| ModelEntry::new(NameId::of_model(&name.into()), load);
    let unknown = ModelLoad::default();
    datagram(Body::Region(report(vec![entry("llama", &load), entry("qwen", &unknown)])))
}

fn sibling() -> Datagram {
    let signals = ReplicaSignals {
        queued: Some(2.0),
        running: Some(31.0),
        kv_use: Some(0.5),
        age_ms: Some(400),
    };
    let load =
        ReplicaLoad { in_flight: 29, pending_tokens: 170, signals, ..ReplicaLoad::default() };
    let claim = ClaimEntry { usable: 30, proposed: 40, wanted: 55 };
    let id = NameId::of_replica(&"gpu-1".into());
    let replica = SiblingEntry::Replica(ReplicaEntry::new(id, &load, claim));
    let share = ModelShare { waiting: 300, rate_per_s: Some(0.5) };
    let share = SiblingEntry::Share(ShareEntry::new(NameId::of_model(&"llama".into()), &share));
    let echo = Echo::new(1_799_999_999_999, 17);
    datagram(Body::Sibling { echo, report: report(vec![replica, share]) })
}

fn question() -> Datagram {
    datagram(Body::Ask { incarnation: 1_800_000_000_001, have: 299 })
}

#[test]
fn the_bytes_are_those_on_file() {
    golden::check(FOLDER, "region", &region());
    golden::check(FOLDER, "sibling", &sibling());
    golden::check(FOLDER, "question", &question());
}

#[test]
fn a_line_of_usual_numbers_is_short() {
    let Body::Region(report) = region().body else { unreachable!() };
    assert_eq!(payload_bytes(&report.entries[0]).unwrap(), 15);
    let Body::Sibling { report, .. } = sibling().body else { unreachable!() };
    assert_eq!(payload_bytes(&report.entries[0]).unwrap(), 14);
}

#[test]
fn the_envelope_at_its_longest_is_no_longer_than_assumed() {
    let report = Report::<SiblingEntry> {
        age_ms: u32::MAX,
        version: u64::MAX,
        digest: [255; 4],
        whole: true,
        more: true,
        entries: Vec::new(),
    };
    let body = Body::Sibling { echo: Echo::new(u64::MAX, u64::MAX), report };
    let origin = NameId::of_node(&"eu".into(), &"a".into());
    let [incarnation, seq] = [u64::MAX; 2];
    let longest = encode(&Datagram { origin, incarnation, seq, heard: u32::MAX, body }).unwrap();
    // A count of up to 65,535 entries takes two bytes more than that of none.
    assert!(longest.len() + 2 <= ENVELOPE_BYTES_MAX, "{}", longest.len());
}

#[test]
fn any_bytes_are_read_or_refused() {
    let mut rng = fastrand::Rng::with_seed(4);
    let samples = [region(), sibling(), question()].map(|sample| encode(&sample).unwrap());
    let mut read = 0;
    for turn in 0..100_000 {
        let mut bytes = samples[turn % 3].to_vec();
        for _ in 0..rng.usize(0..3) {
            let at = rng.usize(0..bytes.len());
            bytes[at] = rng.u8(..);
        }
        bytes.truncate(rng.usize(bytes.len() - 2..=bytes.len()));
        read += usize::from(decode::<Datagram>(&bytes).is_ok());
    }
    assert!(read > 10_000);
}

#[test]
fn an_echo_belongs_to_one_incarnation() {
    let echo = Echo::new(1_800_000_000_000, 9);
    assert_eq!(echo.version_of(1_800_000_000_000), Some(9));
    assert_eq!(echo.version_of(1_800_000_000_001), None);
    assert_eq!(Echo::default().version_of(1_800_000_000_000), None);
}
