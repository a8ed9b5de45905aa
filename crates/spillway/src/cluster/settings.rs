//! `spillway settings`: settings of the whole cluster, each a bare value.

use anyhow::Result;
use clap::{Args, Subcommand};
use http::Method;

use super::calls::{change, list, show};
use super::client::{AdminClient, escaped};
use super::columns::SETTINGS;
use super::connect::Connect;
use super::record;
use super::resource_args::ChangeArgs;
use super::text;

#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    command: Option<SettingsCommand>,
}

#[derive(Debug, Subcommand)]
enum SettingsCommand {
    /// Lists all records; the default command.
    List,
    /// Shows one setting.
    Show {
        /// Name of the setting.
        name: String,
    },
    /// Sets a setting.
    #[command(alias = "put")]
    Set {
        /// Name of the setting.
        name: String,
        /// The value.
        value: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Resets a setting to its default.
    Remove {
        /// Name of the setting.
        name: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
}

/// Shows or changes settings.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(super) async fn run(args: &SettingsArgs) -> Result<()> {
    let client = AdminClient::new(&args.connect)?;
    let path = |name: &str| format!("/v1/settings/{}", escaped(name));
    match &args.command {
        None | Some(SettingsCommand::List) => list(&client, "settings", SETTINGS).await,
        Some(SettingsCommand::Show { name }) => {
            let answer = client.read(&path(name)).await?;
            show(&client, &answer, &text::facts(&answer["item"]))
        }
        Some(SettingsCommand::Set { name, value, change: how }) => {
            let record = record::setting(value)?;
            change(&client, Method::PUT, &path(name), Some(&record), how).await
        }
        Some(SettingsCommand::Remove { name, change: how }) => {
            change(&client, Method::DELETE, &path(name), None, how).await
        }
    }
}
