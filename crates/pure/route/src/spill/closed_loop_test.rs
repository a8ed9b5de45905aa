//! Gain by spilling with late reports, and the effect of each setting.

use super::SpillTerms;
use super::test_regions::{Results, Scenario, run};

/// Returns three regions far apart, the first with more load than it can serve.
fn skewed(nodes: usize) -> Scenario {
    Scenario {
        rtt_ms: vec![vec![0, 93, 150], vec![93, 0, 227], vec![150, 227, 0]],
        load: vec![1.2, 0.4, 0.4],
        edges: 0,
        nodes,
        terms: SpillTerms::default(),
        does_spill: true,
        knows_siblings: true,
        decides_again: true,
        seconds: [10, 70],
        seed: 1,
    }
}

/// Returns eight regions: two with more than they can serve, and six at equal distances with room.
fn equal(nodes: usize) -> Scenario {
    let rtt_ms = (0..8_u64).map(|a| (0..8_u64).map(|b| if a == b { 0 } else { 100 }).collect());
    Scenario {
        rtt_ms: rtt_ms.collect(),
        load: vec![1.6, 1.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6],
        ..skewed(nodes)
    }
}

/// Returns [`equal`] with regions that are some milliseconds nearer or further.
fn uneven(nodes: usize) -> Scenario {
    let away = |a: u64, b: u64| if a == b { 0 } else { 90 + 5 * (a + b) };
    let rtt_ms = (0..8).map(|a| (0..8).map(|b| away(a, b)).collect());
    Scenario { rtt_ms: rtt_ms.collect(), ..equal(nodes) }
}

/// Returns the mean milliseconds to the first token over all requests.
fn mean_ms(results: &Results) -> f64 {
    let all = results.first_token_ms.concat();
    all.iter().sum::<f64>() / all.len() as f64
}

#[test]
fn no_region_sheds_while_others_have_room_and_waiting_is_short() {
    for nodes in [1, 2, 4] {
        let with = run(&skewed(nodes));
        let without = run(&Scenario { does_spill: false, ..skewed(nodes) });
        assert!(without.all_shed() > 300, "{nodes} nodes: the test needs more load");
        assert_eq!(with.all_shed(), 0, "{nodes} nodes");
        let (before, after) = (without.quantile_ms(0.95), with.quantile_ms(0.95));
        assert!(2.0 * after <= before, "{nodes} nodes: p95 {before} ms, then {after} ms");
        // No more than the round trip to the second region and a little.
        assert!(after <= 150.0, "{nodes} nodes: p95 {after} ms");
    }
}

#[test]
fn where_all_have_too_much_only_that_is_shed_and_none_beside_room_that_is_known() {
    for nodes in [1, 4] {
        let results = run(&Scenario { load: vec![1.8, 1.2, 0.8], ..skewed(nodes) });
        let [_, known] = results.shed_beside_room;
        assert_eq!(known, 0, "{nodes} nodes");
        // The third region keeps its reserve: its own clients are all served.
        assert_eq!(results.shed[2], 0, "{nodes} nodes");
        // The excess over the capacity of all regions, less the reserve of the third, in 60 s.
        let unavoidable = (1.8 + 1.2 + 0.8 - 2.9) * 40.0 * 60.0;
        let shed = results.all_shed() as f64;
        assert!((0.85..1.02).contains(&(shed / unavoidable)), "{nodes} nodes: {shed}");
    }
}

#[test]
fn guests_never_starve_a_regions_own_clients() {
    for nodes in [1, 4] {
        // The first region alone has more load than all regions can serve.
        let flood = Scenario { load: vec![2.5, 0.6, 0.6], ..skewed(nodes) };
        let terms = SpillTerms { reserve_permille: 0, ..flood.terms };
        let (results, bare) = (run(&flood), run(&Scenario { terms, ..flood }));
        assert!(results.shed[0] > 1_000, "{nodes} nodes: the test needs more load");
        for region in [1, 2] {
            assert_eq!(results.shed[region], 0, "{nodes} nodes");
            assert!(results.guests[region] > 500, "{nodes} nodes: {:?}", results.guests);
            let p95 = |results: &Results| results.region_quantile_ms(region, 0.95);
            let (kept, unkept) = (p95(&results), p95(&bare));
            assert!(kept <= 60.0 && 2.0 * kept <= unkept, "{nodes} nodes: {kept}, {unkept} ms");
        }
    }
}

#[test]
fn an_edge_has_its_clients_served_by_the_nearest_region_with_room() {
    for nodes in [1, 4] {
        let edge = Scenario { load: vec![0.5, 0.4, 0.4], edges: 1, ..skewed(nodes) };
        let results = run(&edge);
        assert_eq!((results.all_shed(), results.guests[0]), (0, 0), "{nodes} nodes");
        assert_eq!(results.all_guests() as usize, results.first_token_ms[0].len());
        let [nearer, further] = [results.guests[1], results.guests[2]];
        assert!(nearer > further && further > 0, "{nodes} nodes: {nearer}, {further}");
        let p95 = results.region_quantile_ms(0, 0.95);
        assert!(p95 <= 150.0 + 93.0, "{nodes} nodes: p95 {p95} ms");
    }
}

#[test]
fn equal_regions_get_equal_shares_of_guests_and_refuse_few() {
    for nodes in [1, 4] {
        let results = run(&equal(nodes));
        let (least, most) = (results.guests[2..].iter().min(), results.guests[2..].iter().max());
        let (Some(&least), Some(&most)) = (least, most) else { panic!("{:?}", results.guests) };
        assert!(most as f64 <= 1.3 * least as f64, "{nodes} nodes: {:?}", results.guests);
        // At 85 % of the capacity of all and a reserve of 10 %, most slots are taken.
        let (refused, guests) = (results.refused, results.all_guests());
        assert!(refused * 10 <= guests * 3, "{nodes} nodes: {refused} of {guests}");
        assert_eq!(results.all_shed(), 0, "{nodes} nodes");
    }
}

#[test]
fn each_term_that_is_on_by_default_earns_its_place() {
    let base = uneven(4);
    let with = run(&base);
    let terms = SpillTerms { doubt: 0.0, ..base.terms };
    let without_doubt = run(&Scenario { terms, ..base.clone() });
    assert!(2 * with.refused <= without_doubt.refused, "doubt: {}", without_doubt.refused);
    let terms = SpillTerms { crowding: 0.0, ..base.terms };
    let (crowded, mean) = (mean_ms(&run(&Scenario { terms, ..base.clone() })), mean_ms(&with));
    assert!(1.2 * mean <= crowded, "crowding: {mean} ms instead of {crowded} ms");
    let siblings_unknown = run(&Scenario { knows_siblings: false, ..base });
    assert!(3 * with.refused <= 2 * siblings_unknown.refused, "{}", siblings_unknown.refused);
}

/// Returns the means of some figures over several seeds.
fn row(name: &str, scenario: &Scenario) -> String {
    let seeds = 1..=8;
    let count = seeds.clone().count() as f64;
    let mut sums = [0.0; 9];
    for seed in seeds {
        let results = run(&Scenario { seed, ..scenario.clone() });
        let [truly, known] = results.shed_beside_room;
        let figures = [
            mean_ms(&results),
            results.quantile_ms(0.5),
            results.quantile_ms(0.95),
            results.quantile_ms(0.99),
            results.all_shed() as f64,
            truly as f64,
            known as f64,
            results.all_guests() as f64,
            results.refused as f64,
        ];
        sums.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure / count);
    }
    let cells: Vec<String> = sums.iter().map(|mean| format!("{mean:>7.0}")).collect();
    format!("{name:<34} {}", cells.join(" "))
}

#[test]
#[ignore = "prints the tables of the documents, nothing to fail: cargo test -p spillway-route table -- --ignored --nocapture"]
#[expect(clippy::print_stdout, reason = "its purpose")]
fn table() {
    let base = SpillTerms::default();
    let variants = [
        ("default", base),
        ("crowding 0", SpillTerms { crowding: 0.0, ..base }),
        ("crowding 2", SpillTerms { crowding: 2.0, ..base }),
        ("doubt 0", SpillTerms { doubt: 0.0, ..base }),
        ("doubt 2", SpillTerms { doubt: 2.0, ..base }),
        ("reserve 0", SpillTerms { reserve_permille: 0, ..base }),
        ("guests 20 %", SpillTerms { guests_max_permille: Some(200), ..base }),
    ];
    type Make = fn(usize) -> Scenario;
    let makes: [(&str, Make); 6] = [
        ("80/40/40", |nodes| Scenario { load: vec![0.8, 0.4, 0.4], ..skewed(nodes) }),
        ("120/40/40", skewed),
        ("edge 50/40/40", |nodes| Scenario {
            load: vec![0.5, 0.4, 0.4],
            edges: 1,
            ..skewed(nodes)
        }),
        ("180/120/80", |nodes| Scenario { load: vec![1.8, 1.2, 0.8], ..skewed(nodes) }),
        ("8 equal", equal),
        ("8 uneven", uneven),
    ];
    let columns = "   mean     p50     p95     p99    shed   truly   known  guests refused";
    println!("{:<34} {columns}", "");
    for (what, make) in makes {
        for nodes in [1, 2, 4] {
            let name = |text: &str| format!("{what}, {nodes} nodes: {text}");
            let without = Scenario { does_spill: false, ..make(nodes) };
            println!("{}", row(&name("no spill"), &without));
            for (text, terms) in variants {
                println!("{}", row(&name(text), &Scenario { terms, ..make(nodes) }));
            }
            let alone = Scenario { knows_siblings: false, ..make(nodes) };
            println!("{}", row(&name("siblings unknown"), &alone));
            let once = Scenario { decides_again: false, ..make(nodes) };
            println!("{}", row(&name("decided once"), &once));
        }
    }
}
