//! `spillway audit`: who did what in the cluster.

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use crate::cluster::calls::show;
use crate::cluster::client::AdminClient;
use crate::cluster::text::moment;
use crate::connect::Connect;
use crate::screen::{Table, width};

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway audit --last 50\n\
    Example: spillway audit --system\n\n\
    Newest first, including refused commands with the reason.")]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    connect: Connect,
    /// Number of entries.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    last: u16,
    /// Shows actions that nodes took on their own, instead of those of operators.
    #[arg(long)]
    system: bool,
}

/// Shows the audit trail.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) async fn run(args: &AuditArgs) -> Result<()> {
    let client = AdminClient::new(&args.connect)?;
    let trail = if args.system { "system" } else { "operators" };
    let answer = client.read(&format!("/v1/audit?limit={}&trail={trail}", args.last)).await?;
    show(&client, &answer, &picture(&answer, width()))
}

fn picture(answer: &Value, width: usize) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let rows: Vec<Vec<String>> = answer["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|deed| {
            let who = deed["operator"].as_str().unwrap_or("the node itself").to_owned();
            let outcome = match deed["cause"].as_str() {
                Some(cause) => format!("{}: {cause}", text(&deed["outcome"])),
                None => text(&deed["outcome"]),
            };
            let at = moment(deed["stamp_ms"].as_u64().unwrap_or_default());
            vec![at, who, text(&deed["node"]), text(&deed["what"]), outcome]
        })
        .collect();
    if rows.is_empty() {
        return "nothing was done yet".to_owned();
    }
    let table = Table::new(&["UTC", "who", "by node", "what", "outcome"], rows);
    table.dropping(&["by node", "who"]).text(width)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deed_says_when_who_what_and_with_what_outcome() {
        let answer = json!({ "items": [
            { "stamp_ms": 1_795_732_541_049_u64, "operator": "ann", "node": "n1",
              "what": "drain region eu", "outcome": "refused", "cause": "it is the last" },
            { "stamp_ms": 0, "operator": null, "node": "n2", "what": "x", "outcome": "applied" },
        ]});
        let shown = picture(&answer, 200);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[1].starts_with("26 Nov 2026 22:35:41  ann"), "{shown}");
        assert!(lines[1].ends_with("drain region eu  refused: it is the last"), "{shown}");
        assert!(lines[2].starts_with("01 Jan 1970 00:00:00  the node itself  n2"), "{shown}");
        assert_eq!(picture(&json!({ "items": [] }), 80), "nothing was done yet");
    }
}
