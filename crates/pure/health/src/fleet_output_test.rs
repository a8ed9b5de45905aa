//! Tests of a fleet's outputs: signals, actions, reports.

use std::collections::BTreeMap;

use spillway_types::{Admission, LoadReport, Reading, Sign, SignFault, SignKind};

use crate::test_fleet::{TestFleet, fleet, ms, spec, start};
use crate::{
    Action, Check, CheckError, Fleet, FleetConfig, Live, MemberSpec, PeerReports, Verdict, Votes,
};

#[test]
fn signals_tell_what_traffic_and_reports_showed() {
    let mut test = fleet(&["a"]);
    assert_eq!(test.fleet.signals(test.now, &"x".into(), Live::default()), Default::default());
    test.live
        .insert("a".into(), Live { in_flight: 4, elsewhere: 3, started: 40, silent_for: None });
    test.answer("a").report("a", LoadReport { queued: Some(3.0), ..LoadReport::default() });
    test.tick();
    let live = Live { in_flight: 5, elsewhere: 3, started: 42, silent_for: None };
    let signals = test.fleet.signals(test.now, &"a".into(), live);
    assert_eq!(signals.latency_ms, Reading { value: 50.0, trust: 1.0 });
    assert!((48.0..52.0).contains(&signals.p99_ms.value));
    assert_eq!(signals.queued, Reading { value: 3.0, trust: 1.0 });
    assert_eq!(signals.running, Reading::UNKNOWN);
    assert_eq!((signals.bucket_tokens, signals.started_at), (18.0, 42));
}

#[test]
fn a_report_along_with_a_reply_counts_what_was_in_flight_at_the_last_tick() {
    let mut test = fleet(&["a"]);
    test.set_live("a", 4, None);
    test.tick();
    let report = LoadReport { kv_use: Some(0.5), pending: Some(7.0), ..LoadReport::default() };
    test.sign("a", SignKind::Reported(Box::new(report)));
    let signals = test.fleet.signals(test.now, &"a".into(), Live::default());
    assert_eq!((signals.kv_use.value, signals.pending.value), (0.5, 7.0));
    assert_eq!(signals.in_flight_at_report, 4);
    // Requests of other nodes count as far as they were reported at that time.
    let live = Live { in_flight: 4, elsewhere: 3, started: 0, silent_for: None };
    test.live.insert("a".into(), live);
    test.tick();
    let report = LoadReport { pending: Some(9.0), ..LoadReport::default() };
    test.sign("a", SignKind::Reported(Box::new(report)));
    let signals = test.fleet.signals(test.now, &"a".into(), Live::default());
    assert_eq!((signals.pending.value, signals.in_flight_at_report), (9.0, 7));
}

#[test]
fn a_bucket_fills_by_what_waits_and_runs_there() {
    let tokens_with = |report, in_flight| {
        let mut test = fleet(&["a"]);
        test.live
            .insert("a".into(), Live { in_flight, elsewhere: 0, started: 0, silent_for: None });
        test.tick();
        let live = Live { in_flight, elsewhere: 0, started: 20, silent_for: None };
        test.live.insert("a".into(), live);
        test.report("a", report).wait(100);
        test.fleet.signals(test.now, &"a".into(), live).bucket_tokens
    };
    let running = LoadReport { queued: Some(4.0), running: Some(4.0), ..LoadReport::default() };
    assert_eq!(tokens_with(LoadReport::default(), 0), 10.0);
    assert_eq!(tokens_with(running, 0), 5.0);
    assert_eq!(tokens_with(running, 16), 2.5);
    assert_eq!(tokens_with(LoadReport::default(), 8), 5.0);
}

#[test]
fn trust_in_load_follows_the_period_of_scrapes() {
    let mut slow = spec("a");
    slow.checks.scrape = Some(ms(10_000));
    let mut test = TestFleet::of(vec![slow, spec("b")]);
    let report = LoadReport { queued: Some(1.0), ..LoadReport::default() };
    test.report("a", report).report("b", report);
    let trust = |after_ms, name: &str| {
        test.fleet.signals(test.now + ms(after_ms), &name.into(), Live::default()).queued.trust
    };
    assert_eq!([trust(2_000, "b"), trust(4_000, "b")], [1.0, 0.5]);
    assert_eq!([trust(20_000, "a"), trust(22_000, "a")], [1.0, 0.5]);
}

#[test]
fn an_input_from_the_past_counts_as_of_now() {
    let mut test = fleet(&["a", "b"]);
    test.wait(60_000).fail("a", 3, SignFault::Connect);
    let past = Sign {
        replica: "a".into(),
        model: None,
        at: start(),
        kind: SignKind::Failed(SignFault::Connect),
    };
    test.fleet.handle_sign(&past);
    assert_eq!(test.report_of("a").faults[0].age_ms, 0);
    let reports = test.fleet.members(start());
    assert_eq!(reports, test.fleet.members(test.now));
}

#[test]
fn beyond_their_limit_actions_that_only_tell_are_lost_first() {
    let config = FleetConfig { actions_max: 3, ..FleetConfig::default() };
    let mut fleet = Fleet::new(config, 1);
    let warm = |name: &str| MemberSpec { needs_warm_up: true, ..spec(name) };
    fleet.reconcile(start(), vec![warm("a"), warm("b"), warm("c"), warm("d")], false);
    for name in ["a", "b", "c", "d"] {
        for _ in 0..2 {
            fleet.handle_check(start(), &name.into(), Check::Active, Ok(()));
        }
    }
    let actions: Vec<_> = std::iter::from_fn(|| fleet.poll_action()).collect();
    assert_eq!(actions, ["b", "c", "d"].map(|name| Action::WarmUp(name.into())));
    let mut mute = Fleet::new(FleetConfig { actions_max: 0, ..config }, 1);
    mute.reconcile(start(), vec![spec("a")], false);
    assert_eq!(mute.poll_action(), None);
}

#[test]
fn the_table_of_operators_has_all_there_is_to_know() {
    let mut test = fleet(&["a", "b"]);
    test.check("a", Check::Active, 2).wait(1_000);
    test.check_as("a", Check::Active, 1, Err(CheckError::Unhealthy)).wait(500);
    test.answer("a").fail("a", 1, SignFault::Reset).fail("a", 1, SignFault::Silent);
    let json = serde_json::to_value(test.report_of("a")).unwrap();
    assert_eq!(json["state"], "serving");
    assert_eq!(json["why"], "presumed_ready");
    assert_eq!(json["votes"]["active"], "good");
    assert_eq!(json["verdict"], "up");
    let active = serde_json::json!({
        "check": "active", "vote": "good", "age_ms": 500,
        "last_fault": "unhealthy", "last_fault_age_ms": 500,
    });
    assert_eq!(json["checks"][0], active);
    let faults = serde_json::json!([
        { "fault": "silent", "age_ms": 0 }, { "fault": "reset", "age_ms": 0 },
    ]);
    assert_eq!(json["faults"], faults);
    let breaker =
        serde_json::json!({ "model": "m", "state": "closed", "requests": 3, "faults": 2 });
    assert_eq!(json["breakers"], serde_json::json!([breaker]));
    assert_eq!((&json["faults_in_a_row"], &json["latency_ms"]), (&2.into(), &50.0.into()));
}

#[test]
fn what_other_nodes_say_holds_until_they_say_otherwise() {
    let mut test = fleet(&["a", "b"]);
    test.check("a", Check::Active, 2).answer("a");
    let down = PeerReports::of([Votes::reported(2), Votes::reported(2)]);
    test.fleet.handle_peer_reports(test.now, &[("a".into(), down)].into());
    test.tick();
    let report = test.report_of("a");
    assert_eq!((test.admission("a"), report.verdict), (Admission::Down, Verdict::Down));
    assert!(!report.is_against, "what others say is not said again");
    assert_eq!(test.admission("b"), Admission::Open);
    test.fleet.handle_peer_reports(test.now, &BTreeMap::new());
    test.tick();
    assert_eq!(test.admission("a"), Admission::Open);
}

#[test]
fn one_that_is_forgotten_has_to_show_again_that_it_is_ready() {
    let mut test = fleet(&["a", "b"]);
    let version = test.fleet.version();
    test.fleet.forget(&["a".into(), "x".into()].into());
    assert_ne!(test.fleet.version(), version);
    test.fleet.reconcile(test.now, vec![spec("a"), spec("b")], false);
    assert_eq!((test.admission("a"), test.admission("b")), (Admission::Starting, Admission::Open));
}
