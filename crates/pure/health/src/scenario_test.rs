//! Whole scenarios, from a fault to its end.

use std::time::Duration;

use spillway_types::{Admission, LoadReport, SignFault};

use crate::test_fleet::{TestFleet, ms, spec};
use crate::test_story::{Server, Story, WORKS};
use crate::{Action, Check, DrainReason, MemberSpec, MemberState, Order, StandbyConfig};

#[test]
fn a_dead_replica_is_out_within_a_second_at_50_requests_per_second() {
    for seed in 0..20 {
        let mut story = Story::serving(4, 50);
        story.rng = fastrand::Rng::with_seed(seed);
        story.set("r1", Server::Dead);
        let out_ms = story.run_until(1_000, |test| test.admission("r1") != Admission::Open);
        assert!(out_ms.is_some(), "seed {seed}");
        assert_eq!(story.failed, 3, "seed {seed}");
    }
}

#[test]
fn a_dead_replica_comes_to_be_down_and_back_with_a_small_share() {
    let mut story = Story::of(
        TestFleet::of(
            (0..4)
                .map(|n| MemberSpec { slow_start: ms(30_000), ..spec(&format!("r{n}")) })
                .collect(),
        ),
        50,
    );
    story.run(5_000);
    story.set("r1", Server::Dead);
    story.run(10_000);
    assert_eq!(story.test.admission("r1"), Admission::Down);
    story.forget();
    story.run(60_000);
    assert_eq!(story.sent_to("r1"), 0, "it gets nothing while it is down");
    story.set("r1", WORKS);
    let back_ms = story.run_until(5_000, |test| test.admission("r1") == Admission::Open);
    assert!((1_000..=2_000).contains(&back_ms.unwrap()), "{back_ms:?}");
    story.forget();
    story.run(3_000);
    let share = f64::from(story.sent_to("r1")) / 150.0;
    assert!(share < 0.12, "a quarter is its full share: {share}");
    story.run(40_000);
    assert_eq!(story.test.permille("r1"), 1000);
    assert_eq!(story.failed, 0);
}

#[test]
fn a_hung_replica_is_left_out_for_its_silence_which_one_check_contradicts() {
    let deep = |name: String| {
        let mut spec = spec(&name);
        spec.checks.deep = Some(ms(1000));
        spec
    };
    // Deep checks get no answer first here. The silence of requests is the same signal, and the
    // active check, which only connects, contradicts it.
    let mut story = Story::of(TestFleet::of((0..3).map(|n| deep(format!("r{n}"))).collect()), 50);
    story.run(5_000);
    story.test.actions.clear();
    story.set("r0", Server::Hung { since: story.test.now });
    story.run(40_000);
    let changes = story.test.changes("r0");
    assert_eq!(changes, [(MemberState::Ejected, "deep_check_failed")]);
    let mut story = Story::serving(3, 50);
    story.set("r0", Server::Hung { since: story.test.now });
    let out_ms = story.run_until(31_000, |test| test.admission("r0") == Admission::Ejected);
    assert!((30_000..=30_200).contains(&out_ms.unwrap()), "{out_ms:?}");
    story.set("r0", WORKS);
    story.run(40_000);
    assert_eq!(story.test.state("r0"), MemberState::Serving);
}

#[test]
fn a_flapping_replica_is_left_out_for_longer_each_time() {
    let mut story = Story::serving(4, 100);
    let mut outs = Vec::new();
    for _ in 0..6 {
        story.set("r2", Server::Broken);
        story.run_until(5_000, |test| test.admission("r2") != Admission::Open).unwrap();
        story.set("r2", WORKS);
        outs.push(story.run_until(90_000, |test| test.admission("r2") == Admission::Open).unwrap());
        story.run(4_000);
        assert_eq!(story.test.state("r2"), MemberState::Serving, "its trial is short");
    }
    let bases = [5_000, 10_000, 20_000, 40_000, 60_000, 60_000];
    for (out, base) in outs.iter().zip(bases) {
        assert!((base..=base + base / 10 + 100).contains(out), "{outs:?}");
    }
    story.run(125_000);
    story.set("r2", Server::Broken);
    story.run_until(5_000, |test| test.admission("r2") != Admission::Open).unwrap();
    let out = story.run_until(90_000, |test| test.admission("r2") == Admission::Open).unwrap();
    assert!(out <= 5_600, "a quiet time makes up for it: {out}");
}

#[test]
fn with_all_dead_requests_still_go_somewhere_and_all_come_back() {
    let mut story = Story::serving(4, 50);
    for n in 0..4 {
        story.set(&format!("r{n}"), Server::Dead);
    }
    story.run(20_000);
    for n in 0..4 {
        assert_eq!(story.test.admission(&format!("r{n}")), Admission::Down);
    }
    assert_eq!(story.sent.values().sum::<u32>(), 1_000, "none is refused for looking bad");
    let counts: Vec<u32> = story.sent.values().copied().collect();
    assert!(counts.iter().all(|count| *count > 150), "and all are asked: {counts:?}");
    for n in 0..4 {
        story.set(&format!("r{n}"), WORKS);
    }
    story.run(5_000);
    story.forget();
    story.run(60_000);
    assert_eq!(story.failed, 0);
    assert_eq!(story.test.fleet.standing(&"r3".into()), spillway_types::Standing::FULL);
}

#[test]
fn faults_of_all_replicas_at_once_leave_half_of_them_open() {
    let mut story = Story::serving(10, 200);
    for n in 0..10 {
        story.set(&format!("r{n}"), Server::Broken);
    }
    for _ in 0..100 {
        story.step();
        let ejected = (0..10)
            .filter(|n| story.test.admission(&format!("r{n}")) == Admission::Ejected)
            .count();
        assert!(ejected <= 5);
    }
    let open =
        (0..10).filter(|n| story.test.admission(&format!("r{n}")) == Admission::Open).count();
    assert_eq!(open, 5);
}

#[test]
fn ten_cold_replicas_at_once_come_to_their_share_together_and_the_old_ones_keep_most() {
    let cold = |name: String| MemberSpec { slow_start: ms(30_000), ..spec(&name) };
    let old = || (0..4).map(|n| cold(format!("old{n}")));
    let mut story = Story::of(TestFleet::of(old().collect()), 200);
    story.run(5_000);
    let new = (0..10).map(|n| cold(format!("new{n}")));
    story.test.fleet.reconcile(story.test.now, old().chain(new).collect(), false);
    (0..10).for_each(|n| story.set(&format!("new{n}"), WORKS));
    story.run_until(5_000, |test| test.admission("new9") == Admission::Open).unwrap();
    story.forget();
    story.run(2_000);
    let to_new: u32 = (0..10).map(|n| story.sent_to(&format!("new{n}"))).sum();
    let share = f64::from(to_new) / 400.0;
    assert!((0.15..0.35).contains(&share), "full shares would be 0.71: {share}");
    story.run(13_000);
    let permilles: Vec<u16> = (0..10).map(|n| story.test.permille(&format!("new{n}"))).collect();
    assert!(permilles.iter().all(|permille| *permille == permilles[0]), "{permilles:?}");
    story.run(30_000);
    assert_eq!(story.test.permille("new4"), 1000);
}

#[test]
fn a_drained_replica_gets_nothing_more_and_is_reported_once() {
    let mut story = Story::serving(3, 50);
    let limit = Duration::from_secs(30);
    let drain = Order::Drain { limit, why: DrainReason::Operator };
    story.test.fleet.handle_order(story.test.now, &"r0".into(), drain).unwrap();
    for n in 1..3 {
        story.set(&format!("r{n}"), Server::Dead);
    }
    story.forget();
    story.run(20_000);
    assert_eq!(story.sent_to("r0"), 0, "not even as a last resort");
    let drained = story.test.actions.iter().filter(|a| **a == Action::Drained("r0".into()));
    assert_eq!(drained.count(), 1);
}

fn queue(queued: f32) -> LoadReport {
    LoadReport { queued: Some(queued), ..LoadReport::default() }
}

/// Makes two regular replicas and a reserve of two.
fn with_reserve() -> TestFleet {
    let reserve = |name| MemberSpec {
        standby: Some(StandbyConfig::default()),
        slow_start: ms(10_000),
        ..spec(name)
    };
    TestFleet::of(vec![spec("a"), spec("b"), reserve("s1"), reserve("s2")])
}

/// Lets time pass while all replicas report that queue.
fn wait_with_queue(test: &mut TestFleet, seconds: u64, queued: f32) {
    for _ in 0..seconds {
        for name in ["a", "b", "s1", "s2"] {
            test.report(name, queue(queued)).check(name, Check::Active, 1);
        }
        test.wait(1_000);
    }
}

fn reserve_of(test: &TestFleet) -> [Admission; 2] {
    ["s1", "s2"].map(|name| test.admission(name))
}

#[test]
fn a_reserve_comes_in_one_by_one_under_load_and_goes_back_one_by_one() {
    use Admission::{Draining, Open, Standby};
    let mut test = with_reserve();
    wait_with_queue(&mut test, 4, 20.0);
    assert_eq!(reserve_of(&test), [Standby, Standby]);
    wait_with_queue(&mut test, 2, 20.0);
    assert_eq!(reserve_of(&test), [Open, Standby]);
    assert!(test.permille("s1") < 200, "it comes in cold");
    wait_with_queue(&mut test, 6, 20.0);
    assert_eq!(reserve_of(&test), [Open, Open]);
    wait_with_queue(&mut test, 120, 5.0);
    assert_eq!(reserve_of(&test), [Open, Open], "not below half");
    test.set_live("s2", 1, None);
    wait_with_queue(&mut test, 61, 1.0);
    assert_eq!(reserve_of(&test), [Open, Draining], "the last in goes first, and finishes first");
    test.set_live("s2", 0, None);
    test.wait(100);
    assert_eq!(reserve_of(&test), [Open, Standby]);
    wait_with_queue(&mut test, 61, 1.0);
    assert_eq!(reserve_of(&test), [Standby, Standby]);
}

#[test]
fn one_that_is_about_to_go_back_comes_in_first_and_warm() {
    use Admission::{Draining, Open, Standby};
    let mut test = with_reserve();
    test.busy("s1", Some(10_000));
    wait_with_queue(&mut test, 7, 20.0);
    wait_with_queue(&mut test, 20, 5.0);
    test.set_live("s2", 1, None);
    wait_with_queue(&mut test, 61, 1.0);
    assert_eq!(reserve_of(&test), [Standby, Draining]);
    wait_with_queue(&mut test, 6, 20.0);
    assert_eq!(reserve_of(&test), [Standby, Open]);
    assert_eq!(test.permille("s2"), 1000);
}

#[test]
fn a_reserve_takes_the_place_of_one_that_is_down_until_it_is_back() {
    use Admission::{Open, Standby};
    let mut test = with_reserve();
    for _ in 0..12 {
        test.check_fails("a", Check::Active, 1).check("b", Check::Active, 1);
        test.check("s1", Check::Active, 1).check("s2", Check::Active, 1).wait(1_000);
    }
    assert_eq!((test.admission("a"), reserve_of(&test)), (Admission::Down, [Open, Standby]));
    wait_with_queue(&mut test, 70, 0.0);
    assert_eq!((test.admission("a"), reserve_of(&test)), (Open, [Standby, Standby]));
}

#[test]
fn a_reserve_that_is_not_well_is_passed_over() {
    let mut test = with_reserve();
    test.busy("s1", Some(30_000));
    wait_with_queue(&mut test, 6, 20.0);
    assert_eq!(reserve_of(&test), [Admission::Busy, Admission::Open]);
}

#[test]
fn a_slow_pool_brings_its_reserve_in() {
    let slow = StandbyConfig { queue: None, p99_ms: Some(500.0), ..StandbyConfig::default() };
    let reserve = MemberSpec { standby: Some(slow), ..spec("s") };
    let mut story = Story::of(TestFleet::of(vec![spec("a"), spec("b"), reserve]), 50);
    story.run(10_000);
    assert_eq!(story.test.admission("s"), Admission::Standby);
    story.set("a", Server::Works { after_ms: 600 });
    let in_ms = story.run_until(20_000, |test| test.admission("s") == Admission::Open);
    assert!((5_000..6_000).contains(&in_ms.unwrap()), "{in_ms:?}");
}

#[test]
fn a_few_slow_answers_make_no_percentile() {
    let slow = StandbyConfig { queue: None, p99_ms: Some(500.0), ..StandbyConfig::default() };
    let reserve = MemberSpec { standby: Some(slow), ..spec("s") };
    let mut story = Story::of(TestFleet::of(vec![spec("a"), reserve]), 1);
    story.set("a", Server::Works { after_ms: 600 });
    story.run(30_000);
    assert_eq!(story.test.admission("s"), Admission::Standby);
}

#[test]
fn a_pool_whose_reserve_is_ejected_gets_another_one() {
    let mut test = with_reserve();
    wait_with_queue(&mut test, 6, 20.0);
    test.fail("s1", 3, SignFault::Connect);
    assert_eq!(reserve_of(&test), [Admission::Ejected, Admission::Standby]);
    wait_with_queue(&mut test, 5, 20.0);
    assert_eq!(reserve_of(&test)[1], Admission::Open);
}
