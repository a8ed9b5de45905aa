//! Homes of stored responses, sessions by header and conversations, which nodes send each other: a
//! client's next request may reach any of them. A node sends new homes to all others, a node that
//! starts asks for what they know, and a request for an unknown response asks them once.

mod backlog;
mod bounded;
mod exchange;
mod kept;
mod question;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use spillway_link::{BoxBody, ForwardBody};
use spillway_request::gateway::{Counters, Gateway, HomeState, RoutingState};
use spillway_transport::BoxError;
use spillway_types::{NodeName, RegionName};
use spillway_view::{AffinityMove, NotKept, Sessions, View, region_identity};

pub(super) use exchange::Exchange;
pub(super) use question::{ResponseQuestions, ask};
#[cfg(any(test, fuzzing))]
pub(super) use wire::check_message;

use bounded::BoundedHomes;
use wire::{Homes, KnownResponse, KnownSession, ResponseQuestion, Side};

/// Path of news. No client reaches it: only nodes forward requests.
pub(super) const NEWS_PATH: &str = "/.spillway/homes";
/// Path of the question for all that a node knows.
pub(super) const ALL_PATH: &str = "/.spillway/homes/all";
/// Path of the question for one response.
pub(super) const RESPONSE_PATH: &str = "/.spillway/homes/response";

/// Largest message of news in bytes.
const NEWS_BYTES_MAX: usize = 1 << 20;
/// Largest answer to a node that starts, and largest file for the next process, in bytes.
const ALL_BYTES_MAX: usize = 16 << 20;
/// Most responses, sessions and conversations in an answer to a node that starts: the latest
/// responses, and of the others those that come first.
const ALL_RESPONSES_MAX: usize = 16_384;
const ALL_SESSIONS_MAX: usize = 32_768;
const ALL_CONVERSATIONS_MAX: usize = 16_384;

/// Homes as this node knows them.
#[derive(Clone, Debug)]
pub(crate) struct KnownHomes {
    homes: Arc<HomeState>,
    routing: Arc<RoutingState>,
    counters: Arc<Counters>,
    node: NodeName,
    region: RegionName,
}

impl KnownHomes {
    /// Returns the homes that a node of this name and region knows.
    pub(super) fn new(gateway: &Gateway, node: NodeName, region: RegionName) -> Self {
        Self {
            homes: Arc::clone(&gateway.homes),
            routing: Arc::clone(&gateway.routing),
            counters: Arc::clone(&gateway.counters),
            node,
            region,
        }
    }

    /// Answers another node's message at one of the paths.
    pub(super) async fn answer(&self, path: &str, body: ForwardBody) -> Response<BoxBody> {
        match path {
            NEWS_PATH => {
                let Some(homes) = read(body).await else { return status(StatusCode::BAD_REQUEST) };
                self.receive(homes);
                status(StatusCode::NO_CONTENT)
            }
            ALL_PATH => {
                let known = self.clone();
                // Tens of thousands of entries, which are not to hold up other tasks.
                let all = tokio::task::spawn_blocking(move || known.all()).await;
                all.map_or_else(|_| status(StatusCode::INTERNAL_SERVER_ERROR), |all| json(&all))
            }
            _ => match read(body).await {
                Some(question) => json(&self.response(&question)),
                None => status(StatusCode::BAD_REQUEST),
            },
        }
    }

    /// Takes in homes from another node.
    fn receive(&self, homes: Homes) {
        let now = Instant::now();
        for known in homes.responses {
            let (id, response) = known.at(&self.node, &self.region);
            match self.homes.responses.receive(&id, response, now) {
                Ok(()) | Err(NotKept::LongId) => {}
                Err(NotKept::Taken) => {
                    tracing::warn!(
                        id,
                        "another node knows another response by this id: if tenants differ, it leads none of them anywhere"
                    );
                }
            }
        }
        let view = self.routing.view();
        for known in &homes.sessions {
            for sessions in sessions_of(&view, known) {
                let lost = sessions.receive(known.key(), known.at(&self.region), now);
                if let Some(lost) = lost {
                    let is_here = lost.region.is_none() && known.at(&self.region).region.is_none();
                    self.counters.affinity_moves.count(match is_here {
                        true => AffinityMove::SessionToReplica,
                        false => AffinityMove::SessionToRegion,
                    });
                }
            }
        }
        for (region, blocks) in &homes.conversations {
            self.homes.conversations.receive(blocks, region);
        }
    }

    /// Returns all that this node knows, within limits.
    fn all(&self) -> Homes {
        let others = self.others();
        let side = self.side(&others);
        let mut homes = BoundedHomes::new(ALL_BYTES_MAX);
        let mut room = ALL_SESSIONS_MAX;
        for (route, sessions) in self.routing.view().sessions() {
            let some = sessions.some_homes(room);
            room -= some.len();
            for (key, home) in some {
                if let Some(known) = KnownSession::of(route, key, home, side) {
                    homes.session(known);
                }
            }
        }
        for (block, region) in self.homes.conversations.some(ALL_CONVERSATIONS_MAX) {
            homes.conversation(block, &region);
        }
        // Last, since they alone can be more than there is room for: those used longest ago are left
        // out.
        for (id, response) in self.homes.responses.latest(ALL_RESPONSES_MAX) {
            if !homes.response(KnownResponse::of(&id, &response, side)) {
                break;
            }
        }
        homes.finish()
    }

    /// Returns the response that is asked for, if this node knows it as the tenant's.
    fn response(&self, question: &ResponseQuestion) -> Option<KnownResponse> {
        let known = self.homes.responses.find(&question.id, Instant::now())?;
        let others = self.others();
        (known.tenant == question.tenant)
            .then(|| KnownResponse::of(&question.id, &known, self.side(&others)))
    }

    fn side<'a>(&'a self, others: &'a BTreeMap<u64, RegionName>) -> Side<'a> {
        Side { node: &self.node, region: &self.region, others }
    }

    /// Returns the names of the other regions, behind their identities.
    fn others(&self) -> BTreeMap<u64, RegionName> {
        let regions = self.routing.regions();
        let others = regions.others.iter();
        others.map(|other| (region_identity(&other.name), other.name.clone())).collect()
    }
}

/// Returns the sessions of the route that another node names; those of all routes if this node calls
/// it otherwise.
fn sessions_of<'v>(view: &'v View, known: &KnownSession) -> Vec<&'v Arc<Sessions>> {
    let named = view.sessions().find(|(route, _)| **route == known.route);
    match named {
        Some((_, sessions)) => vec![sessions],
        None => view.sessions().map(|(_, sessions)| sessions).collect(),
    }
}

async fn read<T: DeserializeOwned>(body: ForwardBody) -> Option<T> {
    let body = Limited::new(body, NEWS_BYTES_MAX).collect().await.ok()?;
    serde_json::from_slice(&body.to_bytes()).ok()
}

/// Returns a message as JSON.
fn encode(message: &impl Serialize) -> Bytes {
    // Plain structs always have a JSON form.
    serde_json::to_vec(message).unwrap_or_default().into()
}

fn json(message: &impl Serialize) -> Response<BoxBody> {
    let mut reply = Response::new(boxed(encode(message)));
    let json = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(header::CONTENT_TYPE, json);
    reply
}

fn status(status: StatusCode) -> Response<BoxBody> {
    let mut reply = Response::new(boxed(Bytes::new()));
    *reply.status_mut() = status;
    reply
}

fn boxed(text: Bytes) -> BoxBody {
    Box::pin(Full::new(text).map_err(BoxError::from))
}
