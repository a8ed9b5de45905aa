//! Commands that send requests to a node.

use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::{Value, json};
use spillway_config::moment_ms;
use spillway_node::Resource;
use spillway_types::unix_ms;

use super::args::{
    ClusterCommand, ClusterKeysCommand, CreateKeyArgs, JoinTokenArgs, JoinTokenCommand,
};
use super::calls::{change, show};
use super::change_args::ChangeArgs;
use super::client::AdminClient;
use super::debug;
use super::files::backup;
use super::orders::{leader, members, target};
use super::records::kind::path_of;
use super::records::served::note_unserved;
use super::records::{apply, edit, get, import, limits, names, remove, splits};
use super::text;
use super::view::{audit, status, top, usage, watch};
use crate::output;

pub(crate) async fn run(command: &ClusterCommand) -> Result<()> {
    match command {
        ClusterCommand::Status(connect) => status::run(&AdminClient::new(connect)?).await,
        ClusterCommand::Get(args) => get::run(args).await,
        ClusterCommand::Top(args) => top::run(args).await,
        ClusterCommand::Names(args) => names::run(args).await,
        ClusterCommand::Audit(args) => audit::run(args).await,
        ClusterCommand::Watch(args) => watch::run(args).await,
        ClusterCommand::Leader(args) => leader::run(args).await,
        ClusterCommand::Debug(args) => debug::run(args).await,
        ClusterCommand::Nodes(args) => members::nodes(args).await,
        ClusterCommand::Splits(args) => splits::run(args).await,
        ClusterCommand::Limits(args) => limits::run(args).await,
        ClusterCommand::Usage(args) => usage::run(args).await,
        ClusterCommand::Edit(args) => edit::run(args).await,
        ClusterCommand::Apply(args) => apply::run(args).await,
        ClusterCommand::Remove(args) => remove::run(args).await,
        ClusterCommand::Import(args) => import::run(args).await,
        ClusterCommand::Drain(args) => target::drain(args).await,
        ClusterCommand::Undrain(args) => target::undrain(args).await,
        ClusterCommand::Weight(args) => target::weight(args).await,
        ClusterCommand::JoinToken(args) => join_token(args).await,
        ClusterCommand::Backup(args) => backup::backup(args).await,
        // `super::run` has carried these out already.
        ClusterCommand::BackupKey(_)
        | ClusterCommand::Restore(_)
        | ClusterCommand::ForceNewCluster(_) => bail!("this works on files"),
    }
}

pub(crate) async fn keys(command: &ClusterKeysCommand) -> Result<()> {
    match command {
        ClusterKeysCommand::Create(args) => {
            let client = AdminClient::new(&args.connect)?;
            let how =
                ChangeArgs { dry_run: args.dry_run, create: args.create, ..ChangeArgs::default() };
            let key = new_key(args)?;
            create(&client, "/v1/keys", &key, &how).await?;
            if let Some(record) = key["record"].as_object() {
                note_unserved(&client, record).await;
            }
            Ok(())
        }
        ClusterKeysCommand::Revoke(args) => {
            let path = format!("{}/revoke", path_of(Resource::Keys, &args.key)?);
            let client = AdminClient::new(&args.connect)?;
            change(&client, Method::POST, &path, None, &args.change).await
        }
    }
}

fn new_key(args: &CreateKeyArgs) -> Result<Value> {
    let now_ms = unix_ms(SystemTime::now());
    let end_ms = args.expires.as_deref().map(|expires| {
        moment_ms(expires).with_context(|| {
            format!("{expires:?} is no moment: write day, time and offset, as 2027-01-31T00:00:00Z")
        })
    });
    let days_ms = args.days.map(|days| now_ms + u64::from(days) * 24 * 3_600_000);
    let expires_ms = end_ms.transpose()?.or(days_ms);
    Ok(json!({
        "key": args.name,
        "record": {
            "role": args.role, "tenant": args.tenant, "models": args.models,
            "regions": args.regions, "priority": args.priority, "expires_ms": expires_ms,
        },
    }))
}

async fn join_token(args: &JoinTokenArgs) -> Result<()> {
    let JoinTokenCommand::Create { region, hours, uses, operators, create: is_new, dry_run } =
        &args.command;
    let valid_s = hours.saturating_mul(3_600);
    let body = json!({
        "region": region, "valid_s": valid_s, "uses": uses, "operators": operators,
    });
    let how = ChangeArgs { dry_run: *dry_run, create: *is_new, ..ChangeArgs::default() };
    create(&AdminClient::new(&args.connect)?, "/v1/join-tokens", &body, &how).await
}

/// Creates a record with a secret. The secret alone goes to standard output, for scripts; the name
/// of the record goes to standard error, for people.
async fn create(client: &AdminClient, path: &str, body: &Value, how: &ChangeArgs) -> Result<()> {
    let answer = client.change(Method::POST, path, Some(body), how).await?;
    if how.dry_run {
        return show(client, &answer, &text::diff(&answer));
    }
    let secret = answer["secret"].as_str().unwrap_or_default();
    if !client.as_json {
        let key = answer["key"].as_str().unwrap_or_default();
        output::note(&format!("made {key}; its secret is shown this once:"));
    }
    show(client, &answer, secret)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn a_key_ends_at_a_moment_or_after_so_many_days() {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: CreateKeyArgs,
        }
        let of = |words: &[&str]| Line::try_parse_from([&["create"], words].concat());
        let made = |words: &[&str]| new_key(&of(words).unwrap().args);
        let moment = made(&["--expires", "2027-01-31T01:00:00+01:00"]).unwrap();
        assert_eq!(moment["record"]["expires_ms"], 1_801_353_600_000_u64);
        let wrong = made(&["--expires", "2027-01-31"]).unwrap_err().to_string();
        assert!(wrong.contains("is no moment"), "{wrong}");
        let days = made(&["--days", "1"]).unwrap()["record"]["expires_ms"].as_u64();
        assert!(days.is_some_and(|at| at > unix_ms(SystemTime::now())));
        let both = of(&["--days", "1", "--expires", "2027-01-31T00:00:00Z"]).unwrap_err();
        assert!(both.to_string().contains("cannot be used with"), "{both}");
    }
}
