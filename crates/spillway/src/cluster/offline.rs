//! Commands on the data folder of a node that does not run.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::json;
use spillway_consensus::{ClusterId, FolderOwner, Founder, NodeId, owner_of};

use super::args::{ForceArgs, FounderArgs, RestoreArgs};
use crate::output;

pub(super) fn restore(args: &RestoreArgs) -> Result<()> {
    let founder = founder(&args.founder, NodeId(args.number));
    let FounderArgs { folder, dry_run, .. } = &args.founder;
    if owner_of(folder)?.is_some() {
        bail!("{} holds a log: name an empty folder", folder.display());
    }
    if *dry_run {
        // The same in a folder that nobody needs: whether the backup is whole shows then.
        let elsewhere = tempfile::tempdir()?;
        into_folder(&args.file, &elsewhere.path().join("data"), &founder)?;
        let text = format!("{} can be restored into {}", args.file.display(), folder.display());
        return done(&args.founder, None, &text);
    }
    let cluster = into_folder(&args.file, folder, &founder)?;
    let text = format!(
        "{} is the folder of cluster {cluster}, with node {} alone: start it, then let others join",
        folder.display(),
        founder.name,
    );
    done(&args.founder, Some(cluster), &text)
}

pub(super) fn force_new_cluster(args: &ForceArgs) -> Result<()> {
    let FounderArgs { folder, dry_run, .. } = &args.founder;
    let owner = owner_of(folder)?
        .with_context(|| format!("{} holds no log: name a node's folder", folder.display()))?;
    let founder = founder(&args.founder, owner.node);
    if *dry_run {
        return done(&args.founder, None, &consequences(&owner, &founder));
    }
    if !args.yes {
        bail!("{}; say --yes if that is meant", consequences(&owner, &founder));
    }
    let cluster = spillway_consensus::force_new_cluster(folder, &founder)?;
    let text = format!("node {} is alone in cluster {cluster}: start it", founder.name);
    done(&args.founder, Some(cluster), &text)
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

fn into_folder(backup: &Path, folder: &Path, founder: &Founder) -> Result<ClusterId> {
    spillway_consensus::restore(backup, folder, founder)
        .with_context(|| format!("{} can't be restored", backup.display()))
}

fn founder(args: &FounderArgs, node: NodeId) -> Founder {
    Founder { node, name: args.node.as_str().into(), region: args.region.as_str().into() }
}

fn done(args: &FounderArgs, cluster: Option<ClusterId>, text: &str) -> Result<()> {
    if !args.json {
        return Ok(output::line(text)?);
    }
    let cluster = cluster.map(|cluster| cluster.to_string());
    let report = json!({
        "ok": true, "dry_run": args.dry_run, "cluster": cluster, "folder": args.folder,
        "node": args.node, "what": text,
    });
    Ok(output::line(&report.to_string())?)
}
