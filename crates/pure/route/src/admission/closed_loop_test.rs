//! Closed loop of clients that are refused and come back after the time in `Retry-After`.

use super::test_clients::{CAPACITY, Crowd, Expected, Report, Scenario, Source, run};

fn crowd(source: Source) -> Crowd {
    Crowd {
        source,
        tenant: 0,
        priority: 0,
        tokens: 0,
        sizes: None,
        honour: 1.0,
        deadline_ms: 120_000,
        slo_ms: None,
    }
}

fn scenario(crowds: Vec<Crowd>) -> Scenario {
    let seconds = [30, 150];
    Scenario { crowds, queue_max: 80, seconds, slower: None, expected: Expected::Unknown, seed: 1 }
}

/// Returns clients that would send twice the capacity if they were never refused.
fn closed() -> Scenario {
    scenario(vec![crowd(Source::Closed { clients: 160, think_ms: 1_000 })])
}

/// Returns twice the capacity for a minute, then less than the capacity.
fn burst() -> Scenario {
    let source = Source::Open(vec![(0, 0.7), (30, 2.0), (90, 0.7)]);
    Scenario { seconds: [0, 200], ..scenario(vec![crowd(source)]) }
}

/// Returns a constant load, as a multiple of the capacity.
fn sustained(load: f64) -> Scenario {
    Scenario { seconds: [60, 240], ..scenario(vec![crowd(Source::Open(vec![(0, load)]))]) }
}

fn row(name: &str, report: &Report) -> String {
    let cells = report.crowds.iter().map(|crowd| {
        let mut told = crowd.told_s.clone();
        told.sort_unstable();
        let told = |share: f64| told.get((told.len() as f64 * share) as usize).copied().unwrap_or(0);
        format!(
            "served {:>5.1} % first retry {:>5.1} % ({:>5}) attempts {:>4.2} p50 {:>5.0} p95 {:>6.0} ms told {:>2}/{:>2} s, sent away {:?}, late {}",
            crowd.served_share() * 100.0,
            crowd.second_share() * 100.0,
            crowd.second_attempts,
            crowd.attempts_each(),
            crowd.quantile_ms(0.5),
            crowd.quantile_ms(0.95),
            told(0.5),
            told(0.95),
            crowd.sent_away,
            crowd.slo_missed,
        )
    });
    let cells: Vec<String> = cells.collect();
    let (goodput, show) = (report.goodput * 100.0, report.show_share);
    format!("{name:<28} goodput {goodput:>5.1} % show {show:.2} | {}", cells.join("\n    | "))
}

/// Returns two tenants, the second of which sends this multiple of the capacity.
fn neighbours(other: f64) -> Scenario {
    let own = Crowd { tenant: 1, tokens: 900, ..crowd(Source::Open(vec![(0, 0.4)])) };
    let sick = Crowd { tenant: 2, tokens: 900, ..crowd(Source::Open(vec![(0, other)])) };
    scenario(vec![own, sick])
}

/// Returns somewhat less than half the capacity in each class.
fn classes() -> Scenario {
    let class = |priority| Crowd { priority, ..crowd(Source::Open(vec![(0, 0.45)])) };
    scenario((0..4).map(class).collect())
}

#[test]
fn clients_that_come_back_as_told_find_their_place() {
    for seed in [1, 2] {
        for (name, scenario) in [("closed", closed()), ("burst", burst())] {
            for queue_max in [40, 80] {
                let report = run(&Scenario { queue_max, seed, ..scenario.clone() });
                let crowd = &report.crowds[0];
                let name = format!("{name}, seed {seed}, queue {queue_max}: {}", row("", &report));
                assert!(crowd.second_attempts > 100, "the test needs more load: {name}");
                assert!(crowd.second_share() >= 0.95, "{name}");
                assert!(crowd.served_share() > 0.999, "{name}");
                assert!(report.goodput >= 0.9, "{name}");
            }
        }
    }
}

/// Returns many requests at once after a time in which nothing waited, so that no rate was
/// measured.
fn sudden(requests: usize, expected: Expected) -> Scenario {
    let calm = Crowd { tenant: 1, ..crowd(Source::Open(vec![(0, 0.2)])) };
    let burst = Crowd { tenant: 2, ..crowd(Source::Burst { second: 20, requests }) };
    Scenario { seconds: [0, 60], queue_max: 20, expected, ..scenario(vec![calm, burst]) }
}

fn share(expected: f64) -> Expected {
    Expected::PerSecond(expected * CAPACITY)
}

/// Returns a sudden burst with requests of these sizes before it and in it.
fn sized(before: [u32; 2], in_it: [u32; 2]) -> Scenario {
    let mut sudden = sudden(200, Expected::Learned);
    for (crowd, sizes) in sudden.crowds.iter_mut().zip([before, in_it]) {
        crowd.sizes = Some(sizes);
    }
    sudden
}

#[test]
fn a_sudden_burst_of_other_sizes_than_before_finds_its_places() {
    let (short, equal, mixed, long) = ([8, 8], [32, 32], [4, 64], [96, 96]);
    for before in [short, equal, mixed, long] {
        for in_it in [short, equal, mixed, long] {
            for seed in [1, 2] {
                let report = run(&Scenario { seed, ..sized(before, in_it) });
                let burst = &report.crowds[1];
                let name = format!("{before:?}, then {in_it:?}, {seed}: {}", row("", &report));
                assert!(burst.second_attempts > 100, "{name}");
                assert!(burst.second_share() >= 0.95, "{name}");
                assert!(burst.served_share() > 0.999, "{name}");
            }
        }
    }
}

#[test]
fn who_is_turned_away_in_a_sudden_burst_is_spread_over_the_time_that_it_takes() {
    // While nothing is known, a fifth less than the capacity is expected, or even less.
    for expected in [0.7, 0.8] {
        for requests in [100, 200, 800] {
            let report = run(&sudden(requests, share(expected)));
            let burst = &report.crowds[1];
            let name = format!("{requests} at once, {expected}: {}", row("", &report));
            assert!(burst.second_attempts > requests as u64 / 4, "{name}");
            assert!(burst.second_share() >= 0.95, "{name}");
            assert!(burst.served_share() > 0.999, "{name}");
        }
    }
}

/// Returns many requests at once at a node that has served none.
fn fresh(requests: usize, expected: Expected) -> Scenario {
    let burst = crowd(Source::Burst { second: 0, requests });
    Scenario { seconds: [0, 60], queue_max: 20, expected, ..scenario(vec![burst]) }
}

#[test]
fn who_is_turned_away_by_a_fresh_node_comes_back_as_similar_replicas_can_serve() {
    // A guess that is too high costs a large burst some slots: 128 clients come in beyond the queue.
    let guesses: [(usize, &[f64]); 3] =
        [(100, &[0.25, 1.0, 4.0]), (200, &[0.25, 0.5, 1.0, 2.0, 4.0]), (400, &[0.25, 0.5, 1.0])];
    for (requests, guesses) in guesses {
        for &guess in guesses {
            for seed in [1, 2] {
                let burst = fresh(requests, Expected::Guessed(guess));
                let report = run(&Scenario { seed, ..burst });
                let burst = &report.crowds[0];
                let name = format!("{requests} at once, guess {guess}: {}", row("", &report));
                assert!(burst.second_attempts >= requests as u64 - 60, "{name}");
                assert!(burst.second_share() >= 0.9, "{name}");
                assert!(burst.served_share() > 0.999, "{name}");
            }
        }
    }
}

#[test]
fn replicas_stay_busy_under_any_overload_whether_clients_come_back_or_not() {
    let shorter = |scenario: Scenario| Scenario { seconds: [40, 120], ..scenario };
    for load in [2.0, 5.0] {
        for honour in [1.0, 0.5, 0.0] {
            let report = run(&shorter(honouring(sustained(load), honour)));
            assert!(report.goodput >= 0.97, "{load}, {honour}: {}", row("", &report));
        }
    }
}

#[test]
fn promises_are_made_to_as_many_more_as_usually_stay_away() {
    let seconds = [30, 110];
    let show = |honour| run(&Scenario { seconds, ..honouring(sustained(2.0), honour) }).show_share;
    assert!(show(1.0) > 0.97);
    assert!((0.4..0.65).contains(&show(0.5)), "{}", show(0.5));
    assert!(show(0.0) < 0.05);
}

#[test]
fn a_tenant_that_floods_the_queue_costs_another_one_little() {
    let (well, sick) = (run(&neighbours(0.5)), run(&neighbours(5.0)));
    let (before, after) = (well.crowds[0].quantile_ms(0.95), sick.crowds[0].quantile_ms(0.95));
    assert!(after <= 1.2 * before, "p95 of {before} ms, then {after} ms");
    let own = &sick.crowds[0];
    assert!(own.served_share() > 0.999 && own.attempts_each() < 1.03, "{}", row("", &sick));
    assert!(sick.goodput >= 0.97);
}

#[test]
fn urgent_classes_are_served_as_if_nobody_else_came() {
    let alone = run(&Scenario { crowds: vec![classes().crowds[0].clone()], ..classes() });
    let squeezed = run(&classes());
    let p95 = |report: &Report, class: usize| report.crowds[class].quantile_ms(0.95);
    assert!(p95(&squeezed, 0) <= 1.1 * p95(&alone, 0), "{}", row("", &squeezed));
    let attempts: Vec<f64> = squeezed.crowds.iter().map(|crowd| crowd.attempts_each()).collect();
    assert!(attempts[0] < 1.01 && attempts.is_sorted(), "{attempts:?}");
    // The lower class is not starved, and the promises to the second class hold.
    assert!(squeezed.crowds[1].second_share() >= 0.95, "{}", row("", &squeezed));
    assert!(squeezed.crowds[3].served > 0);
    assert!(squeezed.goodput >= 0.97);
}

#[test]
fn what_would_be_late_for_its_objective_is_refused_early_and_the_rest_is_in_time() {
    let crowd = |priority, load: f64| Crowd {
        priority,
        slo_ms: Some(1_000),
        honour: 0.0,
        ..crowd(Source::Open(vec![(0, load)]))
    };
    let base = scenario(vec![crowd(0, 0.6), crowd(1, 0.9)]);
    let report = run(&Scenario { queue_max: 1_000, ..base });
    let [urgent, other] = &report.crowds[..] else { panic!("{report:?}") };
    assert!(urgent.served_share() > 0.99, "{}", row("", &report));
    assert_eq!((urgent.slo_missed, other.slo_missed), (0, 0));
    // The rest of the first class is used, and hardly any request is admitted and then shed.
    assert!((0.38..0.5).contains(&other.served_share()), "{}", row("", &report));
    assert!(other.sent_away[1] * 20 < other.requests, "{}", row("", &report));
    assert!(report.goodput >= 0.97, "{}", row("", &report));
}

fn honouring(scenario: Scenario, honour: f64) -> Scenario {
    let crowds = scenario.crowds.iter().map(|crowd| Crowd { honour, ..crowd.clone() });
    Scenario { crowds: crowds.collect(), ..scenario }
}

#[test]
#[ignore = "prints the tables of the documents, nothing to fail: cargo test -p spillway-route closed_loop_test::table -- --ignored --nocapture"]
#[expect(clippy::print_stdout, reason = "its purpose")]
fn table() {
    let small = |scenario: Scenario, queue_max| Scenario { queue_max, ..scenario };
    let rows = [
        ("closed 2x", closed()),
        ("closed 2x, queue 8", small(closed(), 8)),
        ("closed 2x, queue 400", small(closed(), 400)),
        ("closed 2x, half come", honouring(closed(), 0.5)),
        ("burst 2x", burst()),
        ("burst 2x, queue 8", small(burst(), 8)),
        ("burst 2x, queue 400", small(burst(), 400)),
        ("burst 2x, half come", honouring(burst(), 0.5)),
        ("sustained 1.1x", sustained(1.1)),
        ("sustained 2x", sustained(2.0)),
        ("sustained 5x", sustained(5.0)),
        ("sustained 2x, half come", honouring(sustained(2.0), 0.5)),
        ("sustained 5x, half come", honouring(sustained(5.0), 0.5)),
        ("sustained 5x, none comes", honouring(sustained(5.0), 0.0)),
        ("neighbour 0.5", neighbours(0.5)),
        ("neighbour 5", neighbours(5.0)),
        ("classes 4 x 0.45", classes()),
        ("200 at once, fresh node", fresh(200, Expected::Unknown)),
        ("200 at once, fresh, guessed", fresh(200, Expected::Guessed(1.0))),
        ("200 at once, fresh, guess x 4", fresh(200, Expected::Guessed(4.0))),
        ("200 at once, fresh, guess / 4", fresh(200, Expected::Guessed(0.25))),
        ("200 at once, unexpected", sudden(200, Expected::Unknown)),
        ("200 mixed at once after short", sized([8, 8], [4, 64])),
        ("200 long at once after mixed", sized([4, 64], [96, 96])),
        ("200 at once", sudden(200, share(0.8))),
        ("800 at once", sudden(800, share(0.8))),
        ("slower by half", Scenario { slower: Some((60, 2.0)), ..closed() }),
    ];
    for (name, scenario) in rows {
        println!("{}", row(name, &run(&scenario)));
    }
}
