//! Questions about usage, and their answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::day::Day;
use crate::lines::{LINES_MAX, LineKey, OTHER, Used};

/// Field by which sums of usage are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageBy {
    /// Day of UTC on which the request ended.
    Day,
    /// Tenant.
    Tenant,
    /// Key, by its id.
    Key,
    /// Model that served.
    Model,
}

/// Question about usage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageQuery {
    /// First day.
    pub since: Day,
    /// Last day.
    pub until: Day,
    /// Only usage of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Only usage with this key, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Only usage of this model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Fields by which the sums are grouped.
    pub by: Vec<UsageBy>,
}

/// Sum of usage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRow {
    /// Day; `None` if days are added up.
    pub day: Option<Day>,
    /// Tenant; `None` for requests without one, or if tenants are added up.
    pub tenant: Option<String>,
    /// Id of the key; `None` for requests without one, or if keys are added up.
    pub key: Option<String>,
    /// Model; `None` where it is unknown, or if models are added up.
    pub model: Option<String>,
    /// Requests, tokens and money.
    #[serde(flatten)]
    pub used: Used,
}

/// Day, tenant, key and model of a row.
type RowKey = (Option<Day>, Option<String>, Option<String>, Option<String>);

/// Answer to a question, to which nodes and days are added one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageTable {
    rows: BTreeMap<RowKey, Used>,
    total: Used,
}

impl UsageBy {
    /// All, in the order of columns.
    pub const ALL: [Self; 4] = [Self::Day, Self::Tenant, Self::Key, Self::Model];

    /// Returns the name in queries.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Tenant => "tenant",
            Self::Key => "key",
            Self::Model => "model",
        }
    }

    /// Returns what has this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.name() == name)
    }
}

impl UsageQuery {
    /// Asks for everything of these days, by tenant, key and model.
    #[must_use]
    pub fn of_days(since: Day, until: Day) -> Self {
        let by = vec![UsageBy::Tenant, UsageBy::Key, UsageBy::Model];
        Self { since, until, tenant: None, key: None, model: None, by }
    }

    /// Returns true if a day is asked for.
    #[must_use]
    pub fn has_day(&self, day: Day) -> bool {
        (self.since..=self.until).contains(&day)
    }

    fn has_line(&self, (tenant, key, model): &LineKey) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        is(&self.tenant, tenant.as_ref().map(|name| name.as_str()))
            && is(&self.key, key.as_deref())
            && is(&self.model, model.as_ref().map(|name| name.as_str()))
    }

    fn row(&self, day: Day, (tenant, key, model): &LineKey) -> RowKey {
        let has = |by| self.by.contains(&by);
        (
            Some(day).filter(|_| has(UsageBy::Day)),
            tenant.as_ref().map(ToString::to_string).filter(|_| has(UsageBy::Tenant)),
            key.as_ref().map(ToString::to_string).filter(|_| has(UsageBy::Key)),
            model.as_ref().map(ToString::to_string).filter(|_| has(UsageBy::Model)),
        )
    }
}

impl UsageTable {
    /// Adds a line of a day, if it is asked for.
    pub fn add_line(&mut self, query: &UsageQuery, day: Day, key: &LineKey, used: &Used) {
        if query.has_day(day) && query.has_line(key) {
            self.add(query.row(day, key), used);
        }
    }

    /// Adds a row of another node's answer to the same question.
    pub fn add_row(&mut self, row: UsageRow) {
        self.add((row.day, row.tenant, row.key, row.model), &row.used);
    }

    /// Returns the sum of all rows.
    #[must_use]
    pub fn total(&self) -> Used {
        self.total
    }

    /// Returns the rows, in the order of day, tenant, key and model.
    #[must_use]
    pub fn rows(self) -> Vec<UsageRow> {
        let row = |((day, tenant, key, model), used)| UsageRow { day, tenant, key, model, used };
        self.rows.into_iter().map(row).collect()
    }

    fn add(&mut self, key: RowKey, used: &Used) {
        self.total.add(used);
        let key = match self.rows.len() >= LINES_MAX && !self.rows.contains_key(&key) {
            true => (None, Some(OTHER.to_owned()), None, None),
            false => key,
        };
        self.rows.entry(key).or_default().add(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::money::Money;

    fn day(text: &str) -> Day {
        text.parse().unwrap()
    }

    fn table(query: &UsageQuery) -> UsageTable {
        let line = |tenant: &str, key: &str, model: &str| {
            (Some(tenant.into()), Some(key.into()), Some(model.into()))
        };
        let used = |prompt| Used {
            requests: 1,
            prompt,
            cost: Money::of_millionths(prompt),
            ..Used::default()
        };
        let mut table = UsageTable::default();
        for (date, line, prompt) in [
            ("2026-11-01", line("a", "k1", "m"), 1),
            ("2026-11-02", line("a", "k2", "m"), 10),
            ("2026-11-02", line("a", "k2", "n"), 100),
            ("2026-11-03", line("b", "k3", "n"), 1_000),
        ] {
            table.add_line(query, day(date), &line, &used(prompt));
        }
        table
    }

    fn sums(query: &UsageQuery) -> Vec<(String, u64)> {
        let name = |row: &UsageRow| {
            let day = row.day.map(|day| day.to_string());
            let parts = [&day, &row.tenant, &row.key, &row.model];
            parts.map(|part| part.clone().unwrap_or_default()).join("/")
        };
        table(query).rows().iter().map(|row| (name(row), row.used.prompt)).collect()
    }

    #[test]
    fn sums_are_told_apart_by_what_is_asked_for() {
        let all = UsageQuery::of_days(Day::MIN, Day::MAX);
        let by = |by: &[UsageBy]| sums(&UsageQuery { by: by.to_vec(), ..all.clone() });
        assert_eq!(by(&[UsageBy::Tenant]), [("/a//".into(), 111), ("/b//".into(), 1_000)]);
        assert_eq!(by(&[UsageBy::Model]), [("///m".into(), 11), ("///n".into(), 1_100)]);
        assert_eq!(by(&[]), [("///".into(), 1_111)]);
        assert_eq!(by(&[UsageBy::Day])[1], ("2026-11-02///".into(), 110));
        assert_eq!(sums(&all).len(), 4);
    }

    #[test]
    fn only_what_is_asked_for_counts_and_the_last_day_does() {
        let all = UsageQuery::of_days(day("2026-11-02"), day("2026-11-03"));
        let total = |query: &UsageQuery| table(query).total().prompt;
        assert_eq!(total(&all), 1_110);
        let model = Some("n".to_owned());
        assert_eq!(total(&UsageQuery { model, ..all.clone() }), 1_100);
        let (tenant, key) = (Some("a".to_owned()), Some("k2".to_owned()));
        assert_eq!(total(&UsageQuery { tenant, ..all.clone() }), 110);
        assert_eq!(total(&UsageQuery { key, until: day("2026-11-02"), ..all }), 110);
    }

    #[test]
    fn answers_of_nodes_add_up_to_one() {
        let all = UsageQuery::of_days(Day::MIN, Day::MAX);
        let (mut sum, single) = (table(&all), table(&all));
        for row in table(&all).rows() {
            let text = serde_json::to_string(&row).unwrap();
            sum.add_row(serde_json::from_str(&text).unwrap());
        }
        assert_eq!(sum.total().prompt, 2 * single.total().prompt);
        assert_eq!(sum.total().cost, Money::of_millionths(2_222));
        assert_eq!(sum.rows().len(), single.rows().len());
    }
}
