//! Rules for rollouts of splits.

use spillway_rollout::{Rollout, RolloutChange, RolloutProgress};
use spillway_types::ModelName;

use crate::rules::check;
use crate::state::{Done, Turn, proposing_node};
use crate::{ApplyError, CommandError, Expect, RefusalCode, Split};

/// Changes the progress of a split's rollout. `reason` is the number of changes that a node decided
/// over, and the text for the record.
pub(super) fn change(
    turn: &mut Turn<'_>,
    name: &ModelName,
    change: RolloutChange,
    (number, why): (Option<u32>, &str),
    expect: Expect,
) -> Result<Done, ApplyError> {
    if !turn.is_operator() {
        check_guard(turn, change, number)?;
    }
    check::text(why, "reason")?;
    let split = turn.take::<Split>(name, expect)?;
    let Some(Rollout { plan, progress }) = split.rollout else {
        let cause = format!("split {name} has no rollout");
        let remedy = "write the split with the steps of a rollout";
        return Err(CommandError::new(RefusalCode::Unknown, cause, remedy).into());
    };
    if number.is_some_and(|number| number != progress.number) {
        let cause = format!("the rollout of {name} has changed since");
        return Err(CommandError::new(RefusalCode::StaleEpoch, cause, "look again").into());
    }
    let next = plan.after(&progress, change, turn.ledger.stamp_ms, why);
    let progress = next.map_err(|error| {
        CommandError::new(RefusalCode::Transition, error.to_string(), "restart the rollout")
    })?;
    turn.put(name.clone(), Split { rollout: Some(Rollout { plan, progress }), ..split })?;
    Ok(Done::default())
}

/// Checks a change that no operator ordered: a guard only moves on or rolls back, over the progress
/// that it judged.
fn check_guard(
    turn: &Turn<'_>,
    change: RolloutChange,
    number: Option<u32>,
) -> Result<(), CommandError> {
    let is_its = matches!(change, RolloutChange::Advance | RolloutChange::RollBack);
    let is_member = proposing_node(turn.records, &turn.entry.proposer).is_some();
    if is_its && is_member && number.is_some() {
        return Ok(());
    }
    turn.check_operator()
}

/// Returns the split as it is written over `known`: a rollout goes on if its plan is the one that is
/// there, and begins if it is new.
pub(super) fn begun(turn: &Turn<'_>, name: &ModelName, split: &Split) -> Split {
    let known = turn.get::<Split>(name).and_then(|known| known.rollout.as_ref());
    let rollout = split.rollout.as_ref().map(|new| {
        let progress = match known {
            Some(known) if known.plan == new.plan => known.progress.clone(),
            // Numbers are not used again, so that no decision over the old plan fits the new one.
            Some(Rollout { progress, .. }) => RolloutProgress {
                number: progress.number.wrapping_add(1),
                epoch: progress.epoch.wrapping_add(1),
                since_ms: turn.ledger.stamp_ms,
                ..RolloutProgress::default()
            },
            None => RolloutProgress { since_ms: turn.ledger.stamp_ms, ..Default::default() },
        };
        Rollout { plan: new.plan.clone(), progress }
    });
    Split { rollout, ..split.clone() }
}

/// Checks the plan of a split's rollout.
///
/// # Errors
/// Returns an error if the plan can't be carried out with the split's arms.
pub(super) fn check_plan(split: &Split) -> Result<(), CommandError> {
    let Some(Rollout { plan, .. }) = &split.rollout else { return Ok(()) };
    let wrong = |cause: String| CommandError::invalid(cause, "correct the rollout's plan");
    plan.check().map_err(|error| wrong(error.to_string()))?;
    for name in [&plan.baseline, &plan.candidate] {
        if split.arms.iter().all(|arm| arm.name != *name) {
            return Err(wrong(format!("the split has no arm {:?}", name.as_str())));
        }
    }
    Ok(())
}
