//! Arguments of contests between routers.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Args;
use spillway_sim::{Baseline, Cell, Conditions, Contender, Traces};

/// Lets routers compete in the same worlds, with the same seeds.
///
/// A router is `spillway`, `spillway:key=value:key=value` with other settings, or `omni`, which is
/// Spillway's code with the truth and no delays. Keys are paths: spill.gain_share, predicted.kappa,
/// knowledge, spills and so on; a wrong one gets a list of all.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  spillway-sim compare --list
  spillway-sim compare --cells all --routers spillway,spillway:predicted.kappa=0 --seeds 21,22
  spillway-sim compare --page --traces DIR --json > routing.json
  spillway-sim compare --page --traces DIR --trial routing.json --json > new.json
  spillway-sim compare --page --read routing.json --markdown docs/measured/routing.md")]
pub(in crate::cli) struct Compare {
    /// Names of cells or of groups of cells, or all.
    #[arg(long, value_delimiter = ',', default_value = "all")]
    pub(super) cells: Vec<String>,
    /// Routers: spillway, spillway:key=value:key=value, omni.
    #[arg(long, value_delimiter = ',', default_value = "spillway")]
    pub(super) routers: Vec<String>,
    /// Names of baselines, all or none.
    #[arg(long, value_delimiter = ',', default_value = "all")]
    pub(super) baselines: Vec<String>,
    /// Seeds: each router runs with each of them.
    #[arg(long, value_delimiter = ',', default_value = "21,22,23,24,25")]
    pub(super) seeds: Vec<u64>,
    #[command(flatten)]
    pub(super) conditions: ConditionOptions,
    /// Prints all cells and baselines with a sentence each, and runs nothing.
    #[arg(long)]
    pub(super) list: bool,
    /// Runs the experiments of the page docs/measured/routing.md instead: all cells, and some under
    /// other conditions. Baselines run with seed 11 first; only the best of each world go on.
    #[arg(long, conflicts_with_all = [
        "cells", "nodes", "replicas", "signals_ms", "kv_events_ms", "lost", "jitter", "rtt_error",
        "speed_error",
    ])]
    pub(super) page: bool,
    /// With --page, takes scores of baselines from there, which --json printed before, and runs those
    /// alone that are missing. They stay the same as long as cells, engines and baselines do.
    #[arg(long, value_name = "FILE.json")]
    pub(super) trial: Option<PathBuf>,
    /// Prints the scores of all runs as JSON instead of tables.
    #[arg(long)]
    pub(super) json: bool,
    /// With --page, writes the page there, and a plot beside it.
    #[arg(long, value_name = "FILE", requires = "page")]
    pub(super) markdown: Option<PathBuf>,
    /// Reads scores that --json printed, and runs nothing.
    #[arg(long, value_name = "FILE.json")]
    pub(super) read: Option<PathBuf>,
}

/// Options of the worlds that cells run in.
#[derive(Clone, Debug, Args)]
pub(in crate::cli) struct ConditionOptions {
    #[command(flatten)]
    conditions: Conditions,
    /// Directory of the traces that some cells play.
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
}

impl ConditionOptions {
    /// Returns the conditions.
    pub(in crate::cli) fn conditions(&self) -> anyhow::Result<Conditions> {
        ensure!(self.conditions.nodes > 0, "--region-nodes has to be 1 at least");
        Ok(self.conditions.clone())
    }

    /// Reads the traces that are there.
    pub(in crate::cli) fn traces(&self) -> Traces {
        let dir = self.traces.as_deref();
        Traces::new(|name| fs::read_to_string(dir?.join(name)).ok())
    }
}

/// Returns the cell with this name.
pub(in crate::cli) fn cell(name: &str) -> anyhow::Result<&'static Cell> {
    Cell::named(name).with_context(|| {
        let names: Vec<&str> = every_cell().map(Cell::name).collect();
        format!("no cell is called {name}; there are {}", names.join(", "))
    })
}

/// Returns the cells of the comparison and those besides.
pub(super) fn every_cell() -> impl Iterator<Item = &'static Cell> {
    Cell::all().iter().chain(Cell::besides())
}

impl Compare {
    /// Returns the contenders that `--routers` names.
    pub(super) fn routers(&self) -> anyhow::Result<Vec<Contender>> {
        self.routers.iter().map(|text| Ok(Contender::specified(text)?)).collect()
    }

    /// Returns the contenders that `--baselines` names.
    pub(super) fn baselines(&self) -> anyhow::Result<Vec<Contender>> {
        match self.baselines.as_slice() {
            [one] if one == "none" => Ok(Vec::new()),
            [one] if one == "all" => {
                Ok(Baseline::all().into_iter().map(Contender::baseline).collect())
            }
            names => names.iter().map(|name| Ok(Contender::specified(name)?)).collect(),
        }
    }

    /// Returns the cells that `--cells` names.
    pub(super) fn cells(&self) -> anyhow::Result<Vec<&'static Cell>> {
        let mut cells = Vec::new();
        for name in &self.cells {
            let group: Vec<&Cell> = every_cell().filter(|cell| cell.group() == name).collect();
            match name.as_str() {
                "all" => cells.extend(Cell::all()),
                // A cell goes before a group of the same name.
                _ if group.is_empty() || Cell::named(name).is_some() => cells.push(cell(name)?),
                _ => cells.extend(group),
            }
        }
        Ok(cells)
    }
}
