//! Contests between routers: runs, tables and the page of all experiments.

mod arguments;
mod experiments;
mod faults;
mod page;
mod plot;
mod tables;
mod task;
mod topics;
mod trial;
mod trial_tables;

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, ensure};
use spillway_sim::{Baseline, Entry, Standing};

use super::files::{read, write};
use arguments::every_cell;
pub(super) use arguments::{Compare, ConditionOptions, cell};
use experiments::{Experiment, Part};
pub(super) use task::Task;

/// Lets the routers compete, and prints or writes the results.
///
/// # Errors
///
/// Returns an error if a name or a setting is unknown, or if a file can't be read or written.
pub(super) fn run(compare: &Compare) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    ensure!(compare.page || compare.trial.is_none(), "--trial needs --page");
    if compare.list {
        return Ok(write!(out, "{}", list())?);
    }
    let parts = match &compare.read {
        Some(file) => parts_of(file)?,
        None => {
            let known = compare.trial.as_deref().map(parts_of).transpose()?.unwrap_or_default();
            let known: Vec<Entry> = known.into_iter().flat_map(|part| part.entries).collect();
            experiments::run(&experiments(compare)?, &known, &compare.conditions.traces())?
        }
    };
    if compare.json {
        serde_json::to_writer(&mut out, &parts)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", plain(&parts))?;
    }
    let Some(file) = &compare.markdown else { return Ok(()) };
    let standings = main_standings(&parts);
    write(file, &page::page(&parts, &standings))?;
    write(&file.with_file_name("routing.svg"), &plot::plot(&standings))
}

/// Reads scores that `--json` printed.
fn parts_of(file: &Path) -> anyhow::Result<Vec<Part>> {
    serde_json::from_str(&read(file)?)
        .with_context(|| format!("{} has no scores of this version", file.display()))
}

fn experiments(compare: &Compare) -> anyhow::Result<Vec<Experiment>> {
    let routers = compare.routers()?;
    if compare.page {
        return experiments::all(&routers, &compare.baselines()?, &compare.seeds);
    }
    let mut contenders = routers;
    contenders.extend(compare.baselines()?);
    let conditions = vec![compare.conditions.conditions()?];
    let (cells, seeds) = (compare.cells()?, &compare.seeds);
    let usual = Experiment::new(experiments::MAIN, cells, contenders, seeds);
    Ok(vec![Experiment { conditions, ..usual }])
}

/// Returns the names of all cells, with their groups, and baselines with a sentence each.
fn list() -> String {
    let mut text = "Cells\n".to_owned();
    text += &lines(
        every_cell()
            .map(|cell| (cell.name().to_owned(), format!("{:<9} {}", cell.group(), cell.about()))),
    );
    text += "\nBaselines\n";
    let baselines = Baseline::all();
    text + &lines(baselines.iter().map(|one| (one.name.to_string(), one.about.to_string())))
}

fn lines(all: impl Iterator<Item = (String, String)>) -> String {
    all.map(|(name, about)| format!("  {name:<24} {about}\n")).collect()
}

/// Returns the standings of the experiment with all cells.
fn main_standings(parts: &[Part]) -> Vec<Standing> {
    parts
        .iter()
        .filter(|part| part.experiment == experiments::MAIN)
        .flat_map(|part| Standing::all(&part.entries))
        .collect()
}

fn plain(parts: &[Part]) -> String {
    let standings = main_standings(parts);
    let mut text = String::new();
    for standing in &standings {
        let table = tables::of_cell(standing);
        text += &format!("{}\n{}\n", table.title, table.plain());
    }
    let broken = faults::faults(topics::entries(parts, experiments::MAIN));
    for more in [broken, topics::crowd_of(&standings)].iter().filter(|one| !one.lines.is_empty()) {
        text += &format!("{}\n{}\n", more.title, more.plain());
    }
    text + &tables::summary(&standings).plain() + "\n" + &tables::verdicts(&standings)
}
