use super::super::Windows;
use super::*;

/// Returns the entries of a contender in one cell: goodput and 95th percentile by seed.
fn runs(cell: &str, contender: &str, role: Role, scores: &[(f64, f64)]) -> Vec<Entry> {
    let entry = |(seed, (goodput_per_s, p95_ms)): (usize, &(f64, f64))| Entry {
        cell: cell.to_owned(),
        conditions: Conditions::default(),
        contender: contender.to_owned(),
        role,
        seed: seed as u64,
        score: Score { goodput_per_s: *goodput_per_s, p95_ms: *p95_ms, ..Score::default() },
    };
    scores.iter().enumerate().map(entry).collect()
}

/// Returns a contest in which one baseline has the best goodput, and another the best 95th
/// percentile.
fn contest(cell: &str) -> Vec<Entry> {
    [
        runs(cell, "spillway", Role::Spillway, &[(9.0, 300.0), (12.0, 500.0)]),
        runs(cell, "omni", Role::Omniscient, &[(99.0, 1.0), (99.0, 1.0)]),
        runs(cell, "many", Role::Baseline, &[(10.0, 900.0), (10.0, 900.0)]),
        runs(cell, "soon", Role::Baseline, &[(8.0, 400.0), (11.0, 400.0)]),
    ]
    .concat()
}

#[test]
fn each_figure_is_compared_with_the_best_baseline_of_that_figure() {
    let standings = Standing::all(&contest("one"));
    let [standing] = &standings[..] else { panic!("{} standings", standings.len()) };
    assert_eq!(standing.best_goodput.as_deref(), Some("many"));
    assert_eq!(standing.best_p95.as_deref(), Some("soon"));
    let own = standing.row("spillway").unwrap();
    let goodput = own.goodput.unwrap();
    assert!((goodput.mean - 1.05).abs() < 1e-9);
    assert_eq!((goodput.worst, goodput.best), (0.9, 1.2));
    let p95 = own.p95.unwrap();
    assert_eq!((p95.mean, p95.worst, p95.best), (1.0, 1.25, 0.75));
    assert_eq!(own.mean.goodput_per_s, 10.5);
    let order: Vec<&str> = standing.rows.iter().map(|row| row.contender.as_str()).collect();
    assert_eq!(order, ["omni", "spillway", "many", "soon"]);
}

#[test]
fn the_time_per_token_has_a_best_baseline_of_its_own() {
    let mut entries = contest("one");
    for entry in &mut entries {
        let ms = match entry.contender.as_str() {
            "many" => 20.0,
            "soon" => 40.0,
            _ => 30.0,
        };
        entry.score.token_p95_ms = ms;
    }
    let standings = Standing::all(&entries);
    assert_eq!(standings[0].best_token_p95.as_deref(), Some("many"));
    assert_eq!(standings[0].row("spillway").unwrap().token_p95.unwrap().mean, 1.5);
}

#[test]
fn cells_and_conditions_stand_apart() {
    let mut entries = [contest("one"), contest("two")].concat();
    let nodes = |entry: Entry| Entry {
        conditions: Conditions { nodes: 4, ..Conditions::default() },
        ..entry
    };
    entries.extend(runs("one", "spillway", Role::Spillway, &[(5.0, 1.0)]).into_iter().map(nodes));
    let standings = Standing::all(&entries);
    let of: Vec<_> =
        standings.iter().map(|one| (one.cell.as_str(), one.conditions.nodes)).collect();
    assert_eq!(of, [("one", 1), ("two", 1), ("one", 4)]);
    // No other contender ran with four nodes.
    let alone = standings[2].row("spillway").unwrap();
    assert_eq!((alone.goodput, standings[2].best_goodput.as_deref()), (None, None));
    let against = Standing::against(&entries, |_, rival| rival.conditions.nodes == 1, &entries);
    assert_eq!(against[2].row("spillway").unwrap().goodput.unwrap().mean, 0.5);
}

#[test]
fn a_seed_that_the_rival_did_not_run_is_left_out() {
    let mut entries = contest("one");
    entries.retain(|entry| entry.contender != "many" || entry.seed == 1);
    let standings = Standing::all(&entries);
    assert_eq!(standings[0].row("spillway").unwrap().goodput.unwrap().mean, 1.2);
}

#[test]
fn recovery_is_told_seed_by_seed_against_the_best_baseline() {
    let mut entries = contest("one");
    for entry in &mut entries {
        // The first seed has no good request in the first 20 seconds.
        let from_s = if entry.role == Role::Spillway && entry.seed == 0 { 20 } else { 0 };
        let windows = Windows::of((from_s..100).map(f64::from));
        entry.score.windows = windows;
    }
    let standings = Standing::all(&entries);
    assert_eq!(standings[0].recoveries_s(&entries, "spillway", 0.0), [Some(20.0), Some(0.0)]);
    assert_eq!(standings[0].recoveries_s(&entries, "nobody", 0.0), []);
}
