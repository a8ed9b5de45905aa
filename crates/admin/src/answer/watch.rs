//! Tells what changes, as server-sent events.

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
use spillway_agreement::{Agreement, Changed, TooOld};
use spillway_consensus::Consistency;
use spillway_control::ChangeKind;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;

use super::{Cluster, Freshness};
use crate::access::Credential;
use crate::call::Call;
use crate::error::ApiError;
use crate::fault;
use crate::records::name_of;
use crate::reply::{Reply, reply};

/// A watcher that finds no place comes back after about as long as one lasts that was cut off.
const RETRY_AFTER: Duration = Duration::from_secs(15);

/// What one entry changed. Events of all records that it changed are one, so that whoever resumes
/// after it has missed none.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Event {
    /// The entry.
    pub(crate) index: u64,
    /// When, by the cluster's own time, milliseconds since 1970.
    pub(crate) stamp_ms: u64,
    /// The records.
    pub(crate) changes: Vec<ChangeInfo>,
}

/// A record that is not as it was.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ChangeInfo {
    /// Its kind, as in paths.
    pub(crate) resource: String,
    /// Its name.
    pub(crate) key: String,
    /// `created`, `updated` or `removed`.
    pub(crate) kind: String,
}

/// What the watcher asked for is forgotten. It reads everything again and watches from `index` on.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Lost {
    /// What to read at least, and to watch from.
    pub(crate) index: u64,
    /// Why.
    pub(crate) cause: String,
    /// What to do about it.
    pub(crate) remedy: String,
}

/// Somebody who watches.
struct Watcher {
    agreement: Arc<Agreement>,
    applied: watch::Receiver<u64>,
    /// What was told: all changes of entries up to this one.
    told: u64,
    state: WatchState,
    alive: Duration,
    /// The watch ends with it.
    credential: Credential,
    /// Keys are looked up in what is published, which follows what is applied.
    published: watch::Receiver<u64>,
    _place: OwnedSemaphorePermit,
}

/// Where a watch stands.
enum WatchState {
    /// Nothing was said yet. // => (Watching | Ended)
    Begun,
    /// Changes are told as they come. // => Ended
    Watching,
    /// There is nothing more to say.
    Ended,
}

pub(super) async fn watch(cluster: &Cluster<'_>, call: &Call) -> Result<Reply, ApiError> {
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
    let agreement = Arc::clone(&cluster.agreement);
    let applied = agreement.applied();
    let freshness = freshness(&agreement)
        .await
        .ok_or_else(|| fault::of_read(spillway_consensus::ReadError::TimedOut, cluster.leader()))?;
    let watcher = Watcher {
        agreement,
        applied,
        told: from.unwrap_or(freshness.index),
        state: WatchState::Begun,
        alive: cluster.config.watch_alive,
        credential: cluster.credential.clone(),
        published: cluster.agreement.publications(),
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
    /// What to send next; none at the end. Whoever reads slowly holds up nothing but this: what
    /// changes meanwhile is told together, or is forgotten and said to be.
    async fn next(&mut self) -> Option<String> {
        match self.state {
            WatchState::Begun => {
                self.state = WatchState::Watching;
                // So that a client that asked for no index knows where its watch begins.
                let freshness = freshness(&self.agreement).await?;
                Some(event("begin", self.told, &freshness))
            }
            WatchState::Watching => self.watch().await,
            WatchState::Ended => None,
        }
    }

    async fn watch(&mut self) -> Option<String> {
        loop {
            self.applied.mark_unchanged();
            self.published.mark_unchanged();
            if !self.credential.holds(Some(&self.agreement.published())) {
                return None;
            }
            let freshness = freshness(&self.agreement).await?;
            match self.agreement.changes_after(self.told) {
                Err(too_old) => {
                    self.state = WatchState::Ended;
                    return Some(lost(too_old, &freshness));
                }
                Ok(changes) if !changes.is_empty() => return Some(self.tell(&changes)),
                Ok(_) => {}
            }
            let changed = tokio::select! {
                changed = timeout(self.alive, self.applied.changed()) => changed,
                () = self.credential.changed() => continue,
                Ok(()) = self.published.changed() => continue,
            };
            match changed {
                Ok(Ok(())) => {}
                // The log has ended.
                Ok(Err(_)) => return None,
                Err(_) => {
                    // Nothing that changed up to there is untold, if this node is so far at all.
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

async fn freshness(agreement: &Agreement) -> Option<Freshness> {
    let read = agreement.read(Consistency::Stale, Duration::ZERO, |_| ()).await.ok()?;
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

fn lost(too_old: TooOld, freshness: &Freshness) -> String {
    let index = freshness.index.max(too_old.oldest);
    let lost = Lost {
        index,
        cause: too_old.to_string(),
        remedy: "list what you watch, then watch from the index that the list says".to_owned(),
    };
    event("too_old", index, &lost)
}

/// JSON has no line breaks, so one line is one event's data.
fn event(kind: &str, id: u64, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("id: {id}\nevent: {kind}\ndata: {data}\n\n")
}

fn wrong() -> ApiError {
    let remedy = "send the id of the last event, or the index of a read";
    ApiError::bad_request("the index to watch from can't be read", remedy)
}
