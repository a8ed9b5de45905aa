//! Places that tenants leave to each other.

use spillway_route::{KeptRoom, TenantRooms, TenantUse};
use spillway_types::ReplicaSlot;

use super::super::test_sight::{START, Story, TestSight, check, ms};
use super::{OK, UNSENT, tell};
use crate::{Event, KeptPlaces, Step};

/// Replicas with eight places each, of which the last one is kept from a tenant that has much.
fn kept_room() -> KeptRoom {
    let uses = [20, 4].map(|requests| TenantUse { requests, tokens: 0, requests_max: requests });
    let rooms = TenantRooms::judge(&uses.map(|used| (2, used)), 32, 4, 250);
    let room = rooms.left_by(2, &uses[0]).unwrap();
    assert_eq!((room.whole(), room.touched()), (1, 1));
    room
}

/// Four replicas, so many of which are full.
fn four(full: usize) -> TestSight {
    let mut sight = TestSight::new(4);
    sight.replicas[..full].iter_mut().for_each(|replica| replica.in_flight = replica.limit);
    sight.is_roomy = false;
    sight
}

/// The same for a tenant that leaves the last replica to others.
fn four_with_much(full: usize) -> TestSight {
    let mut sight = four(full);
    sight.kept_from = KeptPlaces::of(kept_room(), sight.groups.0.candidates());
    assert!(sight.kept_from.is_some());
    sight
}

/// Four replicas, the last of which is kept for the request's tenant.
fn four_with_own(full: std::ops::Range<usize>) -> TestSight {
    let mut sight = four(0);
    sight.replicas[full].iter_mut().for_each(|replica| replica.in_flight = replica.limit);
    sight.kept_for = KeptPlaces::first(&kept_room(), sight.groups.0.candidates());
    assert_eq!(sight.kept_for, Some(ReplicaSlot(3)));
    sight
}

#[test]
fn a_tenant_with_much_leaves_the_last_replica_to_others_and_waits() {
    tell(four(3), &[("ask 3", Some(OK)), ("end Reply", None)]);
    let mut story = tell(four_with_much(3), &[("wait", Some(Event::Paused))]);
    story.sight.replicas[1].in_flight = 0;
    check(&mut story, &[("ask 1", Some(OK)), ("end Reply", None)]);
}

#[test]
fn a_request_that_could_not_wait_instead_leaves_no_places() {
    let mut sight = four_with_much(3);
    sight.rules.queue_count_max = 0;
    tell(sight, &[("ask 3", None)]);
    let mut sight = four_with_much(3);
    sight.inquiry.model = None;
    tell(sight, &[("ask 3", None)]);
}

#[test]
fn places_kept_for_a_tenant_are_tried_before_all_others() {
    for seed in 0..20 {
        let mut story = Story::of(four_with_own(0..0));
        story.rng = fastrand::Rng::with_seed(seed);
        story.sight.tickets.set(seed);
        check(&mut story, &[("ask 3", Some(OK)), ("end Reply", None)]);
    }
    tell(four_with_own(1..4), &[("ask 0", Some(OK)), ("end Reply", None)]);
    tell(four_with_own(0..4), &[("wait", None)]);
}

#[test]
fn kept_places_are_no_reason_to_refuse_a_pinned_request() {
    let mut sight = four_with_much(3);
    sight.pinned = Some(ReplicaSlot(3));
    tell(sight, &[("ask 3", None)]);
    let mut sight = four_with_own(0..0);
    sight.pinned = Some(ReplicaSlot(0));
    tell(sight, &[("ask 0", None)]);
}

#[test]
fn a_retry_too_leaves_the_places_of_others() {
    let mut sight = four_with_much(2);
    sight.rules.wait_ms_max = 1_000;
    let mut story = Story::of(sight);
    check(&mut story, &[("ask 2", Some(UNSENT)), ("wait", Some(Event::Paused))]);
    story.now += ms(1_001);
    let Step::End(ending) = story.next() else { panic!("it has waited for as long as it may") };
    assert!(ending.is_error(), "{ending:?}");
}

#[test]
fn a_replica_that_rests_for_the_tenant_has_no_place_kept_for_it() {
    let mut sight = four_with_own(0..0);
    sight.tenant = Some(7);
    sight.replicas[3].rests_until = Some(*START + ms(5_000));
    let Step::Ask { attempt, .. } = Story::of(sight).next() else { panic!("asked") };
    assert_ne!(attempt.slot, ReplicaSlot(3));
}
