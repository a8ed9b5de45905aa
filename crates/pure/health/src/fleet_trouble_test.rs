//! Tests of a fleet with slow, silent and wedged replicas, and with replicas that never answered.

use spillway_types::{Admission, DownCause, RAMP_FULL, SignKind, TokenCounts, Worked, WorkedPart};

use crate::test_fleet::{TestFleet, fleet, ms, spec, start};
use crate::{Check, CheckError, Fleet, FleetConfig, MemberState};

/// Answers of a stream whose first token comes as usual, and whose other tokens take so long each.
fn stream(test: &mut TestFleet, name: &str, each_ms: u64) {
    test.answer_after(name, ms(100));
    let worked = Worked { after: ms(50 * each_ms), steps: 50.0, part: WorkedPart::NextTokens };
    let tokens = TokenCounts::default();
    test.sign(name, SignKind::Finished { tokens, worked: Some(worked) });
}

#[test]
fn one_whose_tokens_come_far_slower_than_those_of_its_peers_is_ejected_and_fails_its_trial() {
    let mut test = fleet(&["a", "b", "c"]);
    for _ in 0..10 {
        ["a", "b", "c"].iter().for_each(|name| stream(&mut test, name, 20));
    }
    (0..10).for_each(|_| stream(&mut test, "c", 160));
    test.tick();
    assert_eq!(test.changes("c"), [(MemberState::Ejected, "slow_outlier")]);
    let reason = test.report_of("c").reason;
    assert_eq!(reason.as_deref(), Some("several times slower than its peers"));
    // While it is out, the usual value among so few is not known.
    test.wait(3_000);
    let reason = test.report_of("c").reason;
    assert_eq!(reason.as_deref(), Some("several times slower than its peers"));
    test.wait(2_600);
    assert_eq!(test.state("c"), MemberState::Trial);
    (0..4).for_each(|_| stream(&mut test, "c", 160));
    test.wait(20_000);
    assert_eq!(test.state("c"), MemberState::Trial, "neither first tokens nor idleness pass it");
    stream(&mut test, "c", 160);
    test.tick();
    assert_eq!(test.state("c"), MemberState::Ejected);
    let reason = test.report_of("c").reason;
    assert_eq!(reason.as_deref(), Some("its trial failed: several times slower than its peers"));
    test.wait(9_900);
    assert_eq!(test.state("c"), MemberState::Ejected, "a relapse doubles the time");
    test.wait(1_300);
    (0..3).for_each(|_| stream(&mut test, "c", 20));
    test.tick();
    assert_eq!(test.state("c"), MemberState::Serving);
}

#[test]
fn one_whose_event_loop_is_blocked_is_down_late_and_comes_back_with_all_it_had() {
    let mut scraped = spec("a");
    scraped.checks.scrape = Some(ms(1000));
    let mut test = TestFleet::of(vec![scraped]);
    test.check("a", Check::Active, 2).check("a", Check::Scrape, 2).answer("a");
    let silent = |test: &mut TestFleet, seconds: u64| {
        for second in 1..=seconds {
            test.set_live("a", 1, Some(second * 1_000));
            for check in [Check::Active, Check::Scrape] {
                test.check_as("a", check, 1, Err(CheckError::Timeout));
            }
            test.wait(1_000);
        }
    };
    silent(&mut test, 5);
    assert_ne!(test.admission("a"), Admission::Down, "three signals receive one silence");
    silent(&mut test, 12);
    assert_eq!(test.admission("a"), Admission::Down);
    assert_eq!(test.fleet.down_cause(&"a".into()), Some(DownCause::Silence));
    assert_eq!(test.report_of("a").reason.as_deref(), Some("no answer in time"));
    test.set_live("a", 1, Some(0));
    test.check("a", Check::Active, 2).check("a", Check::Scrape, 2).wait(100);
    let changes = [(MemberState::Down, "signals_agree"), (MemberState::Serving, "answers_again")];
    assert_eq!(test.changes("a"), changes);
    assert_eq!(test.permille("a"), RAMP_FULL);
}

#[test]
fn one_that_makes_no_token_while_its_queue_grows_is_ejected_though_its_checks_are_good() {
    let mut test = fleet(&["a", "b"]);
    for (second, in_flight) in (0..20).zip([4, 4, 5].into_iter().chain(std::iter::repeat(6))) {
        test.set_live("a", in_flight, Some(second * 1_000));
        test.check("a", Check::Active, 1).wait(1_000);
        let expected = if second < 15 { MemberState::Serving } else { MemberState::Ejected };
        assert_eq!(test.state("a"), expected, "{second} s");
    }
    assert_eq!(test.changes("a"), [(MemberState::Ejected, "wedged")]);
    let reason = test.report_of("a").reason;
    assert_eq!(reason.as_deref(), Some("no token for 19 s while its queue grows"));
}

#[test]
fn long_prompts_are_no_wedge_as_long_as_no_more_requests_come() {
    let mut test = fleet(&["a", "b"]);
    for second in 0..29 {
        test.set_live("a", 4, Some(second * 1_000));
        test.check("a", Check::Active, 1).wait(1_000);
    }
    assert_eq!(test.state("a"), MemberState::Serving);
}

#[test]
fn one_that_was_presumed_to_serve_is_starting_until_it_answers() {
    let mut fleet = Fleet::new(FleetConfig::default(), 1);
    fleet.reconcile(start(), vec![spec("a")], true);
    let seen = |fleet: &Fleet| {
        let report = fleet.members(start()).remove(0);
        (report.state, report.reason, report.admission)
    };
    let never = Some("never answered yet".to_owned());
    assert_eq!(seen(&fleet), (MemberState::Starting, never, "open"));
    fleet.handle_check(start(), &"a".into(), Check::Active, Err(CheckError::Refused));
    let refused = Some("never answered: connection refused".to_owned());
    assert_eq!(seen(&fleet).1, refused);
    fleet.handle_check(start(), &"a".into(), Check::Active, Ok(()));
    assert_eq!(seen(&fleet), (MemberState::Serving, None, "open"));
}
