//! Figures of this node's requests for the arms of rollouts.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use http::Response;
use serde::{Deserialize, Serialize};
use spillway_cluster_state::State;
use spillway_link::BoxBody;
use spillway_rollout::{ArmFigures, RequestFacts, Rollout};
use spillway_route::ArmReason;
use spillway_types::{ArmName, ModelName, Outcome};

use crate::questions::json_reply;

/// Path of the question for a node's figures. No client reaches it: only nodes forward requests.
pub(crate) const PATH: &str = "/.spillway/rollouts";

/// Figures of this node for the rollouts that are watched.
#[derive(Debug)]
pub(crate) struct RolloutCounts {
    /// Number of this process, so that figures of the one before it are not mistaken for its own.
    run: u64,
    watched: Mutex<BTreeMap<ModelName, Watched>>,
}

/// Figures of the two arms of a rollout since their shares changed last.
#[derive(Debug)]
struct Watched {
    baseline: ArmName,
    candidate: ArmName,
    /// Time from which this node knows of the shares. Requests that began before had others.
    since: Instant,
    counted: CountedArms,
}

/// Figures of the two arms of a rollout at one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CountedArms {
    /// The rollout's epoch that they belong to.
    pub(super) epoch: u32,
    pub(super) baseline: ArmFigures,
    pub(super) candidate: ArmFigures,
}

/// Question for a node's figures.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FiguresQuestion {}

/// Figures of a node, by split. A newer node may add fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeFigures {
    pub(super) run: u64,
    pub(super) splits: BTreeMap<ModelName, CountedArms>,
}

impl NodeFigures {
    /// Adds the figures of a rollout's arms, if they are of this epoch: of the baseline, then of the
    /// candidate.
    pub(crate) fn add_to(
        &self,
        split: &ModelName,
        epoch: u32,
        (baseline, candidate): (&mut ArmFigures, &mut ArmFigures),
    ) {
        if let Some(counted) = self.splits.get(split).filter(|it| it.epoch == epoch) {
            baseline.merge(&counted.baseline);
            candidate.merge(&counted.candidate);
        }
    }
}

impl RolloutCounts {
    /// Counts nothing until it is told what to watch.
    pub(crate) fn new() -> Self {
        Self { run: fastrand::u64(..), watched: Mutex::default() }
    }

    /// Counts for the rollouts that this state watches, from `now` on for those whose shares changed.
    pub(crate) fn watch(&self, state: &State, now: Instant) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let rollouts: BTreeMap<&ModelName, &Rollout> = watched_rollouts(state).collect();
        watched.retain(|split, _| rollouts.contains_key(split));
        for (split, Rollout { plan, progress }) in rollouts {
            let is_same = |known: &Watched| {
                known.counted.epoch == progress.epoch
                    && (&known.baseline, &known.candidate) == (&plan.baseline, &plan.candidate)
            };
            if !watched.get(split).is_some_and(is_same) {
                let counted = CountedArms { epoch: progress.epoch, ..CountedArms::default() };
                let (baseline, candidate) = (plan.baseline.clone(), plan.candidate.clone());
                let begun = Watched { baseline, candidate, since: now, counted };
                watched.insert(split.clone(), begun);
            }
        }
    }

    /// Counts requests that ended.
    pub(crate) fn counting(&self) -> Counting<'_> {
        Counting { watched: self.watched.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Returns the figures up to now.
    pub(crate) fn figures(&self) -> NodeFigures {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let splits = watched.iter().map(|(split, it)| (split.clone(), it.counted.clone()));
        NodeFigures { run: self.run, splits: splits.collect() }
    }
}

/// Access to the figures while a queue of outcomes is emptied.
#[derive(Debug)]
pub(crate) struct Counting<'c> {
    watched: std::sync::MutexGuard<'c, BTreeMap<ModelName, Watched>>,
}

impl Counting<'_> {
    /// Counts a request, if it is for a split that is watched.
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        let Some(arm) = &outcome.arm else { return };
        let Some(watched) = self.watched.get_mut(&arm.split) else { return };
        // A guest is counted by the node that its client asked.
        if outcome.is_guest || outcome.started.is_none_or(|started| started < watched.since) {
            return;
        }
        // Arms are compared by the requests that chance or a hash divides between them: a tester names
        // the arm, and a stored response binds its follow-ups to one.
        let assigned = [ArmReason::Named.name(), ArmReason::Stored.name()];
        if outcome.arm_reason.is_some_and(|reason| assigned.contains(&reason)) {
            return;
        }
        if arm.arm == watched.baseline {
            watched.counted.baseline.record(RequestFacts::from(outcome));
        } else if arm.arm == watched.candidate {
            watched.counted.candidate.record(RequestFacts::from(outcome));
        }
    }
}

/// Returns the rollouts whose arms are compared.
pub(super) fn watched_rollouts(state: &State) -> impl Iterator<Item = (&ModelName, &Rollout)> {
    let splits = state.records().splits.iter();
    let rollouts = splits.filter_map(|(name, split)| Some((name, split.rollout.as_ref()?)));
    rollouts.filter(|(_, rollout)| rollout.plan.is_watched(&rollout.progress))
}

/// Returns this node's reply to another node's question.
pub(crate) fn reply(counts: &RolloutCounts) -> Response<BoxBody> {
    json_reply(Some(&counts.figures()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use spillway_types::SplitArm;

    use super::*;

    #[test]
    fn requests_that_chance_divides_between_the_arms_are_counted_once() {
        let counts = RolloutCounts::new();
        let since = Instant::now();
        let (baseline, candidate) = (ArmName::from("old"), ArmName::from("new"));
        let watched = Watched { baseline, candidate, since, counted: CountedArms::default() };
        counts.watched.lock().unwrap().insert("chat".into(), watched);
        let ended = |split: &str, arm: &str, reason: ArmReason| Outcome {
            arm: Some(Arc::new(SplitArm { split: split.into(), arm: arm.into() })),
            arm_reason: Some(reason.name()),
            started: Some(since + Duration::from_secs(1)),
            ..Outcome::begun()
        };
        let mut counting = counts.counting();
        for reason in [ArmReason::Drawn, ArmReason::Hashed, ArmReason::Remembered] {
            counting.add(&ended("chat", "new", reason));
        }
        counting.add(&ended("chat", "old", ArmReason::Drawn));
        for left_out in [
            ended("chat", "new", ArmReason::Named),
            ended("chat", "new", ArmReason::Stored),
            ended("chat", "third", ArmReason::Drawn),
            ended("other", "new", ArmReason::Drawn),
            Outcome { is_guest: true, ..ended("chat", "new", ArmReason::Drawn) },
            Outcome { started: None, ..ended("chat", "new", ArmReason::Drawn) },
            Outcome { arm: None, ..ended("chat", "new", ArmReason::Drawn) },
        ] {
            counting.add(&left_out);
        }
        drop(counting);
        let counted = &counts.figures().splits["chat"];
        assert_eq!((counted.candidate.requests, counted.baseline.requests), (3, 1));
    }
}
