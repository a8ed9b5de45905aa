use std::time::Duration;

use super::*;
use crate::RequestFacts;

const MARGINS: Margins = Margins {
    failed: Some(0.01),
    first_token: Some(0.2),
    token_time: Some(0.2),
    tokens: Some(0.3),
};

/// How an arm behaves.
#[derive(Clone, Copy)]
struct Arm {
    failed: f64,
    slower: f64,
    tokens: f64,
}

const USUAL: Arm = Arm { failed: 0.01, slower: 1.0, tokens: 1.0 };

fn request(arm: Arm, rng: &mut fastrand::Rng) -> RequestFacts {
    if rng.f64() < arm.failed {
        return RequestFacts { has_failed: true, ..RequestFacts::default() };
    }
    // Heavy tails, as first tokens have.
    let tail = (1.0 - rng.f64()).powf(-0.5);
    let gap = Duration::from_secs_f64(0.01 * arm.slower * (0.5 + rng.f64()));
    RequestFacts {
        has_failed: false,
        first_token: Some(Duration::from_secs_f64(0.1 * arm.slower * tail)),
        token_time: Some(gap),
        tokens: Some((200.0 * arm.tokens * (0.2 + rng.f64())) as u64),
    }
}

/// Returns the number of the candidate's requests until it was found worse, and by what; `None` if
/// it never was. The candidate has a tenth of all requests.
fn run(candidate: Arm, requests: u64, rng: &mut fastrand::Rng) -> Option<(u64, Measure)> {
    let guard = Guard::new(MARGINS, 0.05, 5).expect("good rules");
    let (mut base, mut other) = (ArmFigures::default(), ArmFigures::default());
    for number in 1..=requests {
        if rng.u8(..10) == 0 {
            other.record(request(candidate, rng));
        } else {
            base.record(request(USUAL, rng));
        }
        if number % 50 == 0
            && let Judgement::Worse(finding) = guard.judge(&base, &other)
        {
            return Some((other.requests, finding.measure));
        }
    }
    None
}

#[test]
fn an_arm_as_good_as_its_baseline_is_hardly_ever_found_worse() {
    let mut rng = fastrand::Rng::with_seed(11);
    let found = (0..100).filter(|_| run(USUAL, 2_000, &mut rng).is_some()).count();
    assert!(found <= 5, "{found} of 100");
}

#[track_caller]
fn check_found(candidate: Arm, requests_max: u64, measure: Measure) {
    for seed in 0..10 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (requests, by) = run(candidate, 40_000, &mut rng).expect("it is worse");
        assert!(requests <= requests_max, "seed {seed}: after {requests} requests");
        assert_eq!(by, measure, "seed {seed}");
    }
}

#[test]
fn an_arm_that_fails_more_is_found_worse() {
    check_found(Arm { failed: 0.05, ..USUAL }, 2_000, Measure::Failed);
}

#[test]
fn an_arm_that_always_fails_is_found_worse_at_once() {
    check_found(Arm { failed: 1.0, ..USUAL }, 30, Measure::Failed);
}

#[test]
fn an_arm_that_is_twice_as_slow_is_found_worse() {
    for seed in 0..10 {
        let slow = Arm { slower: 2.0, ..USUAL };
        let (requests, by) = run(slow, 40_000, &mut fastrand::Rng::with_seed(seed)).expect("slow");
        assert!(requests <= 200, "seed {seed}: after {requests} requests");
        assert!(matches!(by, Measure::FirstToken | Measure::TokenTime), "{by}");
    }
}

#[test]
fn replies_that_are_much_shorter_or_longer_are_found() {
    for tokens in [0.4, 2.5] {
        check_found(Arm { tokens, ..USUAL }, 300, Measure::Tokens);
    }
}

#[test]
fn an_arm_that_is_better_in_all_respects_is_never_doubted() {
    let better = Arm { failed: 0.0, slower: 0.5, tokens: 1.0 };
    let guard = Guard::new(MARGINS, 0.05, 1).expect("good rules");
    let mut rng = fastrand::Rng::with_seed(5);
    let (mut base, mut other) = (ArmFigures::default(), ArmFigures::default());
    for _ in 0..500 {
        base.record(request(USUAL, &mut rng));
        other.record(request(better, &mut rng));
        assert_eq!(guard.judge(&base, &other), Judgement::Good);
    }
}

#[test]
fn nothing_is_found_without_requests_or_margins() {
    let guard = Guard::new(MARGINS, 0.05, 1).expect("good rules");
    let (none, mut bad) = (ArmFigures::default(), ArmFigures::default());
    assert_eq!(guard.judge(&none, &none), Judgement::Good);
    (0..100).for_each(|_| bad.record(RequestFacts { has_failed: true, ..Default::default() }));
    let blind = Guard::new(Margins::default(), 0.05, 1).expect("good rules");
    let mut good = ArmFigures::default();
    (0..100).for_each(|_| good.record(RequestFacts::default()));
    assert_eq!(blind.judge(&good, &bad), Judgement::Good);
    assert!(matches!(guard.judge(&good, &bad), Judgement::Worse(_)));
}

#[test]
fn figures_of_nodes_that_are_added_say_what_one_node_would() {
    let mut rng = fastrand::Rng::with_seed(3);
    let (mut all, mut nodes) = (ArmFigures::default(), [const { None::<ArmFigures> }; 3]);
    for number in 0..300 {
        let facts = request(USUAL, &mut rng);
        all.record(facts);
        nodes[number % 3].get_or_insert_default().record(facts);
    }
    let mut merged = ArmFigures::default();
    nodes.iter().flatten().for_each(|node| merged.merge(node));
    assert_eq!(merged, all);
}

#[test]
fn figures_that_contradict_themselves_are_no_panic() {
    let broken = ArmFigures { requests: 3, failed: u64::MAX, ..ArmFigures::default() };
    let guard = Guard::new(MARGINS, 0.05, 1).expect("good rules");
    let mut merged = broken.clone();
    merged.merge(&broken);
    drop(guard.judge(&broken, &merged));
}

#[test]
fn rules_without_a_meaning_are_refused() {
    for false_alarms in [0.0, 1.0, -0.1, f64::NAN] {
        assert_eq!(Guard::new(MARGINS, false_alarms, 1), Err(GuardError::FalseAlarms));
    }
    for margin in [-0.1, f64::NAN] {
        let margins = Margins { tokens: Some(margin), ..MARGINS };
        assert_eq!(Guard::new(margins, 0.05, 1), Err(GuardError::Margin(Measure::Tokens)));
    }
}
