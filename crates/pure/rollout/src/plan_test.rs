use super::*;
use crate::{Finding, Measure};

fn plan() -> RolloutPlan {
    let step = |candidate_permille| RolloutStep { candidate_permille, hold_s: 60 };
    RolloutPlan {
        baseline: "stable".into(),
        candidate: "canary".into(),
        steps: [10, 250, 1_000].map(step).to_vec(),
        requests_min: 100,
        margins: AgreedMargins { failed: Some(10), ..AgreedMargins::default() },
        false_alarms_permille: 50,
    }
}

fn finding() -> Finding {
    Finding { measure: Measure::Failed, baseline: Some(0.01), candidate: Some(0.2), evidence: 1.5 }
}

/// Makes the changes one after the other, a second apart.
fn after(changes: &[RolloutChange]) -> Result<RolloutProgress, RolloutChangeError> {
    let times = (1_000..).step_by(1_000);
    changes.iter().zip(times).try_fold(RolloutProgress::default(), |progress, (change, now_ms)| {
        plan().after(&progress, *change, now_ms, change.name())
    })
}

use RolloutChange::{Advance, Complete, Pause, Restart, Resume, RollBack};

#[test]
fn a_rollout_goes_from_step_to_step_until_it_is_complete() {
    for (changes, share, phase) in [
        (&[][..], 10, RolloutPhase::Running),
        (&[Advance], 250, RolloutPhase::Running),
        (&[Advance, Advance], 1_000, RolloutPhase::Running),
        (&[Advance, Advance, Advance], 1_000, RolloutPhase::Completed),
        (&[Complete], 1_000, RolloutPhase::Completed),
        (&[Advance, Pause], 250, RolloutPhase::Paused),
        (&[Pause, Advance], 250, RolloutPhase::Paused),
        (&[Pause, Resume], 10, RolloutPhase::Running),
        (&[Advance, RollBack], 0, RolloutPhase::RolledBack),
        (&[Complete, RollBack], 0, RolloutPhase::RolledBack),
        (&[Advance, RollBack, Restart], 10, RolloutPhase::Running),
    ] {
        let progress = after(changes).expect("it is possible");
        assert_eq!(plan().candidate_permille(&progress), share, "{changes:?}");
        assert_eq!(progress.phase, phase, "{changes:?}");
        assert_eq!(progress.number as usize, changes.len());
        assert_eq!(progress.why, changes.last().map_or("", |last| last.name()));
    }
}

#[test]
fn the_other_arms_share_what_the_candidate_leaves() {
    let names: [ArmName; 3] = ["stable", "canary", "third"].map(Into::into);
    let weights = |changes: &[RolloutChange], own: [u32; 3]| {
        let own: Vec<_> = names.iter().zip(own).collect();
        plan().weights(&after(changes).expect("it is possible"), &own)
    };
    assert_eq!(weights(&[Advance], [600, 300, 100]), [750 * 600, 250 * 700, 750 * 100]);
    assert_eq!(weights(&[Advance], [0, 1_000, 0]), [750, 250, 0]);
    assert_eq!(weights(&[Complete], [600, 300, 100]), [0, 1_000 * 700, 0]);
    assert_eq!(weights(&[RollBack], [0, 1_000, 0]), [1_000, 0, 0]);
    assert_eq!(weights(&[RollBack], [900, 100, 0]), [1_000 * 900, 0, 0]);
}

#[test]
fn what_a_phase_does_not_allow_is_refused() {
    for changes in [
        &[Resume][..],
        &[Pause, Pause],
        &[RollBack, Advance],
        &[RollBack, Resume],
        &[RollBack, RollBack],
        &[RollBack, Complete],
        &[Complete, Advance],
        &[Complete, Pause],
    ] {
        after(changes).expect_err("it is refused");
    }
    let error = after(&[RollBack, Advance]).unwrap_err().to_string();
    assert_eq!(error, "a rollout that is rolled back can't advance");
}

#[test]
fn figures_count_from_the_last_change_of_the_share() {
    let epoch = |changes: &[RolloutChange]| after(changes).map(|it| (it.epoch, it.since_ms));
    assert_eq!(epoch(&[Pause, Resume]), Ok((0, 0)));
    assert_eq!(epoch(&[Advance]), Ok((1, 1_000)));
    assert_eq!(epoch(&[Advance, Pause, Resume]), Ok((1, 1_000)));
    // The share stays, so the guard keeps what it knows.
    assert_eq!(epoch(&[Advance, Advance, Advance]), Ok((2, 2_000)));
    assert_eq!(epoch(&[Restart]), Ok((1, 1_000)));
}

#[test]
fn the_next_step_needs_time_requests_and_a_guard_without_doubt() {
    let (begun, good) = (RolloutProgress::default(), Judgement::Good);
    let doubtful = Judgement::Doubtful(finding());
    let next = |now_ms, judgement, requests| plan().next(&begun, now_ms, judgement, requests);
    assert_eq!(next(60_000, &good, 100), Some(Advance));
    assert_eq!(next(59_999, &good, 100), None);
    assert_eq!(next(60_000, &good, 99), None);
    assert_eq!(next(60_000, &doubtful, 100), None);
    assert_eq!(next(0, &Judgement::Worse(finding()), 1), Some(RollBack));
}

#[test]
fn a_paused_rollout_waits_but_its_guard_does_not() {
    let paused = after(&[Pause]).unwrap();
    assert_eq!(plan().next(&paused, u64::MAX, &Judgement::Good, u64::MAX), None);
    let worse = Judgement::Worse(finding());
    assert_eq!(plan().next(&paused, 0, &worse, 1), Some(RollBack));
    for over in [&[Complete][..], &[RollBack]] {
        let progress = after(over).unwrap();
        assert_eq!(plan().next(&progress, u64::MAX, &worse, u64::MAX), None);
        assert!(!plan().is_watched(&progress));
    }
}

#[test]
fn plans_that_can_not_be_carried_out_are_refused() {
    assert_eq!(plan().check(), Ok(()));
    let with = |change: fn(&mut RolloutPlan)| {
        let mut plan = plan();
        change(&mut plan);
        plan.check().expect_err("it is refused").to_string()
    };
    let one_arm = with(|plan| plan.candidate = "stable".into());
    assert_eq!(one_arm, "the candidate stable is the baseline, too");
    assert_eq!(with(|plan| plan.steps.clear()), "a rollout has 1 to 16 steps, not 0");
    let share = "step 2 does not give the candidate more than the step before, up to 100 %";
    assert_eq!(with(|plan| plan.steps[1].candidate_permille = 10), share);
    assert_eq!(with(|plan| plan.steps[1].candidate_permille = 1_001), share);
    assert_eq!(with(|plan| plan.steps[0].hold_s = u32::MAX), "step 1 holds for longer than a week");
    let alarms = "the share of false alarms is not above 0 and below 100 %";
    assert_eq!(with(|plan| plan.false_alarms_permille = 0), alarms);
    assert_eq!(with(|plan| plan.false_alarms_permille = 1_000), alarms);
}

#[test]
fn a_progress_of_another_plan_is_no_panic() {
    let beyond = RolloutProgress { step: 9, ..RolloutProgress::default() };
    assert_eq!(plan().candidate_permille(&beyond), 0);
    assert_eq!(plan().next(&beyond, u64::MAX, &Judgement::Good, u64::MAX), None);
    let ended = plan().after(&beyond, Advance, 1, "").expect("it ends");
    assert_eq!(ended.phase, RolloutPhase::Completed);
}
