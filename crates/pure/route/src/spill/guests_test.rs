//! Admission of guests, by case.

use spillway_types::ModelLoad;

use super::*;
use crate::spill::test_cases::{busy, load};
use crate::spill::{RegionReport, Waiting};

fn at(running: f32) -> OwnRegion {
    OwnRegion {
        report: RegionReport { load: load(running), ..RegionReport::default() },
        slots: None,
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
    assert!(!welcome(&OwnRegion { slots: Some(0), ..at(5.0) }));
    assert!(welcome(&OwnRegion { slots: Some(1), ..at(5.0) }));
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
    // The limit is at 11 of 21.
    assert!(with(&own, Some(524)) && !with(&own, Some(523)));
}

#[test]
fn a_refusal_says_when_a_place_beside_the_reserve_comes_free() {
    // 61 requests with the guest, less 36, at 25 ms each.
    let full = OwnRegion { slots: None, ..busy() };
    let refused = |own: &OwnRegion, expected: f32, lacks: Option<GuestLack>| {
        let answer = admit_guest(own, &SpillTerms::default());
        assert_eq!(answer, Guest::Refused { wait_ms: expected, lack: lacks });
    };
    refused(&full, 625.0, Some(GuestLack::Reserve));
    let mut joined = full;
    joined.waiting.all = 4;
    refused(&joined, 725.0, None);
    // No request is predicted before it, so one turn.
    let drained = OwnRegion { weight_permille: 0, ..at(40.0) };
    let mut drained = drained;
    drained.report.ended = 30;
    refused(&drained, 25.0, None);
    refused(&OwnRegion { slots: Some(0), ..at(10.0) }, 25.0, Some(GuestLack::Pace));
}

/// Returns a region with four of ten slots taken by the last report, and two requests more since.
fn region_of(nodes: u32) -> OwnRegion {
    let load = ModelLoad { capacity: Some(10.0), running: 4.0, ..ModelLoad::default() };
    let report = RegionReport { load, age_ms: 0.0, sent: 3, ended: 1 };
    OwnRegion { report, slots: Some(6), nodes, ..busy() }
}

#[test]
fn guests_on_their_way_count_here_and_by_guess_at_the_region_s_other_nodes() {
    for (nodes, coming, expected) in [
        (1, 0, (3, 6, 7)),
        (1, 2, (5, 4, 7)),
        // Two were added since the report, and two are coming: as many at each other node.
        (3, 2, (5 + 2 * 4, 4, 21)),
        (0, 9, (12, 0, 7)),
        (2, u32::MAX, (u32::MAX, 0, 14)),
    ] {
        let mut own = region_of(nodes);
        own.add_guests(coming, 7);
        let found = (own.report.sent, own.slots.unwrap(), own.guests);
        assert_eq!(found, expected, "{nodes} nodes, {coming} coming");
    }
}

#[test]
fn those_that_come_at_once_leave_the_reserve_free_together() {
    let welcomed = |coming| {
        let mut own = OwnRegion { waiting: Waiting { all: 0, ..busy().waiting }, ..region_of(1) };
        own.add_guests(coming, 0);
        welcome(&own)
    };
    // Four run, two more were added since, and one slot of ten is reserved.
    assert_eq!([0, 1, 2, 3, 9].map(welcomed), [true, true, true, false, false]);
}

#[test]
fn a_region_without_a_queue_takes_guests_while_it_has_places() {
    let waiting = Waiting { ahead: 0, wait_ms: None, all: 0, has_room: false };
    let said = |running| shed_state(&OwnRegion { waiting, ..at(running) }, &SpillTerms::default());
    assert_eq!([said(5.0), said(36.0)], [ShedState::Open, ShedState::Shedding]);
}
