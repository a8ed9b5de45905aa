//! Watches: changes as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::unfold;
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_cluster_state::ChangeKind;
use spillway_control_plane::{Changed, ControlPlane, TooOldError};
use spillway_raft::Consistency;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;

use super::cluster::Cluster;
use super::freshness::Freshness;
use crate::access::Credential;
use crate::call::AdminCall;
use crate::error::ApiError;
use crate::fault;
use crate::records::name_of;
use crate::reply::{Reply, reply};

/// Time after which a watcher that found no place tries again: about as long as a watch that was
/// cut off lasts.
const RETRY_AFTER: Duration = Duration::from_secs(15);

/// Changes of one entry. All changed records of an entry are in one event, so that a watcher that
/// resumes after it has missed none.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Event {
    /// Index of the entry.
    pub(crate) index: u64,
    /// Time by the cluster's clock, in milliseconds since 1970.
    pub(crate) stamp_ms: u64,
    /// Changed records.
    pub(crate) changes: Vec<ChangeInfo>,
}

/// A record that was changed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ChangeInfo {
    /// Kind of the record, as in paths.
    pub(crate) resource: String,
    /// Name of the record.
    pub(crate) key: String,
    /// `created`, `updated` or `removed`.
    pub(crate) kind: String,
}

/// Event for a watcher that asked for changes which are forgotten. It has to read everything again,
/// and then watch from `index` on.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Lost {
    /// Index that the new read must have at least, and to watch from.
    pub(crate) index: u64,
    /// Cause of the event.
    pub(crate) cause: String,
    /// Advice to the watcher.
    pub(crate) remedy: String,
}

/// A watch in progress.
struct Watcher {
    control_plane: Arc<ControlPlane>,
    applied: watch::Receiver<u64>,
    /// Index up to which all changes were sent.
    told: u64,
    state: WatchState,
    alive: Duration,
    /// Credential of the watcher: the watch ends when it becomes invalid.
    credential: Credential,
    /// Index of the published state, in which keys are looked up.
    published: watch::Receiver<u64>,
    _place: OwnedSemaphorePermit,
}

/// State of a watch.
enum WatchState {
    /// Nothing was sent yet. // => (Watching | Ended)
    Begun,
    /// Changes are sent when they happen. // => Ended
    Watching,
    /// Nothing more is to be sent.
    Ended,
}

pub(super) async fn watch(cluster: &Cluster<'_>, call: &AdminCall) -> Result<Reply, ApiError> {
    // A browser that connects again sends its last event, and the address with the old `after`.
    let from = match call.last_event.as_ref().or(call.query.after.as_ref()) {
        None => None,
        Some(text) => Some(text.parse::<u64>().map_err(|_| wrong())?),
    };
    let place = Arc::clone(cluster.watchers).try_acquire_owned().map_err(|_| {
        let cause = format!("{} watches are under way", cluster.config.watchers_max);
        let remedy = "end one of them, or watch another node";
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_watchers", cause, remedy)
            .with_retry_after(RETRY_AFTER)
    })?;
    let control_plane = Arc::clone(&cluster.control_plane);
    let applied = control_plane.applied();
    let freshness = freshness(&control_plane)
        .await
        .ok_or_else(|| fault::of_read(spillway_raft::ReadError::TimedOut, cluster.leader()))?;
    let watcher = Watcher {
        control_plane,
        applied,
        // Without an index the watch begins now.
        told: from.unwrap_or(freshness.index),
        state: WatchState::Begun,
        alive: cluster.config.watch_alive,
        credential: cluster.credential.clone(),
        published: cluster.control_plane.publications(),
        _place: place,
    };
    let events = unfold(watcher, |mut watcher| async {
        let text = watcher.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(text))), watcher))
    });
    let body = StreamBody::new(events).map_err(|never| match never {}).boxed_unsync();
    Ok(reply(StatusCode::OK, "text/event-stream", body))
}

impl Watcher {
    /// Returns the next event; `None` at the end. A slow reader delays nothing but this watch:
    /// changes in the meantime are sent together, or are forgotten, and an event says so.
    async fn next(&mut self) -> Option<String> {
        match self.state {
            WatchState::Begun => {
                self.state = WatchState::Watching;
                // Gives a client that asked for no index the start of its watch.
                let freshness = freshness(&self.control_plane).await?;
                Some(event("begin", self.told, &freshness))
            }
            WatchState::Watching => self.watch().await,
            WatchState::Ended => None,
        }
    }

    async fn watch(&mut self) -> Option<String> {
        loop {
            // Marked before the look, so that a change in between wakes the watch again.
            self.applied.mark_unchanged();
            self.published.mark_unchanged();
            if !self.credential.holds(Some(&self.control_plane.published())) {
                return None;
            }
            let freshness = freshness(&self.control_plane).await?;
            match self.control_plane.changes_after(self.told) {
                // The watcher is too far behind and has to read everything again.
                Err(too_old) => {
                    self.state = WatchState::Ended;
                    return Some(lost(too_old, &freshness));
                }
                Ok(changes) if !changes.is_empty() => return Some(self.tell(&changes)),
                Ok(_) => {}
            }
            let changed = tokio::select! {
                changed = timeout(self.alive, self.applied.changed()) => changed,
                // Back to the top, where the credential is checked again.
                () = self.credential.changed() => continue,
                Ok(()) = self.published.changed() => continue,
            };
            match changed {
                Ok(Ok(())) => {}
                // The log has ended.
                Ok(Err(_)) => return None,
                Err(_) => {
                    // Everything up to there was sent. The client may have seen more than this node
                    // has.
                    self.told = self.told.max(freshness.index);
                    return Some(event("alive", self.told, &freshness));
                }
            }
        }
    }

    fn tell(&mut self, changes: &[Changed]) -> String {
        let mut text = String::new();
        for entry in changes.chunk_by(|a, b| a.index == b.index) {
            let (index, stamp_ms) = (entry[0].index, entry[0].stamp_ms);
            let changes = entry.iter().map(change).collect();
            text.push_str(&event("change", index, &Event { index, stamp_ms, changes }));
            self.told = index;
        }
        text
    }
}

async fn freshness(control_plane: &ControlPlane) -> Option<Freshness> {
    let read = control_plane.read(Consistency::Stale, Duration::ZERO, |_| ()).await.ok()?;
    Some(Freshness::of(&read, Consistency::Stale))
}

fn change(changed: &Changed) -> ChangeInfo {
    let (resource, key) = name_of(&changed.change.key);
    let kind = match changed.change.kind {
        ChangeKind::Created => "created",
        ChangeKind::Updated => "updated",
        ChangeKind::Removed => "removed",
    };
    ChangeInfo { resource: resource.to_owned(), key, kind: kind.to_owned() }
}

fn lost(too_old: TooOldError, freshness: &Freshness) -> String {
    // A watch from before the oldest known change would be lost again.
    let index = freshness.index.max(too_old.oldest);
    let lost = Lost {
        index,
        cause: too_old.to_string(),
        remedy: "list what you watch, then watch from the index that the list says".to_owned(),
    };
    event("too_old", index, &lost)
}

/// Makes the text of one event. JSON has no line breaks, so the data is one line.
fn event(kind: &str, id: u64, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("id: {id}\nevent: {kind}\ndata: {data}\n\n")
}

fn wrong() -> ApiError {
    let remedy = "send the id of the last event, or the index of a read";
    ApiError::bad_request("the index to watch from can't be read", remedy)
}
