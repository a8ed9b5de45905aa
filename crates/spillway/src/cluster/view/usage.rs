//! `spillway usage`: requests, tokens and cost of clients, of all nodes together.

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use crate::cluster::calls::show;
use crate::cluster::client::{AdminClient, escaped};
use crate::cluster::text::{self, Column};
use crate::connect::Connect;
use crate::output;
use crate::screen::{Table, width};

/// Columns that the sums can be grouped by.
const BY: [&str; 4] = ["day", "tenant", "key", "model"];

const BUDGETS: &[Column] = &[
    ("tenant", "/tenant"),
    ("budget/day", "/budget_per_day"),
    ("spent today", "/spent_today"),
    ("budget/month", "/budget_per_month"),
    ("spent this month", "/spent_this_month"),
    ("refused until", "/refused_until"),
];

#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    #[command(flatten)]
    connect: Connect,
    /// Only usage of this tenant.
    #[arg(long)]
    tenant: Option<String>,
    /// Only usage with this key, by its id.
    #[arg(long)]
    key: Option<String>,
    /// Only usage of this model.
    #[arg(long)]
    model: Option<String>,
    /// First day in UTC, e.g. 2026-11-01; the first of the month by default.
    #[arg(long, value_name = "DAY")]
    since: Option<String>,
    /// Last day in UTC; today by default.
    #[arg(long, value_name = "DAY")]
    until: Option<String>,
    /// Grouping of the sums: day, tenant, key, model, or several of them.
    #[arg(long, value_delimiter = ',', value_parser = BY, default_value = "tenant,key,model")]
    by: Vec<String>,
    /// Currency of the prices in the config, shown with the cost, e.g. EUR.
    #[arg(long, value_name = "LABEL")]
    currency: Option<String>,
}

impl UsageArgs {
    fn path(&self) -> String {
        let fields = [
            ("tenant", &self.tenant),
            ("key", &self.key),
            ("model", &self.model),
            ("since", &self.since),
            ("until", &self.until),
        ];
        let set = |(name, value): (&str, &Option<String>)| {
            value.as_ref().map(|value| format!("&{name}={}", escaped(value)))
        };
        let filters: String = fields.into_iter().filter_map(set).collect();
        format!("/v1/usage?by={}{filters}", self.by.join(","))
    }
}

/// Shows usage, and names the nodes whose usage is missing.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) async fn run(args: &UsageArgs) -> Result<()> {
    let client = AdminClient::new(&args.connect)?;
    let answer = client.read(&args.path()).await?;
    for missing in missing(&answer) {
        output::note(&missing);
    }
    show(&client, &answer, &shown(&answer, args.currency.as_deref(), width()))
}

/// Formats the sums as a table, with the sum of all of them below.
fn shown(answer: &Value, currency: Option<&str>, width: usize) -> String {
    let is_by =
        |name: &&str| answer["by"].as_array().is_some_and(|by| by.iter().any(|it| it == name));
    let by: Vec<&str> = BY.into_iter().filter(is_by).collect();
    let cost = currency.map_or_else(|| "cost".to_owned(), |label| format!("cost {label}"));
    let sums = ["requests", "errors", "prompt", "cached", "completion", "estimated", &*cost];
    let headings: Vec<&str> = by.iter().copied().chain(sums).collect();
    let rows = answer["usage"].as_array().into_iter().flatten().map(|row| {
        let names =
            by.iter().map(|name| row[*name].as_str().map_or_else(text::absent, str::to_owned));
        names.chain(numbers(row)).collect()
    });
    let names = by.iter().enumerate().map(|(at, _)| if at == 0 { "all" } else { "" }.to_owned());
    let total: Vec<String> = names.chain(numbers(&answer["total"])).collect();
    let rows: Vec<Vec<String>> = rows.chain([total]).collect();
    let table =
        Table::new(&headings, rows).dropping(&["errors", "cached", "estimated"]).text(width);
    let days = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    let shown = format!("{} to {}, days of UTC\n\n{table}", days("since"), days("until"));
    match answer["budgets"].as_array().is_some_and(|budgets| !budgets.is_empty()) {
        true => format!("{shown}\n\n{}", text::records(BUDGETS, &answer["budgets"]).text(width)),
        false => shown,
    }
}

fn numbers(sum: &Value) -> Vec<String> {
    let fields = [
        "requests",
        "errors",
        "prompt_tokens",
        "cached_tokens",
        "completion_tokens",
        "estimated_tokens",
    ];
    let counts = fields.iter().map(|name| sum[*name].to_string());
    counts.chain([rounded(sum["cost"].as_str().unwrap_or("0"))]).collect()
}

/// Rounds a cost to cents, or to four digits that count if it is less than 1. JSON has it whole.
fn rounded(cost: &str) -> String {
    let Ok(number) = cost.parse::<f64>() else { return cost.to_owned() };
    if number == 0.0 {
        return "0".to_owned();
    }
    let decimals = match number.abs() {
        1.0.. => 2,
        // The first digit of 0.00045 that counts is the fourth one.
        size => (4 - 1 - size.log10().floor() as i32).clamp(2, 9) as usize,
    };
    let text = format!("{number:.decimals$}");
    // Zeros after two decimals add nothing.
    let point = text.find('.').map_or(text.len(), |at| at + 3);
    let (kept, rest) = text.split_at(point.min(text.len()));
    format!("{kept}{}", rest.trim_end_matches('0'))
}

/// Returns a line for each node that could not be asked.
fn missing(answer: &Value) -> Vec<String> {
    let nodes = answer["nodes"].as_array().into_iter().flatten();
    let lines = nodes.filter_map(|node| {
        let (name, region) = (node["name"].as_str()?, node["region"].as_str()?);
        let fault = node["fault"].as_str()?;
        Some(format!("without what clients of {name} ({region}) used: {fault}"))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cost_is_rounded_to_cents_or_to_four_digits() {
        for (cost, text) in [
            ("0", "0"),
            ("12.3456789", "12.35"),
            ("1234567", "1234567.00"),
            ("0.9503832", "0.9504"),
            ("0.25", "0.25"),
            ("0.5", "0.50"),
            ("0.00045", "0.00045"),
            ("0.000123456", "0.0001235"),
            ("much", "much"),
        ] {
            assert_eq!(rounded(cost), text, "{cost}");
        }
    }

    #[test]
    fn budgets_are_shown_below_the_sums() {
        let answer = json!({
            "since": "2026-11-01", "until": "2026-11-27", "by": [], "usage": [], "total": {},
            "budgets": [{ "tenant": "acme", "budget_per_day": "10", "budget_per_month": null,
                          "spent_today": "10.5", "spent_this_month": "99",
                          "refused_until": "2026-11-28" }],
        });
        let shown = shown(&answer, None, usize::MAX);
        let cells: Vec<&str> = shown.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(cells, ["acme", "10", "10.5", "-", "99", "2026-11-28"], "{shown}");
    }

    #[test]
    fn sums_are_shown_by_what_was_asked_for_with_the_sum_of_all() {
        let sum = |requests: u64, cost: &str| {
            json!({ "requests": requests, "errors": 1, "prompt_tokens": 70, "cached_tokens": 2,
                    "completion_tokens": 9, "estimated_tokens": 30, "cost": cost })
        };
        let mut row = sum(3, "0.25");
        row["tenant"] = "acme".into();
        let answer = json!({
            "since": "2026-11-01", "until": "2026-11-27", "by": ["tenant"],
            "usage": [row, sum(1, "0")], "total": sum(4, "0.25"),
            "nodes": [{ "name": "a", "region": "eu", "fault": null },
                      { "name": "b", "region": "us", "fault": "there is no connection" }],
        });
        let in_euro = shown(&answer, Some("EUR"), usize::MAX);
        assert!(in_euro.lines().nth(2).unwrap().ends_with("  cost EUR"), "{in_euro}");
        let shown = shown(&answer, None, usize::MAX);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines,
            [
                "2026-11-01 to 2026-11-27, days of UTC",
                "",
                "tenant  requests  errors  prompt  cached  completion  estimated  cost",
                "acme    3         1       70      2       9           30         0.25",
                "-       1         1       70      2       9           30         0",
                "all     4         1       70      2       9           30         0.25",
            ]
        );
        let missing = missing(&answer);
        assert_eq!(missing, ["without what clients of b (us) used: there is no connection"]);
    }
}
