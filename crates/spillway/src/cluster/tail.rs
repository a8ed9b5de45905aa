//! `spillway tail`: the requests that ended last on a node, and those that end from now on.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use super::client::{AdminClient, escaped};
use super::connect::Connect;
use super::request;
use crate::{output, screen};

/// Pause between two looks.
const PERIOD: Duration = Duration::from_millis(500);
/// Most requests that one look takes.
const LOOK_MAX: usize = 1_000;

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway tail --failed\n\
    Example: spillway tail --tenant acme --status 5xx --last 100 --once\n\n\
    Shows requests of the node that is asked; a node remembers the last 4,096. `spillway explain ID` \
    tells more of one.")]
pub(crate) struct TailArgs {
    #[command(flatten)]
    connect: Connect,
    /// Number of requests to begin with.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    last: u16,
    /// Shows those alone, and ends.
    #[arg(long)]
    once: bool,
    /// Only requests that failed: a status of 400 or more, or a reply that broke off.
    #[arg(long)]
    failed: bool,
    /// Only requests of this tenant.
    #[arg(long)]
    tenant: Option<String>,
    /// Only requests with this key, by its id.
    #[arg(long)]
    key: Option<String>,
    /// Only requests that this model served.
    #[arg(long)]
    model: Option<String>,
    /// Only requests of this route.
    #[arg(long)]
    route: Option<String>,
    /// Only requests that went to this replica.
    #[arg(long)]
    replica: Option<String>,
    /// Only requests that this region served.
    #[arg(long)]
    region: Option<String>,
    /// Only requests decided or refused for this reason, e.g. `queue_full`.
    #[arg(long)]
    reason: Option<String>,
    /// Only requests with this status, or a class such as `5xx`.
    #[arg(long)]
    status: Option<String>,
}

impl TailArgs {
    /// Returns the query, without `after` and `limit`.
    fn filters(&self) -> String {
        let fields = [
            ("tenant", &self.tenant),
            ("key", &self.key),
            ("model", &self.model),
            ("route", &self.route),
            ("replica", &self.replica),
            ("region", &self.region),
            ("reason", &self.reason),
            ("status", &self.status),
        ];
        let set = |(name, value): (&str, &Option<String>)| {
            value.as_ref().map(|value| format!("&{name}={}", escaped(value)))
        };
        let failed = if self.failed { "&failed=true" } else { "" };
        fields.into_iter().filter_map(set).collect::<String>() + failed
    }
}

/// Shows requests as they end.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses, or standard output is closed.
pub(super) async fn run(args: &TailArgs) -> Result<()> {
    let client = AdminClient::new(&args.connect)?;
    let filters = args.filters();
    let mut table = Table::default();
    let mut limit = usize::from(args.last);
    let mut after = None;
    loop {
        let place = after.map(|after| format!("&after={after}")).unwrap_or_default();
        let answer = client.read(&format!("/v1/requests?limit={limit}{place}{filters}")).await?;
        let mut found = answer["requests"].as_array().cloned().unwrap_or_default();
        found.reverse();
        if let Some(last) = found.last() {
            after = last["number"].as_u64();
        }
        for entry in &found {
            match client.as_json {
                true => output::line(&entry.to_string())?,
                false => table.show(entry)?,
            }
        }
        if args.once {
            return Ok(());
        }
        // Until the first one has ended there is nothing to go on from.
        after = after.or(Some(0));
        limit = LOOK_MAX;
        tokio::time::sleep(PERIOD).await;
    }
}

/// Table whose rows come one by one: columns grow with what they have to hold.
#[derive(Debug, Default)]
struct Table {
    widths: Vec<usize>,
}

impl Table {
    fn show(&mut self, entry: &Value) -> Result<()> {
        if self.widths.is_empty() {
            self.widths = vec![12, 6, 6, 6, 14, 12, 8, 16, 0];
            self.line(&request::HEADING.map(str::to_owned))?;
        }
        self.line(&request::row(entry))
    }

    fn line(&mut self, cells: &[String]) -> Result<()> {
        let cells = screen::cells(cells.to_vec());
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.chars().count());
        }
        let cells = cells.iter().zip(&self.widths);
        let padded: Vec<String> = cells.map(|(cell, width)| format!("{cell:<width$}")).collect();
        Ok(output::line(padded.join("  ").trim_end())?)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: TailArgs,
    }

    #[test]
    fn filters_become_a_query_whose_values_are_escaped() {
        let line = ["tail", "--model", "meta/llama", "--status", "5xx", "--failed"];
        let args = Line::parse_from(line).args;
        assert_eq!(args.filters(), "&model=meta%2Fllama&status=5xx&failed=true");
        assert_eq!(Line::parse_from(["tail"]).args.filters(), "");
    }
}
