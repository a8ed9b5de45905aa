//! `spillway edit`: a record in the operator's editor.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use http::Method;
use serde_json::{Value, json};

use super::apply::check_writable;
use super::kind::{Kind, path_of};
use crate::cluster::calls::show_change;
use crate::cluster::change_args::ChangeArgs;
use crate::cluster::client::AdminClient;
use crate::connect::Connect;
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway edit limit tenant:acme\n\n\
    The editor is VISUAL or EDITOR, else vi. A record that was changed by another client in the \
    meantime is not overwritten.")]
pub(crate) struct EditArgs {
    #[command(flatten)]
    connect: Connect,
    /// Kind of record.
    #[arg(value_enum)]
    kind: Kind,
    /// Name of the record.
    name: String,
    /// Creates the record if it does not exist.
    #[arg(long)]
    create: bool,
    /// Shows what would change, without changing anything.
    #[arg(long)]
    dry_run: bool,
}

/// Opens a record in an editor, and writes the edited record.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses, or if the editor fails. The edited
/// text is kept then.
pub(crate) async fn run(args: &EditArgs) -> Result<()> {
    let resource = args.kind.0;
    check_writable(resource)?;
    let path = path_of(resource, &args.name)?;
    let client = AdminClient::new(&args.connect)?;
    let item = match args.create {
        true => client.optional(&path).await?.map(|answer| answer["item"].clone()),
        false => Some(client.read(&path).await?["item"].clone()),
    };
    let item = item.unwrap_or_default();
    let before = if item.is_null() { json!({}) } else { item["record"].clone() };
    let text = format!("{}\n", serde_json::to_string_pretty(&before)?);
    let folder = tempfile::tempdir()?;
    let file = folder.path().join(format!("{}.json", resource.name()));
    std::fs::write(&file, text)?;
    open(&file)?;
    let written = write(&client, (&path, &item, &before), &file, args.dry_run).await;
    if written.is_err() {
        let kept = folder.keep().join(format!("{}.json", resource.name()));
        output::note(&format!("what you wrote is in {}", kept.display()));
    }
    written
}

async fn write(
    client: &AdminClient,
    (path, item, before): (&str, &Value, &Value),
    file: &Path,
    dry_run: bool,
) -> Result<()> {
    let after = std::fs::read_to_string(file)?;
    let after: Value = serde_json::from_str(&after).context("it is no JSON any more")?;
    if after == *before {
        return Ok(output::line("nothing to change")?);
    }
    // A change that another operator made during the editing is not overwritten.
    let if_version = item["version"].as_u64();
    let how = ChangeArgs { dry_run, if_version, if_absent: item.is_null(), create: false };
    let answer = client.change(Method::PUT, path, Some(&after), &how).await?;
    show_change(client, &answer, dry_run)
}

/// Opens a file in the editor, and waits for its end.
fn open(file: &Path) -> Result<()> {
    let named = |variable| std::env::var(variable).ok().filter(|editor| !editor.is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    // Editors are named with their options, so a shell takes them apart.
    let script = format!("{editor} \"$1\"");
    let status = Command::new("sh")
        .args(["-c", &script, "spillway edit"])
        .arg(file)
        .status()
        .with_context(|| format!("can't start the editor {editor}"))?;
    if !status.success() {
        bail!("the editor {editor} failed ({status}): nothing was changed");
    }
    Ok(())
}
