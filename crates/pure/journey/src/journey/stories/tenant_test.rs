//! Slots that tenants leave to each other.

use spillway_route::{KeptShare, TenantShares, TenantUse};
use spillway_types::ReplicaSlot;

use super::super::test_sight::{RESTING, START, Story, TestSight, check, ms, short};
use super::{OK, UNSENT, tell};
use crate::tenant_share::{first_kept_for, is_kept_away, rivals};
use crate::{Event, Position, Step, TenantKey, TenantSight};

/// Tenant that uses much.
pub(in crate::journey) const MUCH: u64 = 1;
/// Tenant that uses little.
const LITTLE: u64 = 2;

/// Share of the slots of four replicas with eight slots each: the last replica.
pub(in crate::journey) fn kept_share() -> KeptShare {
    let uses = [20, 4].map(|requests| TenantUse { requests, tokens: 0, requests_max: requests });
    let shares = TenantShares::judge(&uses.map(|used| (2, used)), 32, 4, 250);
    let share = shares.left_by(2, &uses[0]).unwrap();
    assert_eq!((share.whole(), share.touched()), (1, 1));
    share
}

/// Four replicas, so many of which are full.
fn four(full: usize) -> TestSight {
    let mut sight = TestSight::new(4);
    sight.replicas[..full].iter_mut().for_each(|replica| replica.in_flight = replica.limit);
    sight.is_roomy = false;
    sight
}

/// Four replicas, so many of which are full, for a tenant that leaves the last one to others.
pub(super) fn four_with_much(full: usize) -> TestSight {
    let mut sight = four(full);
    (sight.much, sight.share) = (vec![MUCH], Some(kept_share()));
    sight.tenant = Some(MUCH);
    sight
}

/// Four replicas, the last of which is kept for the request's tenant.
fn four_with_own(full: std::ops::Range<usize>) -> TestSight {
    let mut sight = four_with_much(0);
    sight.replicas[full].iter_mut().for_each(|replica| replica.in_flight = replica.limit);
    sight.tenant = Some(LITTLE);
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
        story.ticket = seed;
        check(&mut story, &[("ask 3", Some(OK)), ("end Reply", None)]);
    }
    tell(four_with_own(1..4), &[("ask 0", Some(OK)), ("end Reply", None)]);
    // A request that cannot wait is sent wherever there is a slot, as all others are.
    let asked = |ticket: u64| {
        let mut sight = four_with_own(0..0);
        sight.rules.queue_count_max = 0;
        let mut story = Story::of(sight);
        story.ticket = ticket;
        short(&story.next())
    };
    assert!((0..8).any(|ticket| asked(ticket) != "ask 3"));
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
    sight.tenant = Some(RESTING);
    sight.replicas[3].rests_until = Some(*START + ms(5_000));
    let Step::Ask { attempt, .. } = Story::of(sight).next() else { panic!("asked") };
    assert_ne!(attempt.slot, ReplicaSlot(3));
}

/// Checks how many of nine requests before this one could take its slot.
#[track_caller]
fn check_rivals(sight: &TestSight, position: Position, expected: u32) {
    assert_eq!(rivals(sight, 9, position), expected, "{sight:?}");
    assert_eq!(rivals(sight, 0, position), 0);
    assert_eq!(rivals(sight, 1, position), expected.min(1));
}

#[test]
fn requests_of_tenants_with_much_are_no_rivals_of_others() {
    let mut sight = four_with_own(0..4);
    sight.queued = vec![MUCH, LITTLE, MUCH, 3];
    check_rivals(&sight, Position::Outside, 2);
    check_rivals(&sight, Position::Queued, 1);
    // It waits for the same slots as those before it.
    sight.tenant = Some(MUCH);
    check_rivals(&sight, Position::Outside, 9);
    // Without a tenant it has no share of its own, and yet slots are kept from those with much.
    sight.tenant = None;
    check_rivals(&sight, Position::Outside, 2);
    // A request without a model has no queue to look into.
    sight.inquiry.model = None;
    check_rivals(&sight, Position::Outside, 9);
    sight.inquiry.model = Some("m".into());
    sight.share = None;
    check_rivals(&sight, Position::Outside, 9);
}

#[test]
fn requests_of_tenants_that_all_replicas_refuse_are_no_rivals() {
    let mut sight = four(4);
    sight.queued = vec![RESTING, LITTLE, RESTING];
    sight.tenant = Some(LITTLE);
    check_rivals(&sight, Position::Outside, 9);
    let until = Some(*START + ms(5_000));
    sight.replicas[..3].iter_mut().for_each(|replica| replica.rests_until = until);
    check_rivals(&sight, Position::Outside, 3);
    sight.replicas[3].rests_until = until;
    check_rivals(&sight, Position::Outside, 1);
    check_rivals(&sight, Position::Queued, 0);
}

#[test]
fn a_place_that_others_with_much_wait_for_in_vain_is_free() {
    let behind = |queued: Vec<u64>| {
        let mut sight = four_with_own(0..3);
        (sight.queued, sight.ahead, sight.is_quiet) = (queued, 40, false);
        short(&Story::of(sight).next())
    };
    assert_eq!(behind(vec![MUCH; 40]), "ask 3");
    assert_eq!(behind(vec![LITTLE; 40]), "wait");
}

#[test]
fn a_tenant_is_kept_away_that_leaves_places_or_that_all_replicas_refuse() {
    let mut sight = four_with_own(0..0);
    let is_away = |sight: &TestSight, tenant| is_kept_away(sight, TenantKey { tenant, class: 2 });
    assert_eq!([MUCH, LITTLE, RESTING].map(|tenant| is_away(&sight, tenant)), [true, false, false]);
    for (count, all) in [(1, 0), (2, 0), (3, 0), (4, 4)] {
        sight.replicas[count - 1].rests_until = Some(*START + ms(5_000));
        assert_eq!(is_away(&sight, RESTING), count == all, "{count} of them");
    }
    assert!(!is_away(&sight, LITTLE));
    assert!(!is_away(&TestSight::new(0), RESTING), "without replicas none has asked for that");
}

#[test]
fn places_are_kept_for_a_tenant_on_the_last_replicas_only() {
    let mut sight = four_with_own(0..0);
    assert_eq!(first_kept_for(&sight), Some(ReplicaSlot(3)));
    // A replica of which only a part is kept counts too.
    let uses = [20, 5].map(|requests| TenantUse { requests, tokens: 0, requests_max: requests });
    let part = TenantShares::judge(&uses.map(|used| (2, used)), 32, 4, 400).left_by(2, &uses[0]);
    assert_eq!(part.map(|share| (share.whole(), share.touched())), Some((1, 2)));
    sight.share = part;
    assert_eq!(first_kept_for(&sight), Some(ReplicaSlot(2)));
    sight.tenant = Some(MUCH);
    assert_eq!(first_kept_for(&sight), None);
    sight.tenant = None;
    assert_eq!((first_kept_for(&sight), sight.tenant()), (None, None));
}
