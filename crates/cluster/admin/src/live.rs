//! Live view: a snapshot of the node, its replicas and all regions each second, as server-sent
//! events.
//!
//! All streams share each snapshot, so that many open pages ask the other nodes no more often than
//! one does.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::unfold;
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_control_plane::ControlPlane;
use spillway_types::unix_ms;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::access::{Caller, Credential};
use crate::answer::{NodeAnswer, judged};
use crate::error::ApiError;
use crate::overview::{NodePhase, Overview, RegionOverview, ReplicaOverview};
use crate::reply::{Reply, reply};

/// Time between two events.
const PERIOD: Duration = Duration::from_secs(1);
/// Age until which a snapshot is sent to other streams, too. A little less than the period, so that
/// no stream gets the same one twice.
const SHARED_FOR: Duration = Duration::from_millis(900);
/// Time after which a client that found no place tries again.
const RETRY_AFTER: Duration = Duration::from_secs(15);

/// First event: the caller, whose role says what it may do.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LiveBegin {
    /// Name of the caller in the audit trail.
    pub(crate) caller: String,
    /// Role of the caller: `read`, `operate` or `admin`.
    pub(crate) role: String,
    /// True if callers need a token.
    pub(crate) needs_token: bool,
}

/// Event of each second.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LiveSnapshot {
    /// Time of the snapshot by this node's clock, in milliseconds since 1970.
    pub(crate) stamp_ms: u64,
    /// The node, as in `/v1/node`.
    pub(crate) node: NodeAnswer,
    /// Every region, as in `/v1/world`.
    pub(crate) regions: Vec<RegionOverview>,
    /// Replicas of this node.
    pub(crate) replicas: Vec<ReplicaOverview>,
}

/// Last event.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LiveEnd {
    /// Reason of the end.
    pub(crate) cause: String,
}

/// The streams of one node, and their shared state.
#[derive(Debug)]
pub(crate) struct Live {
    places: Arc<Semaphore>,
    places_max: usize,
    last: Arc<Mutex<Option<Shot>>>,
}

/// Source of snapshots.
#[derive(Clone, Debug)]
pub(crate) struct LiveSource {
    pub(crate) overview: Arc<dyn Overview>,
    pub(crate) control_plane: Option<Arc<ControlPlane>>,
}

/// A snapshot as text.
#[derive(Clone, Debug)]
struct Shot {
    at: Instant,
    text: Bytes,
    is_leaving: bool,
}

/// A stream in progress.
struct LiveStream {
    source: LiveSource,
    last: Arc<Mutex<Option<Shot>>>,
    credential: Credential,
    state: LiveState,
    next_at: Instant,
    _place: OwnedSemaphorePermit,
}

/// State of a stream.
enum LiveState {
    /// Nothing was sent yet. // => Going
    Begun(Bytes),
    /// Snapshots are sent. // => (Leaving | Ended)
    Going,
    /// The node leaves, and the stream still has to report it. // => Ended
    Leaving,
    /// Nothing more is to be sent.
    Ended,
}

impl Live {
    pub(crate) fn new(places_max: usize) -> Self {
        let places = Arc::new(Semaphore::new(places_max));
        Self { places, places_max, last: Arc::default() }
    }

    /// Begins a stream.
    ///
    /// # Errors
    /// Returns an error if there are as many streams as there may be.
    pub(crate) fn stream(
        &self,
        source: LiveSource,
        caller: &Caller,
        credential: Credential,
    ) -> Result<Reply, ApiError> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let cause = format!("{} live streams are under way", self.places_max);
            let remedy = "close a page of the console, or look at another node";
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_watchers", cause, remedy)
                .with_retry_after(RETRY_AFTER)
        })?;
        let begin = LiveBegin {
            caller: caller.name.clone(),
            role: caller.role.name().to_owned(),
            needs_token: credential.is_needed(),
        };
        let stream = LiveStream {
            source,
            last: Arc::clone(&self.last),
            credential,
            state: LiveState::Begun(event("begin", now_ms(), &begin)),
            next_at: Instant::now(),
            _place: place,
        };
        let events = unfold(stream, |mut stream| async {
            let text = stream.next().await?;
            Some((Ok::<_, Infallible>(Frame::data(text)), stream))
        });
        let body = StreamBody::new(events).map_err(|never| match never {}).boxed_unsync();
        Ok(reply(StatusCode::OK, "text/event-stream", body))
    }
}

impl LiveStream {
    /// Returns the next event; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        match std::mem::replace(&mut self.state, LiveState::Ended) {
            LiveState::Begun(begin) => {
                self.state = LiveState::Going;
                Some(begin)
            }
            LiveState::Going => self.look().await,
            LiveState::Leaving => {
                let cause = "the node was ordered to stop".to_owned();
                Some(event("end", now_ms(), &LiveEnd { cause }))
            }
            LiveState::Ended => None,
        }
    }

    async fn look(&mut self) -> Option<Bytes> {
        if !self.waited().await {
            return None;
        }
        // From the begin of the look, so that a slow one delays no other.
        self.next_at = Instant::now() + PERIOD;
        let shot = self.source.shot(&self.last).await;
        // A node that leaves waits for the requests of clients, not for pages.
        self.state = if shot.is_leaving { LiveState::Leaving } else { LiveState::Going };
        Some(shot.text)
    }

    /// Waits until the next event is due. Returns false once the caller may not read any more.
    async fn waited(&mut self) -> bool {
        loop {
            let state = self.source.control_plane.as_ref().map(|it| it.published());
            if !self.credential.holds(state.as_deref()) {
                return false;
            }
            tokio::select! {
                () = tokio::time::sleep_until(self.next_at) => return true,
                () = self.credential.changed() => {}
            }
        }
    }
}

impl LiveSource {
    /// Returns the last snapshot if it is fresh, else makes the next one.
    async fn shot(&self, last: &Mutex<Option<Shot>>) -> Shot {
        // Held while looking: other streams wait for this look instead of looking themselves.
        let mut last = last.lock().await;
        if let Some(shot) = last.as_ref().filter(|shot| shot.at.elapsed() < SHARED_FOR) {
            return shot.clone();
        }
        let at = Instant::now();
        let node = self.overview.node().await;
        let (regions, replicas) = (self.overview.regions(), self.overview.replicas().await);
        let snapshot = LiveSnapshot {
            stamp_ms: now_ms(),
            node: judged(node, self.control_plane.as_deref(), &regions, &replicas),
            regions,
            replicas,
        };
        let is_leaving = snapshot.node.node.phase == NodePhase::Leaving;
        let text = event("snapshot", snapshot.stamp_ms, &snapshot);
        last.insert(Shot { at, text, is_leaving }).clone()
    }
}

fn now_ms() -> u64 {
    unix_ms(SystemTime::now())
}

/// Makes the text of one event. JSON has no line breaks, so the data is one line.
fn event(kind: &str, id: u64, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("id: {id}\nevent: {kind}\ndata: {data}\n\n").into()
}
