//! Run of one contender in one cell.

use std::time::Instant;

use anyhow::Context;
use spillway_sim::{
    Cell, Conditions, Contender, Entry, Figures, Scenario, Score, Traces, WorldConfig,
};

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

    /// Runs the contender, and returns the world and what came of it.
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
        Ok(Entry {
            cell: self.cell.name().to_owned(),
            conditions: self.conditions.clone(),
            contender: self.contender.name().to_owned(),
            role: self.contender.role(),
            seed: self.seed,
            score: Score::of(&figures, &self.cell.slo(), &world),
        })
    }
}
