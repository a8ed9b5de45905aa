//! Says what a command would change.

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use spillway_consensus::{Consistency, Read, ReadError};
use spillway_control::{ChangeDiff, Command, KEY_EPOCH, RecordKey, State};
use tokio::time::timeout;

use super::{Cluster, Freshness, trie, write};
use crate::call::Call;
use crate::error::ApiError;
use crate::fault;
use crate::records::{name_of, shown};
use crate::reply::{Reply, json};

/// What a command would change.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DryRun {
    /// How fresh the state was that it was tried on: stale if there is no quorum.
    #[serde(flatten)]
    pub(crate) freshness: Freshness,
    /// Always true.
    pub(crate) dry_run: bool,
    /// Record by record; empty if everything is so already.
    pub(crate) changes: Vec<Diff>,
}

/// How one record would change.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Diff {
    /// Its kind, as in paths.
    pub(crate) resource: String,
    /// Its name.
    pub(crate) key: String,
    /// How it is; none if it does not exist.
    pub(crate) before: Option<Value>,
    /// How it would be; none if it would be gone.
    pub(crate) after: Option<Value>,
}

pub(super) async fn dry_run(
    cluster: &Cluster<'_>,
    call: &Call,
    about: &RecordKey,
    command: &Command,
) -> Result<Reply, ApiError> {
    let freshness = published(cluster).await?;
    let tried = cluster.agreement.dry_run(command, write::actor(call));
    let changes = tried.map_err(|fault| fault::of_fault(fault, about))?;
    let mut shown: Vec<Diff> = changes.iter().map(diff).collect();
    let state = cluster.agreement.published();
    shown.extend(changes.iter().filter_map(|change| cold(&state, change)));
    Ok(json(StatusCode::OK, &DryRun { freshness, dry_run: true, changes: shown }))
}

/// Waits until what is published, which commands are tried on, has all that was carried out before.
async fn published(cluster: &Cluster<'_>) -> Result<Freshness, ApiError> {
    let (agreement, limit) = (&cluster.agreement, cluster.config.time_limit);
    let read = |consistency| agreement.read(consistency, limit, State::applied);
    let (read, consistency): (Read<u64>, _) = match read(Consistency::Linearizable).await {
        Err(ReadError::NoQuorum { .. } | ReadError::TimedOut) => {
            (read(Consistency::Stale).await.map_err(error(cluster))?, Consistency::Stale)
        }
        read => (read.map_err(error(cluster))?, Consistency::Linearizable),
    };
    let mut publications = agreement.publications();
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

/// What is known of prompts is no record, but who changes their key or removes a region wants to
/// know what is lost with it.
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
