//! Tests of rollouts of splits.

use spillway_rollout::{RolloutChange, RolloutPhase, RolloutProgress};

use crate::golden_test::rolled_out_split;
use crate::test_world::{World, put};
use crate::{Command, Expect, Item, RefusalCode, Split};

fn world() -> World {
    let mut world = World::of(&[("a", 1)]);
    world.done(put(Item::Split("v".into(), rolled_out_split())));
    world
}

fn change(change: RolloutChange, number: Option<u32>) -> Command {
    let why = "slower".to_owned();
    Command::ChangeRollout { split: "v".into(), change, number, why, expect: Expect::Any }
}

fn progress(world: &World) -> RolloutProgress {
    let split = world.state.records().splits.get(&"v".into()).expect("it is there");
    split.rollout.as_ref().expect("it has a rollout").progress.clone()
}

fn rewritten(change: fn(&mut Split)) -> Command {
    let mut split = rolled_out_split();
    change(&mut split);
    put(Item::Split("v".into(), split))
}

#[test]
fn a_guard_s_decision_is_carried_out_once_and_says_why() {
    let mut world = world();
    assert_eq!(progress(&world).since_ms, world.state.stamp_ms());
    let decision = change(RolloutChange::RollBack, Some(0));
    world.applied("a1", decision.clone());
    let rolled_back = progress(&world);
    assert_eq!((rolled_back.number, rolled_back.phase), (1, RolloutPhase::RolledBack));
    assert_eq!(rolled_back.why, "slower");
    // Another node that has decided the same.
    assert_eq!(world.refused("a1", decision), RefusalCode::StaleEpoch);
    assert_eq!(progress(&world), rolled_back);
}

#[test]
fn nodes_only_move_on_or_roll_back_over_what_they_have_seen() {
    let mut world = world();
    for not_theirs in [
        change(RolloutChange::Pause, Some(0)),
        change(RolloutChange::Complete, Some(0)),
        change(RolloutChange::Restart, Some(0)),
        change(RolloutChange::RollBack, None),
    ] {
        assert_eq!(world.refused("a1", not_theirs), RefusalCode::NotPermitted);
    }
    world.applied("a1", change(RolloutChange::Advance, Some(0)));
    assert_eq!(progress(&world).step, 1);
}

#[test]
fn operators_make_any_change_that_the_phase_allows() {
    let mut world = world();
    world.done(change(RolloutChange::Pause, None));
    assert_eq!(world.denied(change(RolloutChange::Pause, None)), RefusalCode::Transition);
    world.done(change(RolloutChange::Resume, None));
    world.done(change(RolloutChange::Complete, None));
    assert_eq!(progress(&world).phase, RolloutPhase::Completed);
    world.done(change(RolloutChange::Restart, None));
    let again = progress(&world);
    assert_eq!((again.phase, again.step, again.number), (RolloutPhase::Running, 0, 4));
}

#[test]
fn a_split_that_is_written_again_goes_on_and_another_plan_begins_anew() {
    let mut world = world();
    world.done(change(RolloutChange::Advance, None));
    world.done(rewritten(|split| split.by = None));
    assert_eq!(progress(&world).step, 1, "the plan is the same");
    let changed = |split: &mut Split| split.rollout.as_mut().unwrap().plan.requests_min = 7;
    world.done(rewritten(changed));
    let anew = progress(&world);
    assert_eq!((anew.step, anew.number, anew.epoch), (0, 2, 2), "no number comes twice");
    assert_eq!(
        world.refused("a1", change(RolloutChange::Advance, Some(1))),
        RefusalCode::StaleEpoch
    );
    world.done(rewritten(|split| split.rollout = None));
    assert_eq!(world.denied(change(RolloutChange::Advance, None)), RefusalCode::Unknown);
}

#[test]
fn a_plan_that_does_not_fit_its_split_is_refused() {
    let mut world = world();
    for wrong in [
        |split: &mut Split| split.rollout.as_mut().unwrap().plan.candidate = "z".into(),
        |split: &mut Split| split.rollout.as_mut().unwrap().plan.steps.clear(),
        |split: &mut Split| split.rollout.as_mut().unwrap().plan.false_alarms_permille = 0,
    ] {
        assert_eq!(world.denied(rewritten(wrong)), RefusalCode::Invalid);
    }
}
