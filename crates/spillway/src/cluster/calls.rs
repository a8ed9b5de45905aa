//! Calls of the admin API that commands about all kinds of records share.

use anyhow::Result;
use http::Method;
use serde_json::Value;

use super::client::{AdminClient, escaped};
use super::connect::Connect;
use super::resource_args::{ChangeArgs, Recorded, ResourceCommand};
use super::text::{self, Column};
use crate::output;

/// Carries out a command about records of one kind, which a list shows in these `columns`.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses, or a record can't be read.
pub(super) async fn records<P: Recorded>(
    resource: &str,
    columns: &[Column],
    (connect, command): (&Connect, Option<&ResourceCommand<P>>),
) -> Result<()> {
    let client = AdminClient::new(connect)?;
    carry_out(&client, resource, command, list(&client, resource, columns)).await
}

/// Carries out a command about records of one kind; `listing` shows all of them.
///
/// # Errors
/// Returns the errors of [`records`].
pub(super) async fn carry_out<P: Recorded>(
    client: &AdminClient,
    resource: &str,
    command: Option<&ResourceCommand<P>>,
    listing: impl Future<Output = Result<()>>,
) -> Result<()> {
    let path = |name: &str| format!("/v1/{resource}/{}", escaped(name));
    match command {
        None | Some(ResourceCommand::List) => listing.await,
        Some(ResourceCommand::Show { name }) => {
            let answer = client.read(&path(name)).await?;
            show(client, &answer, &text::facts(&answer["item"]))
        }
        Some(ResourceCommand::Put { name, record, change: how }) => {
            let record = record.record(resource)?;
            change(client, Method::PUT, &path(name), Some(&record), how).await
        }
        Some(ResourceCommand::Remove { name, change: how }) => {
            change(client, Method::DELETE, &path(name), None, how).await
        }
    }
}

pub(super) async fn list(client: &AdminClient, resource: &str, columns: &[Column]) -> Result<()> {
    let answer = client.list(resource).await?;
    show(client, &answer, &text::table(columns, &answer["items"]))
}

pub(super) async fn change(
    client: &AdminClient,
    method: Method,
    path: &str,
    body: Option<&Value>,
    how: &ChangeArgs,
) -> Result<()> {
    let answer = client.change(method, path, body, how).await?;
    let text = match answer["version"].as_u64() {
        _ if how.dry_run => text::diff(&answer),
        Some(version) => format!("done: version {version}"),
        None => "nothing to change".to_owned(),
    };
    show(client, &answer, &text)
}

/// Prints an answer as JSON or as `text`, with a note if it is stale.
pub(super) fn show(client: &AdminClient, answer: &Value, text: &str) -> Result<()> {
    if client.as_json {
        return Ok(output::line(&answer.to_string())?);
    }
    if let Some(staleness) = text::staleness(answer) {
        output::note(&staleness);
    }
    Ok(output::line(text)?)
}
