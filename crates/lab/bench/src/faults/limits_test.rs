//! Limits of hand-made results.

use super::{
    super::{
        fault::Fault,
        results::{ResultOutcome, ResultRow, tests as by_hand},
    },
    *,
};

fn with_cell(account: Account, spoilt: &[&str]) -> Results {
    let outcome = ResultOutcome::Measured(by_hand::cell(account, spoilt));
    let row = ResultRow { policy: "random".to_owned(), about: Fault::Hung, outcome };
    Results { matrix: vec![row], ..by_hand::nothing() }
}

fn verdicts(results: &Results) -> Vec<LimitVerdict> {
    limits(results).into_iter().map(|limit| limit.verdict).collect()
}

/// Returns index and evidence of the one limit that this account breaks.
fn breach(account: Account, spoilt: &[&str]) -> (usize, String) {
    let limits = limits(&with_cell(account, spoilt));
    assert!(!is_sound(&limits));
    let fails = |at: &usize| limits[*at].is_must && limits[*at].verdict == LimitVerdict::Fails;
    let broken: Vec<usize> = (0..limits.len()).filter(fails).collect();
    assert_eq!(broken.len(), 1);
    (broken[0], limits[broken[0]].evidence.clone())
}

#[test]
fn a_clean_run_holds_everything_and_excused_errors_are_no_breach() {
    let account = Account { sent: 9, complete: 5, excused: 4, ..Account::default() };
    let results = with_cell(account, &[]);
    assert_eq!(verdicts(&results), [LimitVerdict::Holds; 5]);
    assert!(is_sound(&limits(&results)));
    assert_eq!(limits(&results)[0].evidence, "9 requests in 1 runs");
}

#[test]
fn each_kind_of_breach_fails_its_own_limit_and_names_the_run() {
    let evidence = || "random × hung 2".to_owned();
    let lost = Account { lost: 2, late: 1, ..Account::default() };
    assert_eq!(breach(lost, &[]), (0, evidence()));
    assert_eq!(breach(Account { doubled: 2, ..Account::default() }, &[]), (1, evidence()));
    assert_eq!(breach(Account { inexcusable: 2, ..Account::default() }, &[]), (2, evidence()));
}

#[test]
fn a_machine_without_time_excuses_lateness_and_nothing_else() {
    let late = Account { lost: 3, late: 3, inexcusable: 2, ..Account::default() };
    let results = with_cell(late.clone(), &["busy"]);
    let limits = limits(&results);
    assert!(is_sound(&limits));
    assert_eq!(
        (limits[0].verdict, limits[2].verdict),
        (LimitVerdict::Unknown, LimitVerdict::Unknown)
    );
    assert_eq!(limits[0].evidence, "in invalid runs, not judged: random × hung 3");
    assert_eq!((limits[4].verdict, limits[4].is_must), (LimitVerdict::Fails, false));
    assert_eq!(limits[4].evidence, "1 of 1 runs are invalid: random × hung");

    let unheard = Account { lost: 4, ..late };
    assert_eq!(breach(unheard, &["busy"]).1, "random × hung 1");
    assert_eq!(breach(Account { doubled: 1, ..Account::default() }, &["busy"]).0, 1);
}

#[test]
fn only_invalid_runs_without_a_certain_breach_are_repeated() {
    let is_repeated = |account, spoilt: &[&str]| {
        let results = with_cell(account, spoilt);
        is_worth_repeating(results.runs()[0].1)
    };
    assert!(!is_repeated(Account { lost: 1, ..Account::default() }, &[]));
    assert!(!is_repeated(Account::default(), &[]));
    assert!(is_repeated(Account::default(), &["busy"]));
    assert!(is_repeated(
        Account { lost: 1, late: 1, inexcusable: 1, ..Account::default() },
        &["x"]
    ));
    // A breach that counts anyway must not be hidden by a better attempt.
    assert!(!is_repeated(Account { lost: 1, ..Account::default() }, &["busy"]));
    assert!(!is_repeated(Account { doubled: 1, ..Account::default() }, &["busy"]));
}

#[test]
fn a_run_that_broke_fails_and_one_that_this_binary_can_t_do_does_not() {
    let with = |outcome| {
        let row = ResultRow { policy: "random".to_owned(), about: Fault::DrainedByAdmin, outcome };
        limits(&Results { matrix: vec![row], ..by_hand::nothing() })
    };
    let broken = with(ResultOutcome::Broken("the gateway ended".to_owned()));
    assert!(!is_sound(&broken));
    assert_eq!(broken[3].evidence, "random: the gateway ended");
    let unavailable = with(ResultOutcome::Unavailable("no GET /replicas".to_owned()));
    assert!(is_sound(&unavailable));
    assert!(unavailable[..3].iter().all(|limit| limit.verdict == LimitVerdict::Unknown));
}

#[test]
fn speed_limits_are_for_load_aware_policies_on_a_machine_with_time() {
    let slow = vec![
        by_hand::slow_row("power_of_two", 1.5, &[]),
        by_hand::slow_row("least_connections", 1.51, &[]),
        by_hand::slow_row("random", 9.0, &[]),
        by_hand::slow_row("new_policy", 1.0, &["busy"]),
    ];
    let results = Results { slow, ..by_hand::nothing() };
    assert_eq!(
        verdicts(&results)[5..],
        [LimitVerdict::Holds, LimitVerdict::Fails, LimitVerdict::Unknown]
    );
    // A missed aim is shown, but does not fail the command.
    let limits = limits(&results);
    assert!(is_sound(&limits));
    assert_eq!(limits[7].evidence, "1.00 in an invalid run");
}

#[test]
fn the_limit_on_the_herd_is_for_slow_start() {
    let herd = |about, ratio| {
        let herd = vec![by_hand::herd_row(about, ratio)];
        verdicts(&Results { herd, ..by_hand::nothing() })[5..].to_vec()
    };
    assert_eq!(herd(SlowStart::On, 2.0), [LimitVerdict::Holds]);
    assert_eq!(herd(SlowStart::On, 2.1), [LimitVerdict::Fails]);
    assert_eq!(herd(SlowStart::Off, 9.0), []);
}
