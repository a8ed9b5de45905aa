//! One run of one router in one cell.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;
use spillway_sim::{Contender, Figures, Record, Score, Slo, WorldConfig};

use super::compare::{ConditionOptions, Task, cell};
use super::files::write;
use super::records;
use super::tables::Table;

/// Runs one router once, and prints figures of the world and of the clients of each region.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  spillway-sim run --cell skew-120-40-40 --router spillway:spills=false --records requests.csv")]
pub(super) struct One {
    /// Name of the cell; `spillway-sim compare --list` prints them.
    #[arg(long)]
    cell: String,
    /// Router: spillway, spillway:key=value:key=value, omni, or the name of a baseline.
    #[arg(long, default_value = "spillway")]
    router: String,
    /// Chooses everything that chance decides.
    #[arg(long, default_value_t = 21)]
    seed: u64,
    #[command(flatten)]
    conditions: ConditionOptions,
    /// Prints JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Writes one line for each request there, as CSV.
    #[arg(long, value_name = "FILE.csv")]
    records: Option<PathBuf>,
}

/// Figures of a run.
#[derive(Debug, Serialize)]
struct Report {
    world: Score,
    regions: Vec<Score>,
}

/// Runs the router, and prints or writes what came of it.
///
/// # Errors
///
/// Returns an error if a name is unknown, or if a file can't be read or written.
pub(super) fn run(one: &One) -> anyhow::Result<()> {
    let cell = cell(&one.cell)?;
    let contender = Contender::specified(&one.router)?;
    let conditions = one.conditions.conditions()?;
    let task = Task { cell, conditions: &conditions, contender: &contender, seed: one.seed };
    let (world, figures) = task.run(&one.conditions.traces())?;
    ensure!(!figures.records.is_empty(), "no request arrived");
    let report = report(&figures, &cell.slo(), &world);
    let mut out = io::stdout().lock();
    if one.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", table(&report).plain())?;
    }
    one.records.as_ref().map_or(Ok(()), |file| write(file, &records::csv(&figures.records)))
}

fn report(figures: &Figures, slo: &Slo, world: &WorldConfig) -> Report {
    let region = |region: usize| {
        let is_here = |record: &&Record| record.region == region;
        let records = figures.records.iter().filter(is_here).copied().collect();
        let own = Figures { records, seconds: figures.seconds, ..Figures::default() };
        let score = Score::of(&own, slo, world);
        Score { gpus: world.regions[region].replicas as f64, ..score }
    };
    Report {
        world: Score::of(figures, slo, world),
        regions: (0..world.regions.len()).map(region).collect(),
    }
}

fn table(report: &Report) -> Table {
    let regions = report.regions.iter().enumerate();
    let regions = regions.map(|(at, score)| (format!("region {at}"), score));
    let line = |(name, score): (String, &Score)| {
        vec![
            name,
            format!("{:.0}", score.gpus),
            format!("{:.0}", score.requests),
            format!("{:.0}", score.failed),
            format!("{:.2}", score.goodput_per_s),
            format!("{:.0}", score.p50_ms),
            format!("{:.0}", score.p95_ms),
            format!("{:.1}", score.cached_share * 100.0),
            format!("{:.1}", score.forwarded_share * 100.0),
            format!("{:.1}", score.egress_bytes_per_s / 1_000.0),
        ]
    };
    let head = [
        "clients of",
        "GPUs",
        "requests",
        "failed",
        "goodput/s",
        "p50 ms",
        "p95 ms",
        "cached %",
        "forwarded %",
        "egress kB/s",
    ];
    let all = [("world".to_owned(), &report.world)].into_iter().chain(regions);
    Table {
        title: String::new(),
        head: head.map(str::to_owned).to_vec(),
        lines: all.map(line).collect(),
    }
}
