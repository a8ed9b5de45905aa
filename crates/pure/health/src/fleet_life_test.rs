//! Tests of a fleet by life: warm-up, drain, ramp, reserve.

use std::time::Duration;

use spillway_types::{Admission, SignFault, Standing};

use crate::test_fleet::{TestFleet, fleet, ms, spec};
use crate::{
    Action, Check, CheckError, DrainReason, MemberSpec, MemberState, Order, StandbyConfig,
};

const DRAIN: Order = Order::Drain { limit: Duration::from_secs(10), why: DrainReason::Operator };

fn order(test: &mut TestFleet, replica: &str, order: Order) {
    test.fleet.handle_order(test.now, &replica.into(), order).unwrap();
}

#[test]
fn a_new_one_is_warmed_up_and_then_gets_a_growing_share() {
    use MemberState::{Ramping, Serving, WarmingUp};
    let new = MemberSpec { needs_warm_up: true, slow_start: ms(30_000), ..spec("a") };
    let mut test = TestFleet::with(vec![new], false);
    test.check("a", Check::Active, 2);
    assert_eq!(test.actions.last(), Some(&Action::WarmUp("a".into())));
    assert_eq!((test.admission("a"), test.state("a")), (Admission::Starting, WarmingUp));
    test.wait(2_000);
    test.fleet.handle_warmed_up(test.now, &"a".into(), Ok(()));
    assert_eq!((test.admission("a"), test.permille("a")), (Admission::Open, 100));
    test.wait(15_000);
    assert!((526..=550).contains(&test.permille("a")), "{}", test.permille("a"));
    test.wait(15_000);
    assert_eq!(test.fleet.standing(&"a".into()), Standing::FULL);
    let states: Vec<_> = test.changes("a").into_iter().map(|(state, _)| state).collect();
    assert_eq!(states, [WarmingUp, Ramping, Serving]);
}

#[test]
fn a_warm_up_that_fails_or_never_ends_leads_to_a_trial() {
    let new = || MemberSpec { needs_warm_up: true, ..spec("a") };
    for is_told in [true, false] {
        let mut test = TestFleet::with(vec![new()], false);
        test.check("a", Check::Active, 2);
        if is_told {
            test.fleet.handle_warmed_up(test.now, &"a".into(), Err(CheckError::Timeout));
        } else {
            test.wait(60_000);
        }
        assert_eq!((test.state("a"), test.permille("a")), (MemberState::Trial, 50));
        test.answer("a").answer("a").answer("a");
        assert_eq!(test.fleet.standing(&"a".into()), Standing::FULL);
    }
}

#[test]
fn on_trial_it_gets_the_lesser_of_both_shares() {
    let mut new = MemberSpec { needs_warm_up: true, slow_start: ms(30_000), ..spec("a") };
    new.health.trial_permille = 500;
    let mut test = TestFleet::with(vec![new], false);
    test.check("a", Check::Active, 2);
    test.fleet.handle_warmed_up(test.now, &"a".into(), Err(CheckError::Timeout));
    assert_eq!((test.state("a"), test.permille("a")), (MemberState::Trial, 100));
    // The replica's first request takes long.
    test.set_live("a", 1, Some(0));
    test.wait(20_000);
    assert_eq!(test.permille("a"), 500);
}

#[test]
fn a_trial_without_any_share_would_never_end() {
    let mut new = MemberSpec { needs_warm_up: true, ..spec("a") };
    new.health.trial_permille = 0;
    let mut test = TestFleet::with(vec![new], false);
    test.check("a", Check::Active, 2);
    test.fleet.handle_warmed_up(test.now, &"a".into(), Err(CheckError::Timeout));
    assert_eq!(test.permille("a"), 1);
}

#[test]
fn one_that_is_down_and_says_that_it_is_loading_is_starting() {
    let mut test = fleet(&["a", "b"]);
    test.check_fails("a", Check::Active, 3).fail("a", 5, SignFault::Reset);
    assert_eq!(test.admission("a"), Admission::Down);
    test.check_as("a", Check::Active, 1, Err(CheckError::NotReady));
    assert_eq!(test.admission("a"), Admission::Starting);
}

#[test]
fn what_it_had_in_its_cache_before_it_left_is_forgotten() {
    let mut test = fleet(&["a"]);
    test.check("a", Check::Active, 2);
    (0..5).for_each(|_| _ = test.finish("a", 100, 50));
    assert_eq!(test.report_of("a").cached_share, Some(0.5));
    order(&mut test, "a", DRAIN);
    order(&mut test, "a", Order::Resume);
    assert_eq!(test.report_of("a").cached_share, None);
}

#[test]
fn one_that_says_it_is_loading_starts_anew() {
    let mut test = fleet(&["a", "b"]);
    test.check("a", Check::Active, 2).answer("a");
    test.check_as("a", Check::Active, 3, Err(CheckError::NotReady));
    assert_eq!(test.changes("a"), [(MemberState::Starting, "loading")]);
    test.check("a", Check::Active, 2);
    assert_eq!(test.admission("a"), Admission::Open);
}

#[test]
fn after_being_down_it_starts_cold() {
    let cold = MemberSpec { slow_start: ms(30_000), needs_warm_up: true, ..spec("a") };
    let mut test = TestFleet::of(vec![cold, spec("b")]);
    test.check_fails("a", Check::Active, 3).fail("a", 5, SignFault::Reset);
    assert_eq!(test.admission("a"), Admission::Down);
    (0..20).for_each(|_| _ = test.wait(1_000).check_fails("a", Check::Active, 1));
    assert_eq!(test.admission("a"), Admission::Down, "as long as its checks fail");
    test.check("a", Check::Active, 2);
    assert_eq!(test.admission("a"), Admission::Starting);
    assert_eq!(test.actions.last(), Some(&Action::WarmUp("a".into())));
    test.fleet.handle_warmed_up(test.now, &"a".into(), Ok(()));
    assert_eq!((test.admission("a"), test.permille("a")), (Admission::Open, 100));
}

#[test]
fn a_draining_one_gets_nothing_and_is_drained_when_nothing_is_left() {
    let mut test = fleet(&["a", "b"]);
    test.set_live("a", 2, None);
    order(&mut test, "a", DRAIN);
    test.wait(5_000);
    assert_eq!(
        (test.admission("a"), test.state("a")),
        (Admission::Draining, MemberState::Draining)
    );
    assert!(!test.actions.contains(&Action::Drained("a".into())));
    test.set_live("a", 0, None);
    test.tick().tick();
    let drained = test.actions.iter().filter(|action| **action == Action::Drained("a".into()));
    assert_eq!(drained.count(), 1);
    assert_eq!((test.admission("a"), test.state("a")), (Admission::Draining, MemberState::Drained));
    order(&mut test, "a", Order::Resume);
    assert_eq!(test.admission("a"), Admission::Starting);
    test.check("a", Check::Active, 2);
    assert_eq!(test.admission("a"), Admission::Open);
}

#[test]
fn a_preempted_one_is_drained_after_its_limit_at_the_latest() {
    let mut test = fleet(&["a", "b"]);
    test.set_live("a", 2, None);
    order(&mut test, "a", Order::Drain { limit: ms(3_000), why: DrainReason::Preemption });
    test.wait(2_900);
    assert_eq!(test.state("a"), MemberState::Draining);
    test.wait(100);
    let drained = [(MemberState::Draining, "preemption_notice"), (MemberState::Drained, "drained")];
    assert_eq!(test.changes("a"), drained);
}

#[test]
fn a_resumed_one_whose_checks_are_good_serves_at_once_from_the_start_of_its_ramp() {
    let mut test = TestFleet::of(vec![MemberSpec { slow_start: ms(30_000), ..spec("a") }]);
    test.check("a", Check::Active, 2);
    order(&mut test, "a", DRAIN);
    order(&mut test, "a", Order::Resume);
    assert_eq!((test.admission("a"), test.permille("a")), (Admission::Open, 100));
    let version = test.fleet.version();
    order(&mut test, "a", Order::Resume);
    assert_eq!(test.fleet.version(), version, "nothing to resume");
}

// The ramp and the cache.

#[test]
fn a_cold_cache_holds_the_ramp_back_against_warm_peers() {
    let ramped = || MemberSpec { slow_start: ms(30_000), ..spec("new") };
    let elsewhere = || MemberSpec { pool: "other".into(), ..spec("c") };
    let mut test = TestFleet::of(vec![spec("a"), spec("b"), elsewhere()]);
    let all = vec![spec("a"), spec("b"), elsewhere(), ramped()];
    test.fleet.reconcile(test.now, all, false);
    test.check("new", Check::Active, 2);
    for _ in 0..10 {
        test.finish("a", 100, 40).finish("b", 100, 80).finish("new", 100, 15);
        test.finish("c", 100, 100);
    }
    test.wait(20_000);
    assert!((300..=325).contains(&test.permille("new")), "{}", test.permille("new"));
    assert_eq!(test.report_of("new").cached_share, Some(0.15));
    (0..200).for_each(|_| _ = test.finish("new", 100, 60));
    test.tick();
    assert!(test.permille("new") >= 675, "a warm one is held back by time alone");
}

#[test]
fn replicas_that_are_not_full_or_not_open_are_no_measure() {
    let ramped = |name| MemberSpec { slow_start: ms(30_000), ..spec(name) };
    let mut test = TestFleet::with(vec![ramped("a"), ramped("b")], false);
    test.check("a", Check::Active, 2).check("b", Check::Active, 2);
    for _ in 0..10 {
        test.finish("a", 100, 90).finish("b", 100, 0);
    }
    test.wait(15_000);
    assert_eq!(test.permille("a"), test.permille("b"));
}

// The reserve.

#[test]
fn a_reserve_is_checked_and_warmed_up_but_gets_nothing() {
    let reserve = MemberSpec { standby: Some(StandbyConfig::default()), ..spec("s") };
    let mut test = TestFleet::with(vec![spec("a"), reserve], false);
    assert_eq!(test.admission("s"), Admission::Starting);
    test.check("a", Check::Active, 2).check("s", Check::Active, 2).wait(60_000);
    assert_eq!((test.admission("s"), test.state("s")), (Admission::Standby, MemberState::Standby));
    test.check_fails("s", Check::Active, 6);
    assert_eq!(test.admission("s"), Admission::Down);
}

#[test]
fn one_that_leaves_the_reserve_by_config_serves_and_one_that_joins_it_does_not() {
    let reserve = || MemberSpec { standby: Some(StandbyConfig::default()), ..spec("s") };
    let mut test = TestFleet::of(vec![spec("a"), reserve()]);
    test.fleet.reconcile(test.now, vec![spec("a"), spec("s")], false);
    assert_eq!(test.admission("s"), Admission::Open);
    test.fleet.reconcile(test.now, vec![spec("a"), reserve()], false);
    assert_eq!(test.admission("s"), Admission::Standby);
}

#[test]
fn a_pool_that_gets_a_reserve_anew_waits_as_long_as_any() {
    let reserve = || MemberSpec { standby: Some(StandbyConfig::default()), ..spec("s") };
    let mut test = TestFleet::of(vec![spec("a"), reserve()]);
    // One of the two regular replicas is missing all the time.
    let missing = || MemberSpec { needs_warm_up: true, ..spec("b") };
    test.fleet.reconcile(test.now, vec![spec("a"), missing(), reserve()], false);
    test.wait(4_000);
    test.fleet.reconcile(test.now, vec![spec("a"), missing()], false);
    test.wait(2_000);
    test.fleet.reconcile(test.now, vec![spec("a"), missing(), reserve()], true);
    test.wait(4_900);
    assert_eq!(test.admission("s"), Admission::Standby);
    test.wait(200);
    assert_eq!(test.admission("s"), Admission::Open);
}
