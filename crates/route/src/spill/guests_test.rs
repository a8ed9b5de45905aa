//! Who is welcome, by case.

use spillway_types::ModelLoad;

use super::*;
use crate::spill::test_cases::{busy, load};
use crate::spill::{RegionReport, Waiting};

fn at(running: f32) -> OwnRegion {
    OwnRegion {
        report: RegionReport { load: load(running), ..RegionReport::default() },
        places: None,
        ..busy()
    }
}

fn welcome(own: &OwnRegion) -> bool {
    admit_guest(own, &SpillTerms::default()) == Guest::Welcome
}

#[test]
fn the_reserve_is_a_tenth_and_one_place_of_several() {
    let of = |capacity, reserve_permille| {
        let terms = SpillTerms { reserve_permille, ..SpillTerms::default() };
        reserve(capacity, &terms)
    };
    let tenths = [0.0, 1.0, 2.0, 10.0, 11.0, 40.0].map(|capacity| of(Some(capacity), 100));
    assert_eq!(tenths, [0.0, 0.0, 1.0, 1.0, 1.0, 4.0]);
    assert_eq!(of(None, 100), 0.0);
    assert_eq!([of(Some(2.0), 0), of(Some(40.0), 0), of(Some(40.0), 1_000)], [0.0, 0.0, 40.0]);
}

#[test]
fn guests_are_welcome_up_to_the_reserve() {
    assert!(welcome(&at(35.0)));
    assert!(!welcome(&at(36.0)));
    let mut own = at(33.0);
    own.report.sent = 3;
    assert!(!welcome(&own));
    own.report.ended = 1;
    assert!(welcome(&own));
}

#[test]
fn one_local_that_waits_is_enough_to_refuse() {
    let mut here = at(5.0);
    here.waiting = Waiting { ahead: 0, wait_ms: None, all: 1, has_room: true };
    assert!(!welcome(&here));
    let mut elsewhere = at(5.0);
    elsewhere.report.load.queued = 1.0;
    assert!(!welcome(&elsewhere));
}

#[test]
fn nobody_is_welcome_where_nothing_serves_or_everything_leaves() {
    assert!(!welcome(&OwnRegion { replicas: 0, ..at(5.0) }));
    assert!(!welcome(&OwnRegion { weight_permille: 0, ..at(5.0) }));
    assert!(!welcome(&OwnRegion { places: Some(0), ..at(5.0) }));
    assert!(welcome(&OwnRegion { places: Some(1), ..at(5.0) }));
}

#[test]
fn without_a_capacity_the_queue_decides() {
    let mut own = at(500.0);
    own.report.load.capacity = None;
    assert!(welcome(&own));
    own.report.load.wait_ms = Some(20.0);
    assert!(!welcome(&own));
    own.report.load = ModelLoad { wait_ms: None, queued: 1.0, ..own.report.load };
    assert!(!welcome(&own));
}

#[test]
fn a_cap_counts_guests_only_where_it_is_set() {
    let mut own = OwnRegion { guests: 10, ..at(20.0) };
    let with = |own: &OwnRegion, guests_max_permille| {
        let terms = SpillTerms { guests_max_permille, ..SpillTerms::default() };
        admit_guest(own, &terms) == Guest::Welcome
    };
    assert!(with(&own, None) && with(&own, Some(275)));
    assert!(!with(&own, Some(274)) && !with(&own, Some(0)));
    own.report.load.capacity = None;
    // 11 of 21.
    assert!(with(&own, Some(524)) && !with(&own, Some(523)));
}

#[test]
fn a_refusal_says_when_a_place_beside_the_reserve_comes_free() {
    // 61 with the guest, less 36, at 25 ms each.
    let full = OwnRegion { places: None, ..busy() };
    assert_eq!(admit_guest(&full, &SpillTerms::default()), Guest::Refused { wait_ms: 625.0 });
    let mut joined = full;
    joined.waiting.all = 4;
    assert_eq!(admit_guest(&joined, &SpillTerms::default()), Guest::Refused { wait_ms: 725.0 });
    // Nothing is predicted to be in its way, so one turn.
    let drained = OwnRegion { weight_permille: 0, ..at(40.0) };
    let mut drained = drained;
    drained.report.ended = 30;
    assert_eq!(admit_guest(&drained, &SpillTerms::default()), Guest::Refused { wait_ms: 25.0 });
}
