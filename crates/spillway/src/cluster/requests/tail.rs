//! `spillway tail`: the requests that ended last on a node, and those that end from now on.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use super::request;
use crate::cluster::client::{AdminClient, escaped};
use crate::connect::Connect;
use crate::output;
use crate::screen::{cells as cells_of, fitted, width};

/// Pause between two looks.
const PERIOD: Duration = Duration::from_millis(500);
/// Most requests that one look takes.
const LOOK_MAX: usize = 1_000;

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway tail --failed\n\
    Example: spillway tail --tenant acme --status 5xx --last 100 --once\n\
    Example: spillway tail --code replica_connect\n\n\
    Shows the requests of one node, which keeps the last 4,096. `spillway explain ID` shows a request \
    in detail.")]
pub(crate) struct TailArgs {
    #[command(flatten)]
    connect: Connect,
    /// Number of earlier requests to show first.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    last: u16,
    /// Shows only those, and exits.
    #[arg(long)]
    once: bool,
    /// Only requests that failed with an error or an incomplete reply.
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
    /// Only requests that were sent to this replica.
    #[arg(long)]
    replica: Option<String>,
    /// Only requests that this region served.
    #[arg(long)]
    region: Option<String>,
    /// Only requests that were routed or refused for this reason, e.g. `queue_full`.
    #[arg(long)]
    reason: Option<String>,
    /// Only requests with this status, or a class such as `5xx`.
    #[arg(long, value_parser = parse_status)]
    status: Option<String>,
    /// Only requests of which the request or an attempt failed with this code, e.g.
    /// `replica_connect`.
    #[arg(long, value_parser = parse_code)]
    code: Option<String>,
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
            ("code", &self.code),
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
pub(crate) async fn run(args: &TailArgs) -> Result<()> {
    let client = AdminClient::new(&args.connect)?;
    let filters = args.filters();
    let mut table = Table::new(width());
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

/// Parses a status, or a class of them.
fn parse_status(text: &str) -> Result<String, String> {
    let lower = text.to_ascii_lowercase();
    let (first, rest) = lower.split_at_checked(1).unwrap_or_default();
    let is_class = matches!(first, "1" | "2" | "3" | "4" | "5") && rest == "xx";
    let is_one = lower.len() == 3 && lower.parse().is_ok_and(|status| (100..600).contains(&status));
    match is_class || is_one {
        true => Ok(lower),
        false => Err("give a status from 100 to 599, or a class from 1xx to 5xx".to_owned()),
    }
}

/// Parses a code of a failure.
fn parse_code(text: &str) -> Result<String, String> {
    if spillway_protocol::known_code(text).is_some() {
        return Ok(text.to_owned());
    }
    let known: Vec<&str> = spillway_protocol::codes().collect();
    let nearest = spillway_types::nearest(text, &known);
    let meant = nearest.map(|code| format!("did you mean {code}? ")).unwrap_or_default();
    Err(format!("{meant}docs/reference/access-log.md has all codes"))
}

/// Table whose rows come one by one: columns grow with their content, as far as the terminal has
/// room. A narrow terminal shows fewer of them.
#[derive(Debug)]
struct Table {
    /// Places of the shown columns in a row, and their characters.
    columns: Vec<(usize, usize)>,
    width: usize,
    has_heading: bool,
}

impl Table {
    fn new(width: usize) -> Self {
        let widths = request::COLUMNS.map(|column| column.width);
        let mut columns: Vec<(usize, usize)> = widths.into_iter().enumerate().collect();
        for dropped in request::DROPPED {
            if total(&columns) <= width {
                break;
            }
            columns.retain(|(place, _)| request::COLUMNS[*place].name != dropped);
        }
        Self { columns, width, has_heading: false }
    }

    fn show(&mut self, entry: &Value) -> Result<()> {
        if !self.has_heading {
            self.has_heading = true;
            output::line(&self.line(&request::COLUMNS.map(|column| column.name.to_owned())))?;
        }
        let line = self.line(&request::row(entry));
        Ok(output::line(&line)?)
    }

    fn line(&mut self, cells: &[String]) -> String {
        let cells = cells_of(cells.to_vec());
        let mut room = self.width.saturating_sub(total(&self.columns));
        let padded = self.columns.iter_mut().map(|(place, width)| {
            let cell = &cells[*place];
            let more = cell.chars().count().saturating_sub(*width).min(room);
            room -= more;
            *width += more;
            fitted(cell, *width)
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    }
}

/// Returns the characters of a line with these columns.
fn total(columns: &[(usize, usize)]) -> usize {
    columns.iter().map(|(_, width)| width + 2).sum::<usize>().saturating_sub(2)
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
    fn a_status_is_one_that_replies_have_or_a_class() {
        for (given, taken) in [("503", "503"), ("5xx", "5xx"), ("4XX", "4xx")] {
            assert_eq!(parse_status(given), Ok(taken.to_owned()));
        }
        for wrong in ["9xx", "0xx", "5x", "99", "600", "abc", "", "+50", "5xxx"] {
            assert!(parse_status(wrong).unwrap_err().contains("1xx to 5xx"), "{wrong}");
        }
    }

    #[test]
    fn rows_fit_the_terminal_and_keep_where_and_why() {
        let row = ["16:21:55", "200", "-", "85 ms", "1.2 s", "~1024(512)+128", "llama-3.1-8b"];
        let row = [&row[..], &["acme-1", "us-east-1/us-gpu-b", "lighter_of_two"]].concat();
        let row: Vec<String> = row.into_iter().map(str::to_owned).collect();
        let mut narrow = Table::new(80);
        let line = narrow.line(&row);
        assert!(line.chars().count() <= 80, "{line}");
        assert!(line.contains("us-east-1/us-gpu-b") && line.ends_with("lighter_of_two"), "{line}");
        assert!(!line.contains("acme-1"), "{line}");
        let mut wide = Table::new(usize::MAX);
        assert!(row.iter().all(|cell| wide.line(&row).contains(cell)));
        let mut tiny = Table::new(40);
        assert!(tiny.line(&row).starts_with("16:21:55  200"));
    }

    #[test]
    fn a_narrow_terminal_has_the_code_whole() {
        let row = ["16:21:55", "503", "deadline_exceeded", "-", "1.2 s", "-", "llama-3.1-8b"];
        let row = [&row[..], &["acme-1", "us-east-1/us-gpu-b", "guest_without_room"]].concat();
        let row: Vec<String> = row.into_iter().map(str::to_owned).collect();
        let line = Table::new(80).line(&row);
        assert!(line.chars().count() <= 80, "{line}");
        assert!(
            line.contains("deadline_exceeded") && line.contains("us-east-1/us-gpu-b"),
            "{line}"
        );
    }

    #[test]
    fn a_code_is_one_that_records_have() {
        for code in ["replica_connect", "replica_error", "region_lost", "client_closed"] {
            assert_eq!(parse_code(code), Ok(code.to_owned()));
        }
        assert!(
            parse_code("replica_conect").unwrap_err().contains("did you mean replica_connect?")
        );
    }

    #[test]
    fn filters_become_a_query_whose_values_are_escaped() {
        let line = ["tail", "--model", "meta/llama", "--status", "5xx", "--failed"];
        let args = Line::parse_from(line).args;
        assert_eq!(args.filters(), "&model=meta%2Fllama&status=5xx&failed=true");
        assert_eq!(Line::parse_from(["tail"]).args.filters(), "");
    }
}
