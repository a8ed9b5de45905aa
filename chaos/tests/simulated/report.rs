//! Figures of a run, and their table.

use spillway_harness::{Grid, figure, quantile};
use spillway_sim::{Figures, Record, Slo, WorldConfig};

/// Returns the figures of the requests that count.
pub(crate) fn figures(records: &[Record], world: &WorldConfig) -> Figures {
    let counts = |record: &&Record| record.arrived_s >= world.warm_up_s;
    let records: Vec<Record> = records.iter().filter(counts).copied().collect();
    let sum = |of: fn(&Record) -> u32| records.iter().map(|one| f64::from(of(one))).sum::<f64>();
    Figures {
        seconds: world.end_s - world.warm_up_s,
        cached_share: sum(|one| one.cached_tokens) / sum(|one| one.prompt_tokens),
        forwarded_share: sum(|one| one.is_forwarded.into()) / records.len() as f64,
        records,
        ..Figures::default()
    }
}

/// Returns a table with a row for each run.
pub(crate) fn table(rows: &[(&str, &Figures)], slo: &Slo, world: &WorldConfig) -> String {
    let mut grid =
        Grid::new(["run", "requests", "goodput/s", "p50 ms", "p95 ms", "cached %", "forwarded %"]);
    for (name, figures) in rows {
        let first_ms = |record: &Record| record.first_token_ms.unwrap_or(slo.failed_ms);
        grid.push(vec![
            (*name).to_owned(),
            figures.records.len().to_string(),
            figure(Some(figures.goodput_by(slo, &world.engine)), 2),
            figure(quantile(figures.records.iter().map(first_ms), 0.5), 0),
            figure(Some(figures.p95_ms(slo)), 0),
            figure(Some(100.0 * figures.cached_share), 1),
            figure(Some(100.0 * figures.forwarded_share), 1),
        ]);
    }
    grid.text()
}
