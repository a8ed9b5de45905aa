//! Tests of a fleet's reaction to its inputs, one behaviour at a time: members, health,
//! backpressure, circuit breakers.

use spillway_types::{Admission, LoadReport, ModelStanding, Sign, SignFault, Standing};

use crate::test_fleet::{TestFleet, answered, fleet, ms, spec, start};
use crate::{
    Action, Check, CheckError, Fleet, FleetConfig, MemberSpec, MemberState, Order,
    UnknownReplicaError, Verdict, Vote,
};

// Members.

#[test]
fn at_the_start_all_serve_and_later_ones_show_first_that_they_are_ready() {
    let mut test = fleet(&["a"]);
    assert_eq!(test.fleet.standing(&"a".into()), Standing::FULL);
    test.fleet.reconcile(test.now, vec![spec("a"), spec("b")], false);
    assert_eq!(test.admission("a"), Admission::Open);
    assert_eq!(test.admission("b"), Admission::Starting);
    test.check("b", Check::Active, 1);
    assert_eq!(test.admission("b"), Admission::Starting);
    test.check("b", Check::Active, 1);
    assert_eq!(test.admission("b"), Admission::Open);
    assert_eq!(test.changes("b"), [(MemberState::Serving, "ready")]);
}

#[test]
fn one_without_checks_is_ready_at_once_and_one_that_answers_wrongly_is_not() {
    let mut unchecked = spec("a");
    unchecked.checks.active = None;
    let test = TestFleet::with(vec![unchecked], false);
    assert_eq!(test.admission("a"), Admission::Open);
    let mut deep = spec("b");
    deep.checks.deep = Some(ms(1000));
    let mut test = TestFleet::with(vec![deep], false);
    test.check_fails("b", Check::Deep, 3).check("b", Check::Active, 2);
    assert_eq!(test.admission("b"), Admission::Starting);
    test.check("b", Check::Deep, 2);
    assert_eq!(test.admission("b"), Admission::Open);
}

#[test]
fn what_is_known_of_those_that_stay_is_kept_and_those_that_leave_are_forgotten() {
    let mut test = fleet(&["a", "b", "c"]);
    test.fail("a", 3, SignFault::Connect).fail("b", 1, SignFault::Connect);
    let changed = MemberSpec { slow_start: ms(1), ..spec("a") };
    test.fleet.reconcile(test.now, vec![changed, spec("c")], false);
    assert_eq!(test.admission("a"), Admission::Ejected);
    assert!(!test.fleet.contains(&"b".into()));
    assert_eq!(test.fleet.standing(&"b".into()), Standing::FULL, "nothing is known of it");
    test.fleet.reconcile(test.now, vec![spec("b"), spec("c")], false);
    test.fleet.reconcile(test.now, vec![spec("a"), spec("b"), spec("c")], false);
    assert_eq!(test.admission("a"), Admission::Starting, "another one of the same name");
}

#[test]
fn inputs_for_replicas_that_are_not_there_change_nothing() {
    let mut test = fleet(&["a"]);
    let version = test.fleet.version();
    test.fail("x", 50, SignFault::Connect)
        .check_fails("x", Check::Active, 50)
        .busy("x", Some(1000));
    test.report("x", LoadReport::default());
    test.fleet.handle_warmed_up(test.now, &"x".into(), Ok(()));
    let unknown = test.fleet.handle_order(test.now, &"x".into(), Order::Resume);
    assert_eq!(unknown, Err(UnknownReplicaError("x".into())));
    assert_eq!(unknown.unwrap_err().to_string(), "there is no replica `x`");
    assert_eq!((test.fleet.version(), test.actions.len()), (version, 0));
}

#[test]
fn the_version_changes_when_members_come_and_go_and_not_when_they_stay() {
    let mut test = fleet(&["a"]);
    let mut reconcile = |names: &[&str]| {
        let before = test.fleet.version();
        test.fleet.reconcile(test.now, names.iter().copied().map(spec).collect(), true);
        test.fleet.version() != before
    };
    assert!(!reconcile(&["a"]));
    assert!(reconcile(&["a", "b"]));
    assert!(reconcile(&["b"]));
    assert!(!reconcile(&["b", "b"]));
}

// Signals that speak against a replica.

#[test]
fn active_checks_alone_make_it_suspect_while_traffic_is_good() {
    let mut test = fleet(&["a", "b"]);
    test.answer("a").check_fails("a", Check::Active, 50);
    assert_eq!(test.admission("a"), Admission::Open);
    let report = test.report_of("a");
    assert_eq!((report.verdict, report.votes.active), (Verdict::Suspect, Vote::BadForLong));
    assert_eq!(report.votes.passive, Vote::Good);
}

#[test]
fn active_checks_alone_bring_an_idle_replica_down_after_twice_their_threshold() {
    let mut test = fleet(&["a", "b"]);
    test.check_fails("a", Check::Active, 5);
    assert_eq!(test.admission("a"), Admission::Open);
    test.check_fails("a", Check::Active, 1);
    assert_eq!(test.admission("a"), Admission::Down);
    assert_eq!(test.changes("a"), [(MemberState::Down, "signals_agree")]);
}

#[test]
fn two_failed_connections_are_enough_while_the_newest_check_failed_too() {
    for (failed_checks, expected) in [(0, Admission::Open), (1, Admission::Ejected)] {
        let mut test = fleet(&["a", "b"]);
        test.check_fails("a", Check::Active, failed_checks).fail("a", 2, SignFault::Connect);
        assert_eq!(test.admission("a"), expected);
    }
}

#[test]
fn one_that_is_not_ready_yet_is_not_called_down() {
    let mut new = spec("a");
    new.checks.scrape = Some(ms(1000));
    let mut test = TestFleet::with(vec![new], false);
    test.check_fails("a", Check::Active, 9).check_fails("a", Check::Scrape, 9).wait(1_000);
    assert_eq!(test.admission("a"), Admission::Starting);
    assert_eq!(test.changes("a"), []);
}

#[test]
fn every_pair_of_signals_brings_it_down() {
    let mut with_all = spec("a");
    with_all.checks.deep = Some(ms(1000));
    with_all.checks.scrape = Some(ms(1000));
    type Fail = fn(&mut TestFleet);
    let signals: [Fail; 4] = [
        |test| _ = test.check_fails("a", Check::Active, 3),
        |test| _ = test.check_fails("a", Check::Deep, 3),
        |test| _ = test.check_fails("a", Check::Scrape, 3),
        |test| _ = test.fail("a", 5, SignFault::ServerError),
    ];
    for first in 0..4 {
        for second in 0..4 {
            let mut test = TestFleet::of(vec![with_all.clone(), spec("b"), spec("c")]);
            // Good checks first, so that no lone signal is enough.
            for check in [Check::Active, Check::Deep, Check::Scrape] {
                test.check("a", check, 2);
            }
            test.answer("a");
            signals[first](&mut test);
            signals[second](&mut test);
            let is_down = test.admission("a") == Admission::Down;
            assert_eq!(is_down, first != second, "{first} and {second}");
        }
    }
}

#[test]
fn a_wrong_answer_ejects_while_it_lasts_however_good_all_else_is() {
    let mut deep = spec("a");
    deep.checks.deep = Some(ms(1000));
    let mut test = TestFleet::of(vec![deep]);
    test.check("a", Check::Active, 2).answer("a");
    test.check_as("a", Check::Deep, 3, Err(CheckError::WrongAnswer));
    assert_eq!(test.admission("a"), Admission::Ejected, "even the last one");
    test.wait(10_000).check("a", Check::Deep, 2);
    assert_eq!((test.admission("a"), test.permille("a")), (Admission::Open, 50));
    test.answer("a").answer("a").answer("a");
    assert_eq!(test.permille("a"), 1000);
    let whys: Vec<_> = test.changes("a").into_iter().map(|(_, why)| why).collect();
    assert_eq!(whys, ["deep_check_failed", "ejection_over", "trial_passed"]);
}

#[test]
fn full_memory_in_reports_ejects() {
    let mut limited = spec("a");
    limited.health.gpu_memory_use_max = Some(0.95);
    let mut test = TestFleet::of(vec![limited, spec("b")]);
    let full = LoadReport { gpu_memory_use: Some(0.99), ..LoadReport::default() };
    test.check("a", Check::Active, 2).report("a", full).report("a", full);
    assert_eq!(test.admission("a"), Admission::Open);
    test.report("a", full);
    assert_eq!(test.admission("a"), Admission::Ejected);
}

#[test]
fn a_stall_ejects_and_lasts_as_long_as_the_silence() {
    let mut test = fleet(&["a", "b"]);
    test.check("a", Check::Active, 2);
    test.set_live("a", 3, Some(29_999));
    test.tick();
    assert_eq!(test.admission("a"), Admission::Open);
    test.set_live("a", 3, Some(30_000));
    test.tick();
    assert_eq!(test.changes("a"), [(MemberState::Ejected, "silent_stall")]);
    test.wait(10_000);
    assert_eq!(test.admission("a"), Admission::Ejected);
    test.set_live("a", 3, Some(0));
    test.tick();
    assert_eq!(test.state("a"), MemberState::Trial);
}

/// Either signal alone proves little.
#[test]
fn silence_far_beyond_what_is_usual_ejects_at_once_if_a_check_has_failed_as_well() {
    let mut test = fleet(&["a", "b"]);
    test.check("a", Check::Active, 2);
    (0..20).for_each(|_| _ = test.answer_after("a", ms(500)));
    test.set_live("a", 3, Some(2_000));
    test.tick();
    assert_eq!(test.admission("a"), Admission::Open, "no check says so");
    test.check_fails("a", Check::Active, 1);
    test.set_live("a", 3, Some(1_400));
    test.tick();
    assert_eq!(test.admission("a"), Admission::Open, "it may be a slow answer");
    test.set_live("a", 3, Some(1_600));
    test.tick();
    assert_eq!(test.changes("a"), [(MemberState::Ejected, "silent_stall")]);
    // The usual time is long forgotten, and the replica is as silent as before.
    test.wait(15_000);
    assert_eq!(test.admission("a"), Admission::Ejected);
    test.check("a", Check::Active, 1).tick();
    assert_eq!(test.state("a"), MemberState::Trial, "it answers its checks");
}

#[test]
fn where_little_is_known_of_its_answers_a_failed_check_makes_no_silence_too_long() {
    let mut test = fleet(&["a", "b"]);
    test.check("a", Check::Active, 2);
    (0..19).for_each(|_| _ = test.answer_after("a", ms(500)));
    test.check_fails("a", Check::Active, 1);
    test.set_live("a", 3, Some(29_000));
    test.tick();
    assert_eq!(test.admission("a"), Admission::Open);
    // With quick answers and a failed check, a silence below a second is not enough either.
    (0..20).for_each(|_| _ = test.answer_after("b", ms(1)));
    test.check_fails("b", Check::Active, 1);
    test.set_live("b", 3, Some(900));
    test.tick();
    assert_eq!(test.admission("b"), Admission::Open);
}

#[test]
fn traffic_ejects_no_more_than_its_share_and_spares_the_rest() {
    let mut test = fleet(&["a", "b", "c", "d"]);
    for name in ["a", "b", "c", "d"] {
        test.fail(name, 5, SignFault::ServerError);
    }
    let of = |test: &TestFleet| ["a", "b", "c", "d"].map(|name| test.admission(name));
    use Admission::{Ejected, Open};
    assert_eq!(of(&test), [Ejected, Ejected, Open, Open]);
    assert!(test.report_of("c").is_spared && !test.report_of("a").is_spared);
    test.wait(5_600).answer("a").answer("a").answer("a");
    assert_eq!(test.state("a"), MemberState::Serving);
    test.tick();
    assert_eq!(test.admission("c"), Ejected, "room for one that was spared");
    assert!(!test.report_of("c").is_spared && test.report_of("d").is_spared);
}

#[test]
fn the_only_replica_of_a_pool_is_never_ejected_by_traffic() {
    let mut other = spec("b");
    other.pool = "other".into();
    let mut test = TestFleet::of(vec![spec("a"), other]);
    test.check("a", Check::Active, 2).fail("a", 100, SignFault::ServerError);
    assert_eq!(test.admission("a"), Admission::Open);
}

#[test]
fn a_fault_on_trial_ejects_again_for_twice_as_long() {
    let mut test = fleet(&["a", "b"]);
    test.fail("a", 3, SignFault::Connect);
    for wait_ms in [5_000, 10_000, 20_000] {
        test.wait(wait_ms - 100);
        assert_eq!(test.admission("a"), Admission::Ejected, "{wait_ms}");
        test.wait(wait_ms / 10 + 200);
        assert_eq!(test.state("a"), MemberState::Trial, "{wait_ms}");
        test.answer("a").fail("a", 1, SignFault::ServerError);
    }
    assert_eq!(test.changes("a").last(), Some(&(MemberState::Ejected, "trial_failed")));
    assert_eq!(test.report_of("a").ejections, 4);
}

#[test]
fn a_trial_that_fails_takes_nothing_from_the_share_if_traffic_was_not_why() {
    let mut deep = spec("a");
    deep.checks.deep = Some(ms(1000));
    let mut test = TestFleet::of(vec![deep, spec("b"), spec("c")]);
    test.check_fails("a", Check::Deep, 3).check("a", Check::Deep, 2);
    assert_eq!(test.state("a"), MemberState::Trial);
    test.fail("a", 1, SignFault::ServerError);
    assert_eq!(test.admission("a"), Admission::Ejected);
    test.fail("b", 5, SignFault::ServerError).fail("c", 5, SignFault::ServerError);
    assert_eq!(test.admission("b"), Admission::Ejected);
    assert_eq!(test.admission("c"), Admission::Open, "the last open one");
}

#[test]
fn what_led_to_an_ejection_is_forgiven_when_its_trial_begins() {
    let mut test = fleet(&["a", "b"]);
    test.fail("a", 5, SignFault::Cut).wait(5_600);
    assert_eq!(test.state("a"), MemberState::Trial);
    test.answer("a").answer("a").answer("a").tick();
    assert_eq!(test.state("a"), MemberState::Serving, "none of its replies has ended yet");
}

#[test]
fn one_that_is_left_alone_is_ejected_only_when_it_is_asked_again() {
    let mut test = fleet(&["a", "b", "c"]);
    test.busy("a", Some(2_000)).fail("a", 5, SignFault::ServerError).wait(1_900);
    assert_eq!(test.report_of("a").ejections, 0);
    test.wait(500);
    assert_eq!(test.changes("a").last(), Some(&(MemberState::Ejected, "faults_in_a_row")));
}

// Backpressure.

#[test]
fn one_that_asks_to_be_left_alone_is_and_keeps_its_health_and_ramp() {
    let mut test = TestFleet::with(vec![MemberSpec { slow_start: ms(30_000), ..spec("a") }], false);
    test.check("a", Check::Active, 2).wait(15_000);
    let permille = test.permille("a");
    assert!((500..600).contains(&permille));
    test.busy("a", Some(2_000));
    let standing = test.fleet.standing(&"a".into());
    assert_eq!((standing.admission, standing.ramp_permille), (Admission::Busy, permille));
    assert!(standing.busy_until.unwrap() >= test.now + ms(2_000));
    assert!(test.report_of("a").busy_for_ms.unwrap() >= 2_000);
    test.wait(2_300);
    let standing = test.fleet.standing(&"a".into());
    assert_eq!((standing.admission, standing.busy_until), (Admission::Open, None));
    let whys: Vec<_> = test.changes("a").into_iter().map(|(_, why)| why).collect();
    assert_eq!(whys[1..], ["asked_to_wait", "wait_over"]);
}

#[test]
fn being_busy_never_ejects_nor_opens_a_breaker() {
    let mut test = fleet(&["a", "b"]);
    (0..1000).for_each(|_| _ = test.busy("a", None));
    assert_eq!(test.admission("a"), Admission::Busy);
    test.wait(1_300);
    assert_eq!(test.fleet.standing(&"a".into()), Standing::FULL);
    assert_eq!(test.report_of("a").faults_in_a_row, 0);
}

#[test]
fn an_ejected_one_that_asks_to_be_left_alone_is_left_alone() {
    let mut test = fleet(&["a", "b"]);
    test.fail("a", 3, SignFault::Connect).busy("a", Some(20_000));
    assert_eq!(test.admission("a"), Admission::Busy, "no last resort before its time");
    test.wait(20_400);
    assert_eq!(test.state("a"), MemberState::Trial);
}

// Circuit breakers.

#[test]
fn a_breaker_takes_one_model_of_one_replica_out() {
    let mut test = fleet(&["a", "b"]);
    for _ in 0..10 {
        test.answer("a").fail("a", 1, SignFault::ServerError);
    }
    let standing = test.fleet.standing(&"a".into());
    assert_eq!(standing.admission, Admission::Open);
    assert_eq!(standing.models, [("m".into(), ModelStanding::Open)]);
    assert_eq!(test.fleet.standing(&"b".into()), Standing::FULL);
    test.wait(5_600);
    (0..5).for_each(|_| _ = test.answer("a"));
    assert_eq!(test.fleet.standing(&"a".into()), Standing::FULL);
    let told: Vec<_> = test
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::ModelChanged { model, to, .. } => Some((model.as_str(), *to)),
            _ => None,
        })
        .collect();
    let open = ("m", Some(ModelStanding::Open));
    assert_eq!(told, [open, ("m", Some(ModelStanding::Trial)), ("m", None)]);
}

#[test]
fn a_reply_that_breaks_off_is_one_request_and_one_fault() {
    let mut test = fleet(&["a", "b"]);
    for fault in [SignFault::Cut, SignFault::Stalled] {
        for _ in 0..5 {
            test.answer("a").answer("a").answer("a").fail("a", 1, fault).finish("a", 10, 0);
        }
    }
    let breaker = &test.report_of("a").breakers[0];
    assert_eq!((breaker.requests, breaker.faults, breaker.state), (30, 10, "closed"));
}

#[test]
fn breakers_of_models_that_a_replica_loses_are_forgotten() {
    let mut test = fleet(&["a"]);
    for _ in 0..10 {
        test.answer("a").fail("a", 1, SignFault::ServerError);
    }
    let other = MemberSpec { models: vec!["other".into()], ..spec("a") };
    test.fleet.reconcile(test.now, vec![other], false);
    assert_eq!(test.fleet.standing(&"a".into()), Standing::FULL);
}

#[test]
fn the_number_of_breakers_has_a_limit() {
    let mut fleet = Fleet::new(FleetConfig { models_max: 8, ..FleetConfig::default() }, 1);
    fleet.reconcile(start(), vec![spec("a")], true);
    for n in 0..1000 {
        let model = Some(format!("model-{n}").into());
        let kind = answered(ms(1));
        fleet.handle_sign(&Sign { replica: "a".into(), model, at: start(), kind });
    }
    assert_eq!(fleet.members(start())[0].breakers.len(), 8);
}

#[test]
fn a_trial_that_no_request_comes_to_ends_by_itself_unless_it_is_busy() {
    let mut test = fleet(&["a", "b"]);
    test.fail("a", 5, SignFault::ServerError).wait(5_600);
    assert_eq!(test.state("a"), MemberState::Trial);
    test.set_live("a", 1, Some(0));
    test.wait(10_000);
    assert_eq!(test.state("a"), MemberState::Trial, "its one request may still fail");
    test.set_live("a", 0, None);
    test.wait(5_000);
    assert_eq!(test.state("a"), MemberState::Trial);
    test.wait(1_500);
    assert_eq!(test.state("a"), MemberState::Serving);
}

#[test]
fn one_that_answers_far_slower_than_its_peers_is_ejected_and_tried_again() {
    let mut test = fleet(&["a", "b", "c"]);
    let answer = |test: &mut TestFleet, name: &str, after_ms| {
        test.answer_after(name, ms(after_ms));
    };
    for _ in 0..10 {
        ["a", "b", "c"].iter().for_each(|name| answer(&mut test, name, 100));
    }
    test.tick();
    assert_eq!(test.admission("c"), Admission::Open);
    for _ in 0..10 {
        answer(&mut test, "c", 1000);
    }
    test.tick();
    assert_eq!(test.changes("c"), [(MemberState::Ejected, "slow_outlier")]);
    test.wait(5_600);
    assert_eq!(test.state("c"), MemberState::Trial);
    (0..4).for_each(|_| answer(&mut test, "c", 1000));
    test.tick();
    assert_eq!(test.state("c"), MemberState::Trial, "slow answers don't pass it");
    answer(&mut test, "c", 1000);
    test.tick();
    assert_eq!(test.state("c"), MemberState::Ejected, "five are enough");
    test.wait(11_200);
    assert_eq!(test.state("c"), MemberState::Trial);
    (0..3).for_each(|_| answer(&mut test, "c", 100));
    test.tick();
    assert_eq!(test.state("c"), MemberState::Serving, "what was slow is forgotten");
}
