//! Calls of the admin API that commands about all kinds of records share.

use anyhow::{Result, bail};
use http::Method;
use serde_json::{Map, Value};

use super::client::{AdminClient, escaped};
use super::connect::Connect;
use super::resource_args::{ChangeArgs, Fields, ResourceCommand, flags_of};
use super::served::note_unserved;
use super::text::{self, Column};
use crate::output;
use crate::screen::width;

/// Carries out a command about records of one kind, which a list shows in these `columns`.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses, or a record can't be read.
pub(super) async fn records<F: Fields>(
    resource: &str,
    columns: &[Column],
    (connect, command): (&Connect, Option<&ResourceCommand<F>>),
) -> Result<()> {
    let client = AdminClient::new(connect)?;
    carry_out(&client, resource, command, list(&client, resource, columns)).await
}

/// Carries out a command about records of one kind; `listing` shows all of them.
///
/// # Errors
/// Returns the errors of [`records`].
pub(super) async fn carry_out<F: Fields>(
    client: &AdminClient,
    resource: &str,
    command: Option<&ResourceCommand<F>>,
    listing: impl Future<Output = Result<()>>,
) -> Result<()> {
    let path = |name: &str| format!("/v1/{resource}/{}", escaped(name));
    match command {
        None | Some(ResourceCommand::List) => listing.await,
        Some(ResourceCommand::Show { name }) => {
            let answer = client.read(&path(name)).await?;
            show(client, &answer, &text::facts(&answer["item"]))
        }
        Some(ResourceCommand::Put { name, record, replace, create, change: how }) => {
            let record = record.record()?;
            let method = if *replace { Method::PUT } else { Method::PATCH };
            change(client, method, &path(name), Some(&record), &how.creating(*create)).await
        }
        Some(ResourceCommand::Set { name, flags, create, change: how }) => {
            let fields = flags.fields();
            if fields.is_empty() {
                bail!("say what to set: {}", flags_of::<F>());
            }
            let models = fields.clone();
            set(client, &path(name), fields, &how.creating(*create)).await?;
            note_unserved(client, &models).await;
            Ok(())
        }
        Some(ResourceCommand::Remove { name, change: how }) => {
            change(client, Method::DELETE, &path(name), None, how).await
        }
    }
}

/// Changes fields of the record at `path`.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(super) async fn set(
    client: &AdminClient,
    path: &str,
    fields: Map<String, Value>,
    how: &ChangeArgs,
) -> Result<()> {
    change(client, Method::PATCH, path, Some(&Value::Object(fields)), how).await
}

pub(super) async fn list(client: &AdminClient, resource: &str, columns: &[Column]) -> Result<()> {
    let answer = client.list(resource).await?;
    show(client, &answer, &text::records(columns, &answer["items"]).text(width()))
}

pub(super) async fn change(
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
pub(super) fn show_change(client: &AdminClient, answer: &Value, is_dry: bool) -> Result<()> {
    let text = match answer["version"].as_u64() {
        _ if is_dry => text::diff(answer),
        Some(version) => format!("done: version {version}"),
        None => "nothing to change".to_owned(),
    };
    show(client, answer, &text)
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
