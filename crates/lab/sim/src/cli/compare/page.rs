//! Page of all experiments.

use std::fmt::Write;

use spillway_sim::{Baseline, Cell, Contender, Standing};

use super::arguments::every_cell;
use super::experiments::{FAULTS, LOSS, MAIN, NODES, Part, RTT, SIGNALS, SPEEDS};
use super::faults::{FAULTS_TEXT, faults};
use super::frontier::{self, frontier};
use super::tables::{side_by_side, table, verdicts};
use super::topics::{
    Varied, crowd, crowds, entries, goodput_by_gpus, gpus_needed, overload, recovery, seeds,
    skywalker, varied,
};
use super::trial::TRIAL;
use super::trial_tables::{chosen, everybody};
use crate::cli::tables::Table;

/// Experiments with varied conditions: name, title, text and the condition.
const VARIED: [(&str, &str, &str, Varied); 5] = [
    (
        NODES,
        "Gateway nodes in each region",
        "Columns: nodes in each region. Nodes of one region hear of each other's requests late.",
        |conditions| conditions.nodes as f64,
    ),
    (
        SIGNALS,
        "Late signals",
        "Columns: milliseconds between two looks at a replica.",
        |conditions| conditions.signals_ms,
    ),
    (
        LOSS,
        "Lost news",
        "Columns: share of the news between nodes and between regions that is lost.",
        |conditions| conditions.lost,
    ),
    (
        RTT,
        "Wrong round-trip times",
        "Columns: error of the round-trip times that nodes believe. With 0.3 each pair of regions is \
         off by a factor between 1/1.3 and 1.3.",
        |conditions| conditions.rtt_error,
    ),
    (
        SPEEDS,
        "Wrong speeds",
        "Columns: error of the speeds of replicas that nodes learn. With 0.3 each node is wrong about \
         each replica by a factor between 1/1.3 and 1.3.",
        |conditions| conditions.speed_error,
    ),
];

/// Returns the page as Markdown.
pub(super) fn page(parts: &[Part], standings: &[Standing]) -> String {
    let mut text = HEAD.to_owned();
    let seeds = seeds(parts);
    let _infallible = writeln!(text, "\nSeeds: {seeds}.\n\n## Cells\n\n{}", cells().markdown());
    let _infallible = write!(text, "## Baselines\n\n{}", baselines(parts).markdown());
    section(&mut text, &everybody(parts), EVERYBODY_TEXT);
    section(&mut text, &chosen(parts), CHOSEN_TEXT);
    section(&mut text, &side_by_side(SUMMARY, standings), SUMMARY_TEXT);
    let _infallible = write!(text, "\n```text\n{}```\n\n", verdicts(standings));
    text.push_str("![Ratios by cell](routing.svg)\n");
    section(&mut text, &side_by_side(CROWDS, &crowds(parts)), CROWDS_TEXT);
    section(&mut text, &crowd(parts), CROWD_TEXT);
    section(&mut text, &skywalker(parts), SKYWALKER_TEXT);
    section(&mut text, &goodput_by_gpus(parts), GPUS_TEXT);
    section(&mut text, &gpus_needed(parts), NEEDED_TEXT);
    let points = frontier::points(parts);
    section(&mut text, &frontier(&points), &frontier::about(&points));
    for (name, title, about, of) in VARIED {
        let about = format!("{about} {VARIED_TEXT}");
        section(&mut text, &varied(parts, name, title, of), &about);
    }
    section(&mut text, &overload(parts), OVERLOAD_TEXT);
    section(&mut text, &recovery(parts), RECOVERY_TEXT);
    section(&mut text, &faults(entries(parts, FAULTS)), FAULTS_TEXT);
    text
}

/// Adds a table under its title; one without lines is left out.
fn section(text: &mut String, table: &Table, about: &str) {
    if !table.lines.is_empty() {
        let about = if about.is_empty() { String::new() } else { format!("{about}\n\n") };
        let _infallible = write!(text, "\n## {}\n\n{about}{}", table.title, table.markdown());
    }
}

fn cells() -> Table {
    let line = |cell: &Cell| vec![format!("`{}`", cell.name()), cell.about().to_owned()];
    table("Cells", &["cell", "what it is"], every_cell().map(line).collect())
}

/// Returns the table of the baselines that took part, if only in the trial.
fn baselines(parts: &[Part]) -> Table {
    let entries = [TRIAL, MAIN].map(|name| entries(parts, name));
    let took_part = |one: &&Baseline| {
        let mut all = entries.iter().flat_map(|entries| entries.iter());
        all.any(|entry| Contender::baseline_of(&entry.contender) == one.name)
    };
    let line = |baseline: &Baseline| {
        vec![
            format!("`{}`", baseline.name),
            baseline.about.to_string(),
            baseline.source.to_string(),
        ]
    };
    let lines = Baseline::all().iter().filter(took_part).map(line).collect();
    table("Baselines", &["baseline", "what it is", "source"], lines)
}

const HEAD: &str = "\
# Routing against published baselines

Made by these commands; edit nothing here by hand. The same seeds give the same figures on every machine. DIR has the traces.
`--trial FILE` takes the scores of baselines from what it printed before.

```sh
cargo run --release -p spillway-sim -- compare --page --routers spillway,spillway:knowledge=events --traces DIR --json > routing.json
cargo run --release -p spillway-sim -- compare --page --read routing.json --markdown docs/measured/routing.md
```

Each cell is a world of virtual time: regions with gateways, engines as in docs/reference/emulator.md, and clients. `spillway-sim compare
--cells NAME` prints all contenders of one cell; `spillway-sim run --cell NAME` one run.

How to read it:

- `goodput/s` counts the requests a second that meet the objective. On an L4 the first token comes within 1 s and twice the time
  that the prompt alone takes to be read, and the others follow within 250 ms each. On an A100 or two H100 these are 0.5 s and 60 ms.
- `p95 ms` is the 95th percentile of the time to first token over all requests. A request that failed counts as 30 s on an L4 and
  as 60 s on an A100.
- `tpot` is the mean time per token of a reply after its first one; `tpot p95 ms` is the 95th percentile over all requests with a
  whole reply, and beside it stands its mean ratio to that of the best baseline by this figure.
- `× best` is the mean over the seeds of Spillway's figure over that of the best baseline of this cell, run with the same seed.
  The best baseline has the best mean over the seeds, for goodput and for p95 each its own. The 95 % interval of the mean is by
  Student's t. The worst and the best seed stand in brackets. More is better for goodput, less for p95.
- `forwarded %` is the share of requests that another region served. Prompts and replies have 4 bytes a token where bytes are
  counted.
- All baselines run in each cell with seed 11 first: the trial. Only the finalists run with the seeds below: the three best by
  goodput, the three best by p95, and the best by each of SkyWalker's variants and of the routers that never leave a region. Cells
  of the sections on GPUs, overload and recovery have trials of their own. Best baselines everywhere are the best of the finalists.
- A central router sees the replicas of all regions; requests and tokens pass through it. It stands in one region: in the first
  one, which has most clients where regions differ, or in that whose number follows an `@`, counted from 0. The trial runs all
  central baselines in the first region, and in every other one the three best by goodput and the three best by p95. Each goes on
  from the region where it was best.
- Baselines are told the same as Spillway, as late as Spillway is.
- `knowledge=events` is Spillway where engines publish KV events, as vLLM does (docs/explanation/prefix-index.md): its nodes have read them
  10 ms after each step of an engine. Baselines that are built on events read them in all runs, a central one those of all
  regions, as late as the network makes it. Until the events of a prompt come, its blocks count as cached with all of them.
";

const SUMMARY: &str = "Against the best baseline of each cell";

const CROWDS: &str = "Crowds and agents";

const CROWDS_TEXT: &str =
    "Cells beside those of the table before, which are not counted with them.";

const CROWD_TEXT: &str = "\
The questions of the crowd alone, which are few beside the conversations. `slow` counts those whose tokens come more slowly than
the objective allows, or not at all. Baselines are the finalists.";

const SUMMARY_TEXT: &str = "`=` stands where events change nothing.";

const EVERYBODY_TEXT: &str = "\
Goodput / p95 of each baseline as a part of that of the best baseline of the cell, each with the seed of the trial: geometric
means over all cells and over each group of cells. A central one counts in its best region. A goodput below 0.01 counts as 0.01. `finalist in` counts the cells in which
the baseline goes on.";

const CHOSEN_TEXT: &str = "\
The three best of the trial in each cell by each figure, as parts of the best; and the best of those that did not go on. Where
that one is near 1.00, another seed might have made it a finalist, with about the same figure.";

const SKYWALKER_TEXT: &str = "\
The better one of those SkyWalker variants that are finalists, by goodput and by p95, each in its turn. Named is the better by
goodput. In `prompts-*` the system prompts of a region just fit into the caches of its replicas. Variants that follow matches copy
them until they no longer fit, so that nearly every prompt is read again. That happens within each region: at 0.8 of
the full load Spillway is as far ahead with `spills=false`. So these cells say nothing of routing between regions.";

const GPUS_TEXT: &str = "Goodput a second under unequal load, with 9 to 18 replicas in three regions. `best within regions` is the best \
baseline that never leaves a region, `best baseline` the best of all.";

const NEEDED_TEXT: &str = "GPUs that reach the goodput of the best baseline that never leaves a region, interpolated from the table \
before; in brackets as a part of that baseline's. `≤` and `>` stand where fewer or more would have had to be tried.";

const VARIED_TEXT: &str = "Goodput and p95 of Spillway as a part of those of the best baseline of the cell, which runs with one node \
and without these faults throughout.";

const OVERLOAD_TEXT: &str = "Spillway and the best baselines where more is asked for than even all replicas together can serve. Spillway's \
admission turns away what would come too late; baselines never do.";

const RECOVERY_TEXT: &str = "Seconds from the disturbance until goodput is at least 95 % of the best baseline's from then on to the end \
of the run, in steps of 10 s. `never` stands where that did not come, or less than 30 s before the end.";
