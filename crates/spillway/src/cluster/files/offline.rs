//! Commands on the data folder of a node that does not run.

use std::path::Path;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use serde_json::json;
use spillway_raft::{ClusterId, FolderOwner, Founder, NodeId, owner_of};

use super::backup;
use super::backup_args::RestoreArgs;
use super::offline_args::{ForceArgs, FounderArgs};
use crate::output;

pub(crate) fn restore(args: &RestoreArgs) -> Result<()> {
    let RestoreArgs { folder, dry_run, .. } = args;
    if owner_of(folder)?.is_some() {
        bail!("{} holds a log: name an empty folder", folder.display());
    }
    let bytes = backup::read(args)?;
    if *dry_run {
        // Restored into a temporary folder, which shows if the backup is whole.
        let elsewhere = tempfile::tempdir()?;
        let (_, founder) = into_folder(args, bytes, &elsewhere.path().join("data"))?;
        let (file, folder) = (args.file.display(), folder.display());
        let Founder { node, name, region } = founder;
        let text = format!("{file} can be restored into {folder}: {name} of {region} is {node}");
        return report(args, None, &text);
    }
    let (cluster, founder) = into_folder(args, bytes, folder)?;
    let text = format!(
        "{} is the folder of cluster {cluster}, with node {} of {} alone: start it, then let the \
         others join by token, with empty folders",
        folder.display(),
        founder.name,
        founder.region,
    );
    report(args, Some(cluster), &text)
}

pub(crate) fn force_new_cluster(args: &ForceArgs) -> Result<()> {
    let FounderArgs { folder, dry_run, .. } = &args.founder;
    let owner = owner_of(folder)?
        .with_context(|| format!("{} holds no log: name a node's folder", folder.display()))?;
    let founder = founder(&args.founder, owner.node);
    if *dry_run {
        return report_force(&args.founder, None, &consequences(&owner, &founder));
    }
    if !args.yes {
        bail!("{}; say --yes if that is meant", consequences(&owner, &founder));
    }
    let cluster = spillway_raft::force_new_cluster(folder, &founder)?;
    let text = format!(
        "node {} is alone in cluster {cluster}: start it, then let the others join by token, with \
         empty folders",
        founder.name
    );
    report_force(&args.founder, Some(cluster), &text)
}

fn consequences(owner: &FolderOwner, founder: &Founder) -> String {
    let cluster = owner.cluster.map(|id| format!("cluster {id}"));
    let cluster = cluster.as_deref().unwrap_or("no cluster");
    format!(
        "node {} ({}) of {cluster} would be alone in a new cluster with what its log holds; what \
         it has not received is lost, and the other nodes have to join with empty folders",
        owner.node, founder.name,
    )
}

fn into_folder(args: &RestoreArgs, bytes: Bytes, folder: &Path) -> Result<(ClusterId, Founder)> {
    spillway_raft::restore_bytes(&args.file, bytes, folder, &args.node.as_str().into())
        .with_context(|| format!("{} can't be restored", args.file.display()))
}

fn report(args: &RestoreArgs, cluster: Option<ClusterId>, text: &str) -> Result<()> {
    let RestoreArgs { node, folder, dry_run, json, .. } = args;
    done(node, folder, (*dry_run, *json), cluster, text)
}

fn report_force(args: &FounderArgs, cluster: Option<ClusterId>, text: &str) -> Result<()> {
    let FounderArgs { node, folder, dry_run, json, .. } = args;
    done(node, folder, (*dry_run, *json), cluster, text)
}

fn founder(args: &FounderArgs, node: NodeId) -> Founder {
    Founder { node, name: args.node.as_str().into(), region: args.region.as_str().into() }
}

fn done(
    node: &str,
    folder: &Path,
    (dry_run, json): (bool, bool),
    cluster: Option<ClusterId>,
    text: &str,
) -> Result<()> {
    if !json {
        return Ok(output::line(text)?);
    }
    let cluster = cluster.map(|cluster| cluster.to_string());
    let report = json!({
        "ok": true, "dry_run": dry_run, "cluster": cluster, "folder": folder, "node": node,
        "what": text,
    });
    Ok(output::line(&report.to_string())?)
}
