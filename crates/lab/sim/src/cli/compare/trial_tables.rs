//! Table of the trial: how far each baseline is from the best.

use spillway_sim::{Conditions, Contender, Entry, Row, Spread, Standing};

use super::arguments::cell;
use super::experiments::{MAIN, Part};
use super::tables::table;
use super::topics::entries;
use super::trial::{TRIAL, by_goodput, by_p95, finalists};
use crate::cli::tables::Table;

/// Least ratio of goodput that counts in a geometric mean, which a single 0 would make 0.
const RATIO_MIN: f64 = 0.01;
/// Name of the column with the means over all cells.
const ALL: &str = "all";

/// Returns the table of all baselines, by falling goodput: how often each is a finalist, and means of
/// its ratios by group of cells.
pub(super) fn everybody(parts: &[Part]) -> Table {
    let standings = standings(parts);
    let mut groups: Vec<&str> = Vec::new();
    for group in standings.iter().map(group) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let of = |name: &str, is_of: &dyn Fn(&Standing) -> bool| {
        Means::of(standings.iter().filter(|one| is_of(one)), name)
    };
    let first = standings.first().map(by_goodput).unwrap_or_default();
    let names = first.iter().map(|row| Contender::baseline_of(&row.contender));
    let mut baselines: Vec<(&str, Means)> = names.map(|name| (name, of(name, &|_| true))).collect();
    baselines.sort_by(|(_, a), (_, b)| b.goodput.total_cmp(&a.goodput));
    let line =
        |(name, all): &(&str, Means)| {
            let is_finalist = |one: &&Standing| {
                finalists(one).into_iter().any(|it| Contender::baseline_of(it) == *name)
            };
            let chosen = standings.iter().filter(is_finalist).count();
            let mut line = vec![format!("`{name}`"), chosen.to_string(), all.text()];
            line.extend(groups.iter().map(|&name_of_group| {
                of(name, &|standing| group(standing) == name_of_group).text()
            }));
            line
        };
    let mut head = vec!["baseline", "finalist in", ALL];
    head.extend(&groups);
    table("Trial of all baselines", &head.join(" | "), baselines.iter().map(line).collect())
}

/// Returns the standings of the trial in the cells of the page's first tables.
fn standings(parts: &[Part]) -> Vec<Standing> {
    let main = entries(parts, MAIN);
    let is_main = |entry: &&Entry| {
        entry.conditions == Conditions::default() && main.iter().any(|one| one.cell == entry.cell)
    };
    Standing::all(&entries(parts, TRIAL).iter().filter(is_main).cloned().collect::<Vec<_>>())
}

fn group(standing: &Standing) -> &'static str {
    cell(&standing.cell).map_or("", |cell| cell.group())
}

/// Ratio of a row to the best baseline of its cell.
type Figure = fn(&Row) -> Option<Spread>;

/// Geometric means of ratios over cells.
#[derive(Clone, Copy, Debug)]
struct Means {
    goodput: f64,
    p95: f64,
}

impl Means {
    /// Returns the means of a baseline, of each figure at the best region of each world.
    fn of<'a>(standings: impl Iterator<Item = &'a Standing> + Clone, name: &str) -> Self {
        let mean = |order: fn(&Standing) -> Vec<&Row>, figure: Figure| {
            let ratio = |standing: &Standing| {
                let rows = order(standing);
                let is_own = |row: &&&Row| Contender::baseline_of(&row.contender) == name;
                rows.iter().find(is_own).and_then(|row| figure(row))
            };
            let ratios = standings.clone().filter_map(ratio);
            let logarithms: Vec<f64> = ratios.map(|one| one.mean.max(RATIO_MIN).ln()).collect();
            (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp()
        };
        Self { goodput: mean(by_goodput, |row| row.goodput), p95: mean(by_p95, |row| row.p95) }
    }

    fn text(self) -> String {
        format!("{:.2} / {:.2}", self.goodput, self.p95)
    }
}
