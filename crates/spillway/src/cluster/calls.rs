//! Calls of the admin API that several commands share.

use anyhow::Result;
use http::Method;
use serde_json::Value;
use spillway_node::Resource;

use super::change_args::ChangeArgs;
use super::client::AdminClient;
use super::text;
use crate::output;
use crate::screen::width;

/// Lists the records of a kind.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) async fn list(client: &AdminClient, resource: Resource) -> Result<()> {
    let answer = client.list(resource.name()).await?;
    show(client, &answer, &text::records(resource.columns(), &answer["items"]).text(width()))
}

/// Sends a change to `path`, and prints its effects.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) async fn change(
    client: &AdminClient,
    method: Method,
    path: &str,
    body: Option<&Value>,
    how: &ChangeArgs,
) -> Result<()> {
    let answer = client.change(method, path, body, how).await?;
    show_change(client, &answer, how.dry_run)
}

/// Prints the effects of a change, past or expected.
pub(crate) fn show_change(client: &AdminClient, answer: &Value, is_dry: bool) -> Result<()> {
    let text = match answer["version"].as_u64() {
        _ if is_dry => text::diff(answer),
        Some(version) => format!("done: version {version}"),
        None => "nothing to change".to_owned(),
    };
    show(client, answer, &text)
}

/// Prints an answer as JSON or as `text`, with a note if it is stale.
pub(crate) fn show(client: &AdminClient, answer: &Value, text: &str) -> Result<()> {
    if client.as_json {
        return Ok(output::line(&answer.to_string())?);
    }
    if let Some(staleness) = text::staleness(answer) {
        output::note(&staleness);
    }
    Ok(output::line(text)?)
}
