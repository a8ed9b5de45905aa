//! Standing: contenders of a contest in one cell, against the best baseline of that cell.

use serde::{Deserialize, Serialize};

use super::contender::Role;
use super::score::Score;
use super::spread::{Better, Spread};
use crate::Conditions;

/// Result of one run of a contest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Name of the cell.
    pub cell: String,
    /// Conditions of the cell's world, as they are for all contenders.
    pub conditions: Conditions,
    /// Name of the contender.
    pub contender: String,
    /// Part of the contender in the contest.
    pub role: Role,
    /// Seed of all random choices.
    pub seed: u64,
    /// Score of the run.
    pub score: Score,
}

/// Contenders in one cell under the same conditions, by falling goodput.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Name of the cell.
    pub cell: String,
    /// Conditions of the cell's world.
    pub conditions: Conditions,
    /// Baseline with the highest mean goodput, if there is any baseline.
    pub best_goodput: Option<String>,
    /// Baseline with the lowest mean 95th percentile.
    pub best_p95: Option<String>,
    /// Baseline with the lowest mean 95th percentile of the time per token.
    pub best_token_p95: Option<String>,
    /// Contenders.
    pub rows: Vec<Row>,
}

/// Contender in a [`Standing`].
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the contender.
    pub contender: String,
    /// Part of the contender in the contest.
    pub role: Role,
    /// Mean score over the seeds.
    pub mean: Score,
    /// Goodput over that of the best baseline with the same seed.
    pub goodput: Option<Spread>,
    /// 95th percentile over that of the best baseline with the same seed.
    pub p95: Option<Spread>,
    /// 95th percentile of the time per token over that of the best baseline with the same seed.
    pub token_p95: Option<Spread>,
}

impl Standing {
    /// Returns the standings of each cell and condition, in the order in which these come first.
    #[must_use]
    pub fn all(entries: &[Entry]) -> Vec<Self> {
        Self::against(entries, |entry, rival| entry.conditions == rival.conditions, entries)
    }

    /// Returns the standings of entries whose rivals are the baselines among `rivals` in the same
    /// cell that `is_rival` finds comparable.
    #[must_use]
    pub fn against(
        entries: &[Entry],
        is_rival: impl Fn(&Entry, &Entry) -> bool,
        rivals: &[Entry],
    ) -> Vec<Self> {
        let mut groups: Vec<Vec<&Entry>> = Vec::new();
        for entry in entries {
            let is_of = |group: &&mut Vec<&Entry>| {
                group.iter().any(|one| one.cell == entry.cell && one.conditions == entry.conditions)
            };
            match groups.iter_mut().find(is_of) {
                Some(group) => group.push(entry),
                None => groups.push(vec![entry]),
            }
        }
        let standing = |group: &Vec<&Entry>| {
            let is_of = |rival: &&Entry| {
                let is_baseline = rival.role == Role::Baseline;
                is_baseline && rival.cell == group[0].cell && is_rival(group[0], rival)
            };
            Self::of(group, &rivals.iter().filter(is_of).collect::<Vec<_>>())
        };
        groups.iter().map(standing).collect()
    }

    /// Returns the standing of entries of one cell; there has to be one.
    fn of(entries: &[&Entry], rivals: &[&Entry]) -> Self {
        let best_goodput = best(rivals, |score| score.goodput_per_s, Better::Higher);
        let best_p95 = best(rivals, |score| score.p95_ms, Better::Lower);
        let best_token_p95 = best(rivals, |score| score.token_p95_ms, Better::Lower);
        let row = |name: &str| {
            let own = of_contender(entries, name);
            let scores: Vec<&Score> = own.iter().map(|entry| &entry.score).collect();
            let ratio = |rival: Option<&str>, of: fn(&Score) -> f64, better| {
                Spread::of_ratios(&pairs(&own, &of_contender(rivals, rival?), of), better)
            };
            Row {
                contender: name.to_owned(),
                role: own[0].role,
                mean: Score::mean(&scores),
                goodput: ratio(best_goodput, |score| score.goodput_per_s, Better::Higher),
                p95: ratio(best_p95, |score| score.p95_ms, Better::Lower),
                token_p95: ratio(best_token_p95, |score| score.token_p95_ms, Better::Lower),
            }
        };
        let mut rows: Vec<Row> = names(entries).into_iter().map(row).collect();
        rows.sort_by(|a, b| b.mean.goodput_per_s.total_cmp(&a.mean.goodput_per_s));
        Self {
            cell: entries[0].cell.clone(),
            conditions: entries[0].conditions.clone(),
            best_goodput: best_goodput.map(str::to_owned),
            best_p95: best_p95.map(str::to_owned),
            best_token_p95: best_token_p95.map(str::to_owned),
            rows,
        }
    }

    /// Returns the seconds from a disturbance until a contender's goodput is that of the best
    /// baseline with the same seed, for each seed; see [`Windows::recovery_s`]. The entries are those
    /// of the standing and of its rivals.
    ///
    /// [`Windows::recovery_s`]: super::Windows::recovery_s
    #[must_use]
    pub fn recoveries_s(
        &self,
        entries: &[Entry],
        contender: &str,
        disturbed_s: f64,
    ) -> Vec<Option<f64>> {
        let is_here =
            |entry: &&Entry| entry.cell == self.cell && entry.conditions == self.conditions;
        let here: Vec<&Entry> = entries.iter().filter(is_here).collect();
        let Some(best) = &self.best_goodput else { return Vec::new() };
        let rivals = of_contender(&here, best);
        let recovery = |entry: &&Entry| {
            let rival = rivals.iter().find(|rival| rival.seed == entry.seed)?;
            Some(entry.score.windows.recovery_s(&rival.score.windows, disturbed_s))
        };
        of_contender(&here, contender).iter().filter_map(recovery).collect()
    }

    /// Returns the row of a contender.
    #[must_use]
    pub fn row(&self, contender: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.contender == contender)
    }
}

/// Returns the name of the contender with the best mean of a figure; of equals the first.
fn best<'a>(entries: &[&'a Entry], of: fn(&Score) -> f64, better: Better) -> Option<&'a str> {
    let mean = |name: &str| {
        let own = of_contender(entries, name);
        own.iter().map(|entry| of(&entry.score)).sum::<f64>() / own.len() as f64
    };
    let means = names(entries).into_iter().map(|name| (name, mean(name)));
    let best = means.reduce(|a, b| if better.is_better(b.1, a.1) { b } else { a });
    best.map(|(name, _)| name)
}

/// Returns the figures of two contenders with the same seeds.
fn pairs(own: &[&Entry], rival: &[&Entry], of: fn(&Score) -> f64) -> Vec<(f64, f64)> {
    let pair = |entry: &&Entry| {
        let other = rival.iter().find(|other| other.seed == entry.seed)?;
        Some((of(&entry.score), of(&other.score)))
    };
    own.iter().filter_map(pair).collect()
}

fn of_contender<'a>(entries: &[&'a Entry], name: &str) -> Vec<&'a Entry> {
    entries.iter().copied().filter(|entry| entry.contender == name).collect()
}

/// Returns the names of all contenders, in the order in which they come first.
fn names<'a>(entries: &[&'a Entry]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for entry in entries {
        if !names.contains(&entry.contender.as_str()) {
            names.push(&entry.contender);
        }
    }
    names
}

#[cfg(test)]
mod standing_test;
