use super::*;

/// Evidence that refutes a claim at 5 %.
const ENOUGH: f64 = 2.995_732_273_553_991;

fn share(hits: u64, total: u64) -> Share {
    Share { hits, total }
}

#[test]
fn nothing_observed_is_no_evidence() {
    assert!(share(0, 0).against(0.5).abs() < 1e-12);
    assert!(against_no_worse(share(0, 0), share(0, 0), 0.01).abs() < 1e-9);
}

#[test]
fn one_trial_doubles_or_halves_what_the_prior_expects() {
    // The prior's mean is a half, so one hit has probability 1/2 under it, against 1/4 claimed.
    assert!((share(1, 1).against(0.25) - 2.0_f64.ln()).abs() < 1e-12);
    assert!((share(0, 1).against(0.25) - (0.5_f64 / 0.75).ln()).abs() < 1e-12);
}

#[test]
fn the_impossible_is_refuted_at_once_and_the_certain_never() {
    assert_eq!(share(1, 9).against(0.0), f64::INFINITY);
    assert_eq!(share(8, 9).against(1.0), f64::INFINITY);
    assert!(share(0, 9).against(0.0) < 0.0);
    assert!(share(9, 9).against(1.0) < 0.0);
}

#[test]
fn the_mean_of_the_evidence_is_one_while_the_claim_is_true() {
    // All outcomes of 12 trials with their probabilities: the sum is exact, no luck is in it.
    let (total, p) = (12_u64, 0.3_f64);
    let mean: f64 = (0..=total)
        .map(|hits| {
            let choose = (1..=hits).fold(1.0, |c, i| c * to_f64(total - hits + i) / to_f64(i));
            let log = log_likelihood(to_f64(hits), to_f64(total - hits), p);
            choose * (log + share(hits, total).against(p)).exp()
        })
        .sum();
    assert!((mean - 1.0).abs() < 1e-9, "{mean}");
}

#[test]
fn one_sided_claims_are_refuted_from_their_side_alone() {
    assert!(share(90, 100).against_at_least(0.5) < 0.0);
    assert!(share(90, 100).against_at_most(0.5) > ENOUGH);
    assert!(share(10, 100).against_at_least(0.5) > ENOUGH);
    assert!(share(10, 100).against_at_most(0.5) < 0.0);
}

#[test]
fn a_candidate_is_worse_only_beyond_its_margin() {
    let baseline = share(100, 10_000);
    assert!(against_no_worse(baseline, share(50, 1_000), 0.0) > ENOUGH);
    assert!(against_no_worse(baseline, share(50, 1_000), 0.01) > ENOUGH);
    assert!(against_no_worse(baseline, share(50, 1_000), 0.05) < 0.0);
    assert!(against_no_worse(baseline, share(0, 1_000), 0.0) < 0.0);
}

#[test]
fn a_baseline_without_requests_accuses_nobody() {
    assert!(against_no_worse(share(0, 0), share(900, 1_000), 0.0) < ENOUGH);
}

#[test]
fn large_counts_keep_the_evidence_finite_and_right() {
    let baseline = share(1_000_000_000, 100_000_000_000);
    assert!(against_no_worse(baseline, share(10_000_000, 1_000_000_000), 0.001) < 0.0);
    assert!(against_no_worse(baseline, share(20_000_000, 1_000_000_000), 0.001) > ENOUGH);
}

proptest::proptest! {
    #[test]
    fn a_wider_margin_never_accuses_more(
        base in 0_u64..400, failed in 0_u64..400, (narrow, wide) in (0.0..0.5, 0.0..0.5),
    ) {
        let (narrow, wide) = if narrow < wide { (narrow, wide) } else { (wide, narrow) };
        let of = |margin| against_no_worse(share(base, 400), share(failed, 400), margin);
        proptest::prop_assert!(of(wide) <= of(narrow) + 1e-6);
    }
}
