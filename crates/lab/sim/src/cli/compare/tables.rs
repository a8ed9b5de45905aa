//! Tables of standings.

use std::collections::BTreeSet;

use spillway_sim::{Role, Row, Spread, Standing};

use crate::cli::tables::{NO_NUMBER, Table};

/// Bars that a router has to reach in every cell: goodput and 95th percentile in percent of those of
/// the best baselines.
const BARS: [(f64, f64); 2] = [(98.0, 110.0), (100.0, 105.0)];

/// Name of the column with the 95th percentile of the time per token, and its ratio.
const TOKENS: &str = "tpot p95 ms, × best";

/// Returns a table with lines under a head, whose columns ` | ` separates.
pub(super) fn table(title: impl Into<String>, head: &str, lines: Vec<Vec<String>>) -> Table {
    let head = head.split(" | ").map(str::to_owned).collect();
    Table { title: title.into(), head, lines }
}

/// Returns the table of all contenders in a cell, by falling goodput.
pub(super) fn of_cell(standing: &Standing) -> Table {
    let line = |row: &Row| {
        let mean = &row.mean;
        vec![
            row.contender.clone(),
            format!("{:.2}", mean.goodput_per_s),
            number(row.goodput),
            format!("{:.0}", mean.p95_ms),
            number(row.p95),
            format!("{:.0}", mean.p50_ms),
            format!("{:.0}", mean.token_p50_ms),
            format!("{:.0}", mean.token_p95_ms),
            number(row.token_p95),
            percent(mean.cached_share),
            percent(mean.forwarded_share),
            format!("{:.1}", mean.egress_bytes_per_s / 1_000.0),
            format!("{:.0}", mean.failed),
            format!("{:.2}", mean.useful_per_s),
        ]
    };
    let head = "router | goodput/s | × best | p95 ms | × best | p50 ms | tpot p50 | tpot p95 | \
        × best | cached % | forwarded % | egress kB/s | failed | with again/s";
    table(&standing.cell, head, standing.rows.iter().map(line).collect())
}

/// Returns the table of Spillway's routers in all cells.
pub(super) fn summary(standings: &[Standing]) -> Table {
    let lines = standings.iter().flat_map(|standing| {
        spillways(standing).map(|row| {
            vec![
                standing.cell.clone(),
                rival(standing, standing.best_goodput.as_deref(), |row| {
                    format!("{:.2}", row.mean.goodput_per_s)
                }),
                rival(standing, standing.best_p95.as_deref(), |row| {
                    format!("{:.0}", row.mean.p95_ms)
                }),
                row.contender.clone(),
                ratio(row.goodput),
                ratio(row.p95),
                percent(row.mean.forwarded_share),
            ]
        })
    });
    let head = "cell | best goodput/s | best p95 ms | router | goodput × best | p95 × best | \
        forwarded %";
    table("Against the best baseline of each cell", head, lines.collect())
}

/// Returns the table of the page of all cells: Spillway, and beside it each of its routers with other
/// settings, with `=` where these change nothing.
pub(super) fn side_by_side(title: &str, standings: &[Standing]) -> Table {
    let names = routers(standings);
    let (first, others) = names.split_first().map_or(("", &[][..]), |(one, all)| (one, all));
    let pair = |row: &Row| [ratio(row.goodput), ratio(row.p95)];
    let tokens = |row: &Row| format!("{:.0}, {}", row.mean.token_p95_ms, number(row.token_p95));
    let line = |standing: &Standing| {
        let row = standing.row(first)?;
        let best_goodput = rival(standing, standing.best_goodput.as_deref(), |row| {
            format!("{:.2}", row.mean.goodput_per_s)
        });
        let best_p95 =
            rival(standing, standing.best_p95.as_deref(), |row| format!("{:.0}", row.mean.p95_ms));
        let mut line = vec![standing.cell.clone(), best_goodput, best_p95];
        line.extend(pair(row));
        line.extend([tokens(row), percent(row.mean.forwarded_share)]);
        for other in others {
            let other = standing.row(other).map(pair).filter(|other| *other != pair(row));
            line.extend(other.unwrap_or_else(|| ["=".to_owned(), "=".to_owned()]));
        }
        Some(line)
    };
    let ratios = ["goodput × best", "p95 × best"];
    let head =
        ["cell", "best goodput/s", "best p95 ms", ratios[0], ratios[1], TOKENS, "forwarded %"];
    let mut head = head.map(str::to_owned).to_vec();
    for other in others {
        let settings = other.split_once(':').map_or(*other, |(_, settings)| settings);
        head.extend(ratios.map(|ratio| format!("{ratio}, {settings}")));
    }
    let lines = standings.iter().filter_map(line).collect();
    Table { title: title.to_owned(), head, lines }
}

/// Returns the names of Spillway's routers; the one without settings of its own is the first.
pub(super) fn routers(standings: &[Standing]) -> Vec<&str> {
    let rows = standings.iter().flat_map(spillways);
    rows.map(|row| row.contender.as_str()).collect::<BTreeSet<_>>().into_iter().collect()
}

fn rival(standing: &Standing, name: Option<&str>, figure: impl Fn(&Row) -> String) -> String {
    let row = name.and_then(|name| standing.row(name));
    row.map_or_else(|| NO_NUMBER.to_owned(), |row| format!("{} {}", row.contender, figure(row)))
}

/// Returns lines with the number of cells in which each of Spillway's routers reaches the bars.
pub(super) fn verdicts(standings: &[Standing]) -> String {
    routers(standings).into_iter().map(|name| verdict(name, standings)).collect()
}

fn verdict(name: &str, standings: &[Standing]) -> String {
    let ratios: Vec<(f64, f64)> = standings
        .iter()
        .filter_map(|standing| {
            let row = standing.row(name)?;
            Some((row.goodput?.mean, row.p95?.mean))
        })
        .collect();
    let count = |holds: &dyn Fn(f64, f64) -> bool| {
        ratios.iter().filter(|(goodput, p95)| holds(*goodput, *p95)).count()
    };
    // As the tables show them: with two digits.
    let [first, second] = BARS.map(|(least, most)| {
        let goodput = |ratio: f64| (ratio * 100.0).round() >= least;
        let p95 = |ratio: f64| (ratio * 100.0).round() <= most;
        [
            count(&|good, _| goodput(good)),
            count(&|_, late| p95(late)),
            count(&|good, late| goodput(good) && p95(late)),
        ]
    });
    format!(
        "{name}: goodput >= 0.98 in {} of {} cells, p95 <= 1.10 in {}, both in {}; >= 1.00 and <= \
         1.05 in {}\n",
        first[0],
        ratios.len(),
        first[1],
        first[2],
        second[2],
    )
}

/// Returns the rows of Spillway's routers.
pub(super) fn spillways(standing: &Standing) -> impl Iterator<Item = &Row> {
    standing.rows.iter().filter(|row| row.role == Role::Spillway)
}

/// Formats the mean of a ratio.
pub(super) fn number(ratio: Option<Spread>) -> String {
    ratio.map_or_else(|| NO_NUMBER.to_owned(), |ratio| format!("{:.2}", ratio.mean))
}

/// Formats a ratio with its 95 % interval, and the worst and the best seed.
pub(super) fn ratio(ratio: Option<Spread>) -> String {
    let Some(Spread { mean, worst, best, margin }) = ratio else { return NO_NUMBER.to_owned() };
    let margin = margin.map_or_else(String::new, |margin| format!(" ± {margin:.2}"));
    format!("{mean:.2}{margin} ({worst:.2}–{best:.2})")
}

/// Formats a share as percent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}
