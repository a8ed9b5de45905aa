//! One run of one router in one cell.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;
use spillway_sim::{Conditions, Contender, Figures, Record, Score, Slo, Tenant, WorldConfig};

use super::compare::{ConditionOptions, Task, cell};
use super::files::write;
use super::records;
use super::tables::Table;

/// Runs one router once, and prints figures of the world and of the clients of each region.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  spillway-sim run --cell skew-120-40-40 --router spillway:spills=false --records requests.csv
  spillway-sim run --cell chats-1.1 --tenants flood:1:10,calm:1:1")]
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
    /// Tenants among whom the sessions are divided: name, weight of its turns in queues, and part of
    /// the sessions, such as flood:1:10,calm:1:1.
    #[arg(long, value_delimiter = ',', value_name = "NAME:WEIGHT:LOAD,..", value_parser = tenant)]
    tenants: Vec<Tenant>,
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
    /// Scores of the clients of each tenant, if there are several.
    tenants: Vec<TenantScore>,
}

/// Score of one tenant.
#[derive(Debug, Serialize)]
struct TenantScore {
    name: String,
    #[serde(flatten)]
    score: Score,
}

/// Reads a tenant from its name, weight and load.
fn tenant(text: &str) -> Result<Tenant, String> {
    let wrong = || format!("{text} is not NAME:WEIGHT:LOAD, such as calm:1:1");
    let [name, weight, load] = text.split(':').collect::<Vec<_>>()[..] else {
        return Err(wrong());
    };
    match (weight.parse(), load.parse()) {
        (Ok(weight), Ok(load)) if weight > 0 => Ok(Tenant { name: name.to_owned(), weight, load }),
        _ => Err(wrong()),
    }
}

/// Runs the router, and prints or writes the results.
///
/// # Errors
///
/// Returns an error if a name is unknown, or if a file can't be read or written.
pub(super) fn run(one: &One) -> anyhow::Result<()> {
    let cell = cell(&one.cell)?;
    let contender = Contender::specified(&one.router)?;
    let conditions = one.conditions.conditions()?;
    let conditions = Conditions { tenants: one.tenants.clone(), ..conditions };
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
    one.records.as_ref().map_or(Ok(()), |file| write(file, &records::csv(&figures.records)?))
}

fn report(figures: &Figures, slo: &Slo, world: &WorldConfig) -> Report {
    let score = |records: Vec<Record>| {
        let own = Figures { records, seconds: figures.seconds, ..Figures::default() };
        Score::of(&own, slo, world)
    };
    let region = |region: usize| {
        let is_here = |record: &&Record| record.region == region;
        let score = score(figures.records.iter().filter(is_here).copied().collect());
        Score { gpus: world.regions[region].replicas as f64, ..score }
    };
    let of_tenants = || figures.records.iter().zip(&figures.tenants);
    let tenant = |(number, tenant): (usize, &Tenant)| {
        let own = of_tenants().filter(|&(_, &of)| of == number);
        TenantScore { name: tenant.name.clone(), score: score(own.map(|(one, _)| *one).collect()) }
    };
    Report {
        world: Score::of(figures, slo, world),
        regions: (0..world.regions.len()).map(region).collect(),
        tenants: world.tenants.iter().enumerate().map(tenant).collect(),
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
            format!("{:.0}", score.token_p95_ms),
            format!("{:.1}", score.cached_share * 100.0),
            format!("{:.1}", score.forwarded_share * 100.0),
            format!("{:.1}", score.egress_bytes_per_s / 1_000.0),
        ]
    };
    let head = "clients of | GPUs | requests | failed | goodput/s | p50 ms | p95 ms | tpot p95 | \
        cached % | forwarded % | egress kB/s";
    let tenants = report.tenants.iter().map(|one| (format!("tenant {}", one.name), &one.score));
    let all = [("world".to_owned(), &report.world)].into_iter().chain(regions).chain(tenants);
    Table {
        title: String::new(),
        head: head.split(" | ").map(str::to_owned).collect(),
        lines: all.map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_its_name_weight_and_load() {
        let flood = Tenant { name: "flood".to_owned(), weight: 3, load: 10 };
        assert_eq!(tenant("flood:3:10"), Ok(flood));
        for wrong in ["flood", "flood:3", "flood:0:1", "flood:x:1", "flood:1:-1", "a:1:1:1"] {
            assert!(tenant(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }
}
