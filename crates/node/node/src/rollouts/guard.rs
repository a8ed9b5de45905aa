//! The guard of rollouts: adds the figures of all nodes, compares the arms and proposes what
//! follows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use spillway_cluster_state::{Actor, Command, Expect, Outcome, State};
use spillway_control_plane::ControlPlane;
use spillway_link::Link;
use spillway_rollout::{Finding, Judgement, Measure, Rollout, RolloutChange};
use spillway_types::{ModelName, NodeName, unix_ms};

use super::RolloutCounts;
use super::counts::{CountedArms, FiguresQuestion, NodeFigures, PATH, watched_rollouts};
use crate::questions::{Answered, ask_each};

/// Period of comparing.
const PERIOD: Duration = Duration::from_secs(2);
/// Time limit of another node's answer. A late one counts in the next period.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Time limit of a proposal.
const LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of remembered processes. One that ended keeps its figures until their epoch ends.
const RUNS_MAX: usize = 1_024;

/// Task that watches rollouts while this node leads its cluster.
///
/// Any number of nodes may do so at the same time: a proposal names the progress that it is about,
/// and only the first one is carried out.
#[derive(Debug)]
pub(crate) struct RolloutGuard {
    me: NodeName,
    control_plane: Arc<ControlPlane>,
    link: Arc<Link>,
    counts: Arc<RolloutCounts>,
    /// Figures of each process that were heard last, so that a node that restarts or is cut off
    /// takes nothing back.
    heard: BTreeMap<u64, NodeFigures>,
}

impl RolloutGuard {
    pub(crate) fn new(
        me: &NodeName,
        control_plane: &Arc<ControlPlane>,
        link: &Arc<Link>,
        counts: &Arc<RolloutCounts>,
    ) -> Self {
        Self {
            me: me.clone(),
            control_plane: Arc::clone(control_plane),
            link: Arc::clone(link),
            counts: Arc::clone(counts),
            heard: BTreeMap::new(),
        }
    }

    /// Compares in each period.
    pub(crate) async fn run(mut self) {
        loop {
            tokio::time::sleep(PERIOD).await;
            let state = self.control_plane.published();
            let leads = self.control_plane.leader().is_some_and(|(name, _)| name == self.me);
            if !leads || watched_rollouts(&state).next().is_none() {
                self.heard.clear();
                continue;
            }
            self.hear(&state).await;
            let now_ms = unix_ms(SystemTime::now());
            for (split, rollout) in watched_rollouts(&state) {
                if let Some(command) = self.due(split, rollout, now_ms) {
                    self.propose(command).await;
                }
            }
        }
    }

    /// Asks all nodes for their figures, and forgets those of former epochs.
    async fn hear(&mut self, state: &State) {
        let asked = ask_each(&self.link, |_| true, (PATH, &FiguresQuestion {}), ANSWER_LIMIT);
        let answers: Vec<Answered<NodeFigures>> = asked.await;
        let answers = answers.into_iter().filter_map(|answer| answer.answer.ok());
        for figures in answers.chain([self.counts.figures()]) {
            if self.heard.len() < RUNS_MAX || self.heard.contains_key(&figures.run) {
                self.heard.insert(figures.run, figures);
            }
        }
        let rollouts: BTreeMap<_, _> = watched_rollouts(state).collect();
        for figures in self.heard.values_mut() {
            let is_present = |split: &ModelName, counted: &mut CountedArms| {
                rollouts.get(split).is_some_and(|it| it.progress.epoch == counted.epoch)
            };
            figures.splits.retain(is_present);
        }
        self.heard.retain(|_, figures| !figures.splits.is_empty());
    }

    /// Returns the change of a rollout that is due, with the figures behind it.
    fn due(&self, split: &ModelName, rollout: &Rollout, now_ms: u64) -> Option<Command> {
        let Rollout { plan, progress } = rollout;
        // The cluster accepts no plan without a guard.
        let guard = plan.guard().ok()?;
        let arms = self.sum(split, progress.epoch);
        let judgement = guard.judge(&arms.baseline, &arms.candidate);
        let change = plan.next(progress, now_ms, &judgement, arms.candidate.requests)?;
        let why = reason(&judgement, &arms);
        if change == RolloutChange::RollBack {
            tracing::error!(%split, candidate = %plan.candidate, why, "a rollout is rolled back");
        } else {
            tracing::info!(%split, candidate = %plan.candidate, why, "a rollout advances");
        }
        let (split, number) = (split.clone(), Some(progress.number));
        Some(Command::ChangeRollout { split, change, number, why, expect: Expect::Any })
    }

    /// Returns the figures of all nodes together.
    fn sum(&self, split: &ModelName, epoch: u32) -> CountedArms {
        let mut sum = CountedArms { epoch, ..CountedArms::default() };
        for figures in self.heard.values() {
            figures.add_to(split, epoch, (&mut sum.baseline, &mut sum.candidate));
        }
        sum
    }

    async fn propose(&self, command: Command) {
        let what = command.to_string();
        match self.control_plane.propose(command, Actor::Node, None, LIMIT).await {
            Ok(done) => match done.outcome {
                Outcome::Refused(refusal) => tracing::debug!(%refusal, what, "refused"),
                _ => tracing::info!(what, "agreed"),
            },
            // The next period judges and proposes again.
            Err(error) => tracing::debug!(%error, what, "not agreed yet"),
        }
    }
}

/// Returns the reason for a change in words, short enough for a record.
fn reason(judgement: &Judgement, arms: &CountedArms) -> String {
    let requests =
        format!("{} requests against {}", arms.candidate.requests, arms.baseline.requests);
    match judgement {
        Judgement::Worse(finding) => format!("{}, {requests}", comparison(finding)),
        Judgement::Good | Judgement::Doubtful(_) => format!("no fault found, {requests}"),
    }
}

fn comparison(finding: &Finding) -> String {
    let show = |value: Option<f64>| match (finding.measure, value) {
        (_, None) => "none".to_owned(),
        (Measure::Failed, Some(share)) => format!("{:.2} %", 100.0 * share),
        (Measure::FirstToken | Measure::TokenTime, Some(ms)) => format!("{ms:.1} ms"),
        (Measure::Tokens, Some(tokens)) => format!("{tokens:.0}"),
    };
    let (candidate, baseline) = (show(finding.candidate), show(finding.baseline));
    format!("{} {candidate} against {baseline}", finding.measure)
}
