//! Dry runs: the changes that a command would make.

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use spillway_cluster_state::{ChangeDiff, Command, KEY_EPOCH, RecordKey, State};
use spillway_raft::{Consistency, Read, ReadError};
use tokio::time::timeout;

use super::cluster::Cluster;
use super::freshness::Freshness;
use super::{moved, trie, write};
use crate::call::AdminCall;
use crate::error::ApiError;
use crate::fault;
use crate::moved_load::MovedLoad;
use crate::records::{name_of, shown};
use crate::reply::{Reply, json};

/// Changes that a command would make.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DryRun {
    /// Freshness of the state that the command was tried on: stale if there is no quorum.
    #[serde(flatten)]
    pub(crate) freshness: Freshness,
    /// Always true.
    pub(crate) dry_run: bool,
    /// Changed records; empty if the command would change nothing.
    pub(crate) changes: Vec<Diff>,
    /// Estimate of the requests that would move; null for orders other than a drain.
    pub(crate) moved: Option<MovedLoad>,
}

/// Change of one record.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Diff {
    /// Kind of the record, as in paths.
    pub(crate) resource: String,
    /// Name of the record.
    pub(crate) key: String,
    /// The record as it is; null if it does not exist.
    pub(crate) before: Option<Value>,
    /// The record as it would be; null if it would be removed.
    pub(crate) after: Option<Value>,
}

pub(super) async fn dry_run(
    cluster: &Cluster<'_>,
    call: &AdminCall,
    about: &RecordKey,
    command: &Command,
) -> Result<Reply, ApiError> {
    let freshness = published(cluster).await?;
    let tried = cluster.control_plane.dry_run(command, write::actor(call));
    let changes = tried.map_err(|fault| fault::of_fault(fault, about))?;
    let mut shown: Vec<Diff> = changes.iter().map(diff).collect();
    let state = cluster.control_plane.published();
    shown.extend(changes.iter().filter_map(|change| cold(&state, change)));
    let moved = moved::moved(cluster, call).await;
    Ok(json(StatusCode::OK, &DryRun { freshness, dry_run: true, changes: shown, moved }))
}

/// Waits until the published state, which commands are tried on, has everything that was carried
/// out before.
async fn published(cluster: &Cluster<'_>) -> Result<Freshness, ApiError> {
    let (control_plane, limit) = (&cluster.control_plane, cluster.config.time_limit);
    let read = |consistency| control_plane.read(consistency, limit, State::applied);
    let (read, consistency): (Read<u64>, _) = match read(Consistency::Linearizable).await {
        // Better tried on a stale state than not at all: the answer says that it was stale.
        Err(ReadError::NoQuorum { .. } | ReadError::TimedOut) => {
            (read(Consistency::Stale).await.map_err(error(cluster))?, Consistency::Stale)
        }
        read => (read.map_err(error(cluster))?, Consistency::Linearizable),
    };
    let mut publications = control_plane.publications();
    let seen = timeout(limit, publications.wait_for(|index| *index >= read.value)).await;
    if !matches!(seen, Ok(Ok(_))) {
        return Err(fault::of_read(ReadError::TimedOut, cluster.leader()));
    }
    Ok(Freshness::of(&read, consistency))
}

fn error(cluster: &Cluster<'_>) -> impl Fn(ReadError) -> ApiError {
    let leader = cluster.leader();
    move |error| {
        let leader = leader.as_ref().map(|hint| crate::error::LeaderHint {
            node: hint.node.clone(),
            region: hint.region.clone(),
        });
        fault::of_read(error, leader)
    }
}

/// Returns the hot prompts that a change would make useless, if any. Those are no records, but an
/// operator who rotates their key or removes a region should see the loss.
fn cold(state: &State, change: &ChangeDiff) -> Option<Diff> {
    let (key, size) = match (&change.key, &change.after) {
        (RecordKey::Setting(name), _) if name == KEY_EPOCH => ("all", trie::size(state)),
        (RecordKey::Region(name), None) => (name.as_str(), trie::size_of(state, name)?),
        _ => return None,
    };
    let (resource, key) = ("trie".to_owned(), key.to_owned());
    Some(Diff { resource, key, before: Some(size), after: None })
}

fn diff(change: &ChangeDiff) -> Diff {
    let (resource, key) = name_of(&change.key);
    let shown = |record| shown(&change.key, record);
    Diff {
        resource: resource.to_owned(),
        key,
        before: change.before.as_ref().map(shown),
        after: change.after.as_ref().map(shown),
    }
}
