use std::collections::BTreeSet;
use std::time::Instant;

use super::{Cell, CellError, Conditions, Traces};
use crate::{News, Scenario, Slo};

#[expect(clippy::disallowed_methods, reason = "some moment has to stand for time 0")]
fn scenario(name: &str, conditions: &Conditions, traces: &Traces) -> Result<Scenario, CellError> {
    Cell::named(name).unwrap().scenario(conditions, 1, Instant::now(), traces)
}

fn usual(name: &str) -> Scenario {
    scenario(name, &Conditions::default(), &Traces::default()).unwrap()
}

#[test]
fn all_cells_have_names_of_their_own_and_can_be_made() {
    let all: Vec<&Cell> = Cell::all().iter().chain(Cell::besides()).collect();
    assert_eq!(Cell::all().len(), 42);
    let names: BTreeSet<&str> = all.iter().map(|cell| cell.name()).collect();
    assert_eq!(names.len(), all.len());
    let abouts: BTreeSet<&str> = all.iter().map(|cell| cell.about()).collect();
    assert_eq!(abouts.len(), all.len());
    for cell in all.iter().filter(|cell| !["trace", "scale"].contains(&cell.group())) {
        let Scenario { world, sessions } = usual(cell.name());
        assert_eq!((world.regions.len(), world.rtt_ms.len()), (cell.regions(), cell.regions()));
        let regions: BTreeSet<usize> = sessions.iter().map(|session| session.region).collect();
        assert_eq!(regions.len(), cell.regions(), "{}: each region has clients", cell.name());
        assert!(world.regions.iter().all(|region| (region.nodes, region.replicas) == (1, 4)));
    }
}

#[test]
fn conditions_change_the_world_and_nothing_else() {
    let conditions = Conditions {
        nodes: 2,
        replicas: Some(vec![3, 4, 5]),
        signals_ms: 500.0,
        kv_events_ms: 20.0,
        lost: 0.1,
        jitter: 0.3,
        rtt_error: 0.2,
        speed_error: 0.3,
        central: Some(1),
        tenants: Vec::new(),
    };
    let changed = scenario("skew-75-25-25", &conditions, &Traces::default()).unwrap();
    let world = &changed.world;
    let regions: Vec<_> = world.regions.iter().map(|one| (one.nodes, one.replicas)).collect();
    assert_eq!(regions, [(2, 3), (2, 4), (2, 5)]);
    let News { signals_ms, kv_events_ms, lost, jitter, rtt_error, speed_error, .. } = world.news;
    assert_eq!([signals_ms, kv_events_ms], [500.0, 20.0]);
    assert_eq!([lost, jitter, rtt_error, speed_error], [0.1, 0.3, 0.2, 0.3]);
    assert_eq!(world.central, Some(1));
    assert_eq!(changed.sessions, usual("skew-75-25-25").sessions);
    for wrong in [
        Conditions { central: Some(3), ..Conditions::default() },
        Conditions { replicas: Some(vec![4, 4]), ..Conditions::default() },
    ] {
        let error = scenario("chat-50", &wrong, &Traces::default()).unwrap_err();
        assert!(matches!(error, CellError::Regions(3)), "{error}");
    }
}

#[test]
fn slow_cells_have_a_slow_replica_in_each_region() {
    assert_eq!(usual("slow-chat-50").world.slow, [(0, 2.0), (4, 2.0), (8, 2.0)]);
    assert_eq!(usual("slow-chat-50").sessions, usual("chat-50").sessions);
    let conditions = Conditions { replicas: Some(vec![2, 0, 3]), ..Conditions::default() };
    let fewer = scenario("slow-trees", &conditions, &Traces::default()).unwrap();
    assert_eq!(fewer.world.slow, [(0, 2.0), (2, 2.0)]);
    assert!(usual("chat-50").world.slow.is_empty());
}

#[test]
fn a_ramp_begins_at_six_tenths_and_a_skew_has_three_times_as_many_in_one_region() {
    let count = |name: &str, until_s: f64, region: usize| {
        let is_early = |start: crate::Time| start.since_start().as_secs_f64() < until_s;
        let sessions = usual(name).sessions;
        sessions.iter().filter(|one| is_early(one.start) && one.region == region).count() as f64
    };
    let ratio = count("prompts-ramp-0.9", 120.0, 0) / count("prompts-0.9", 120.0, 0);
    assert!((ratio - 0.6 / 0.9).abs() < 0.05, "{ratio}");
    let ratio = count("prompts-skew-0.7", 300.0, 0) / count("prompts-skew-0.7", 300.0, 2);
    assert!((ratio - 3.0).abs() < 0.2, "{ratio}");
    let cold = usual("prompts-cold-0.9");
    assert_eq!((cold.world.warm_up_s, usual("prompts-0.9").world.warm_up_s), (0.0, 60.0));
}

#[test]
fn cells_with_faults_break_between_two_minutes_and_keep_their_replicas_and_nodes() {
    let all = || Cell::besides().iter().filter(|cell| cell.group() == "faults");
    assert_eq!(all().count(), 9);
    for cell in all() {
        assert_eq!(cell.faults_s(), Some((120.0, 180.0)));
        assert!(!usual(cell.name()).world.faults.is_empty());
        for wrong in [
            Conditions { central: Some(0), ..Conditions::default() },
            Conditions { replicas: Some(vec![2, 2, 2]), ..Conditions::default() },
        ] {
            let error = scenario(cell.name(), &wrong, &Traces::default()).unwrap_err();
            assert!(matches!(error, CellError::Faults), "{error}");
        }
    }
    assert_eq!(Cell::named("chat-50").unwrap().faults_s(), None);
}

#[test]
fn traces_are_played_on_larger_replicas_and_missed_where_they_are_not_there() {
    let traces = Traces::new(|name| match name {
        Traces::MOONCAKE => Some(
            r#"{"timestamp": 5000, "input_length": 600, "output_length": 20, "hash_ids": [0, 1]}"#
                .to_owned(),
        ),
        _ => None,
    });
    let played = scenario("mooncake-2.5", &Conditions::default(), &traces).unwrap();
    assert_eq!(played.sessions[0].start, crate::Time::from_s(2.0));
    assert_eq!(played.world.kv_tokens(), 400_000.0);
    assert_eq!(Cell::named("mooncake-2.5").unwrap().slo(), Slo::A100);
    assert_eq!(usual("chat-50").world.kv_tokens(), 40_000.0);
    assert_eq!(usual("flash-crowd").world.kv_tokens(), 400_000.0);
    assert_eq!(usual("agents-full").world.kv_tokens(), 301_808.0);
    let error = scenario("azure-code-5", &Conditions::default(), &traces).unwrap_err();
    assert_eq!(error.to_string(), "the trace azure_llm_2023_code.csv is missing");
}
