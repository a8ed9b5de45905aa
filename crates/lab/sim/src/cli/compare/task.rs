//! Run of one contender in one cell.

use std::time::Instant;

use anyhow::{Context, ensure};
use spillway_sim::{
    Cell, Conditions, Contender, Entry, Figures, Record, Role, Scenario, Score, Traces, WorldConfig,
};

use crate::cli::batch::run_all;

/// Run of one contender in one cell.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Task<'a> {
    pub(in crate::cli) cell: &'static Cell,
    pub(in crate::cli) conditions: &'a Conditions,
    pub(in crate::cli) contender: &'a Contender,
    pub(in crate::cli) seed: u64,
}

impl Task<'_> {
    /// Returns the world of the run with its clients.
    #[expect(clippy::disallowed_methods, reason = "some moment has to stand for time 0")]
    pub(super) fn scenario(&self, traces: &Traces) -> anyhow::Result<Scenario> {
        let conditions = self.contender.conditions(self.conditions);
        let made = self.cell.scenario(&conditions, self.seed, Instant::now(), traces);
        made.with_context(|| {
            format!(
                "cell {} can't be made; --traces names the directory of traces",
                self.cell.name()
            )
        })
    }

    /// Runs the contender, and returns the world and the figures.
    pub(in crate::cli) fn run(&self, traces: &Traces) -> anyhow::Result<(WorldConfig, Figures)> {
        let scenario = self.scenario(traces)?;
        let figures = self.contender.run(&scenario);
        Ok((scenario.world, figures))
    }

    /// Returns true if an entry is the score of this run.
    pub(super) fn is_of(&self, entry: &Entry) -> bool {
        entry.seed == self.seed
            && entry.contender == self.contender.name()
            && entry.cell == self.cell.name()
            && entry.conditions == *self.conditions
    }

    /// Runs the contender, and returns its score.
    pub(super) fn entry(&self, traces: &Traces) -> anyhow::Result<Entry> {
        let (world, figures) = self.run(traces)?;
        let slo = self.cell.slo();
        let is_of_crowd = |record: &&Record| self.cell.is_of_crowd(record);
        let crowd: Vec<Record> = figures.records.iter().filter(is_of_crowd).copied().collect();
        Ok(Entry {
            cell: self.cell.name().to_owned(),
            conditions: self.conditions.clone(),
            contender: self.contender.name().to_owned(),
            role: self.contender.role(),
            seed: self.seed,
            score: Score::of(&figures, &slo, &world).with_crowd(&crowd, &slo),
        })
    }
}

/// Returns the scores of runs, in their order. Those of baselines that are known are not made again.
///
/// # Errors
///
/// Returns an error if a world can't be made, or if a run broke off.
pub(super) fn scores(
    tasks: &[&Task<'_>],
    known: &[Entry],
    traces: &Traces,
) -> anyhow::Result<Vec<Entry>> {
    let find = |task: &&Task<'_>| {
        let is_of = |entry: &&Entry| entry.role == Role::Baseline && task.is_of(entry);
        known.iter().find(is_of)
    };
    let known: Vec<Option<&Entry>> = tasks.iter().map(find).collect();
    let is_missing = |(_, known): &(&&Task<'_>, &Option<&Entry>)| known.is_none();
    let missing = tasks.iter().zip(&known).filter(is_missing);
    let missing: Vec<&Task<'_>> = missing.map(|(task, _)| *task).collect();
    let made = run_all(&missing, |task| task.entry(traces));
    // A run that panicked has no result.
    ensure!(made.len() == missing.len(), "a run broke off");
    let mut made = made.into_iter();
    let entry = |known: Option<&Entry>| known.cloned().map(Ok).or_else(|| made.next());
    known.into_iter().filter_map(entry).collect()
}
