//! `spillway watch`: what changes in the cluster, as it changes.

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use crate::cluster::client::AdminClient;
use crate::cluster::text::moment;
use crate::connect::Connect;
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway watch\n\
    Example: spillway watch --after 1200 --json\n\n\
    A line for each record that was created, updated or removed. `spillway audit` shows who did it.")]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    connect: Connect,
    /// Begins with the changes after this index that the node still has; by default only new
    /// changes.
    #[arg(long)]
    after: Option<u64>,
}

/// Shows changes until the node ends the watch.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses, or standard output is closed.
pub(crate) async fn run(args: &WatchArgs) -> Result<()> {
    let client = AdminClient::new(&args.connect)?;
    let after = args.after.map(|after| format!("?after={after}")).unwrap_or_default();
    client
        .events(&format!("/v1/watch{after}"), |kind, data| {
            let data: Value = serde_json::from_str(data).unwrap_or_default();
            lines(kind, &data, client.as_json).iter().try_for_each(|line| output::line(line))?;
            Ok(())
        })
        .await
}

/// Returns the shown lines of an event.
fn lines(kind: &str, data: &Value, as_json: bool) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    match kind {
        "change" if as_json => vec![data.to_string()],
        "change" => {
            let at = moment(data["stamp_ms"].as_u64().unwrap_or_default());
            let changes = data["changes"].as_array().into_iter().flatten();
            let line = |change: &Value| {
                let (resource, key) = (text(&change["resource"]), text(&change["key"]));
                format!("{at}  {}  {resource} {key} {}", data["index"], text(&change["kind"]))
            };
            changes.map(line).collect()
        }
        "too_old" => vec![format!("{}: {}", text(&data["cause"]), text(&data["remedy"]))],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_record_of_a_change_has_its_line() {
        let change = |kind: &str| json!({ "resource": "limits", "key": "global", "kind": kind });
        let data = json!({
            "index": 7, "stamp_ms": 0, "changes": [change("created"), change("removed")],
        });
        let shown = lines("change", &data, false);
        assert_eq!(
            shown,
            [
                "01 Jan 1970 00:00:00  7  limits global created",
                "01 Jan 1970 00:00:00  7  limits global removed",
            ]
        );
        assert_eq!(lines("change", &data, true), [data.to_string()]);
        assert!(lines("alive", &data, false).is_empty());
    }
}
