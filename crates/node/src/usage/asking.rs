//! Questions about usage between nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use http::{HeaderValue, Method, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Full, Limited};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use spillway_link::{BoxBody, ForwardAnswer, ForwardHead, Link, PeerRoom, PeerStatus};
use spillway_types::NodeName;
use spillway_upstream::wire_body::BoxError;
use spillway_usage::{UsageQuery, UsageRow};

/// Path of the question; its query is a [`UsageQuery`] in JSON. No client reaches it: only nodes
/// forward requests.
pub(crate) const PATH: &str = "/.spillway/usage";
/// Time limit of an answer: a node may have to read the files of two months.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Largest answer in bytes: as many rows as there may be, with usual names.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Nodes that are asked at the same time.
const ASKED_MAX: usize = 16;

/// Answer of a node. A newer node may add fields.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Answer {
    rows: Vec<UsageRow>,
}

/// Answer of another node, or the reason why there is none.
#[derive(Debug)]
pub(super) struct NodeAnswer {
    pub(super) name: String,
    pub(super) region: String,
    pub(super) rows: Result<Vec<UsageRow>, &'static str>,
}

/// Returns the reply to a question; `answer` is asked for the rows.
pub(crate) async fn reply<F: Future<Output = Vec<UsageRow>>>(
    uri: &Uri,
    answer: impl FnOnce(UsageQuery) -> F,
) -> Response<BoxBody> {
    match question(uri) {
        Some(query) => json_reply(Some(&Answer { rows: answer(query).await })),
        None => json_reply(None::<&Answer>),
    }
}

/// Reads the question in an address; `None` if a newer node asks for what this one does not know.
pub(super) fn question<T: DeserializeOwned>(uri: &Uri) -> Option<T> {
    let text = uri.query().and_then(spillway_protocol::decode_name)?;
    serde_json::from_str(&text).ok()
}

/// Returns the reply with an answer; without one the question was not understood.
pub(super) fn json_reply(answer: Option<&impl Serialize>) -> Response<BoxBody> {
    // Plain structs always have a JSON form.
    let text = answer.map(|answer| serde_json::to_vec(answer).unwrap_or_default());
    let status = if text.is_some() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    let body = Full::from(text.unwrap_or_default()).map_err(BoxError::from);
    let mut reply = Response::new(Box::pin(body) as BoxBody);
    *reply.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(header::CONTENT_TYPE, json);
    reply
}

/// Asks every other node for usage, in the order of names.
pub(super) async fn ask_nodes(link: &Link, query: &UsageQuery) -> Vec<NodeAnswer> {
    let mut seen = BTreeSet::new();
    let peers = link.peers().into_iter();
    // A node that changed its address may be there twice.
    let peers = peers.filter(|peer| seen.insert(peer.identity.node().clone()));
    let mut answers: Vec<NodeAnswer> = stream::iter(peers)
        .map(|peer| async move { ask_for_usage(link, &peer, query).await })
        .buffer_unordered(ASKED_MAX)
        .collect()
        .await;
    answers.sort_by(|one, other| one.name.cmp(&other.name));
    answers
}

async fn ask_for_usage(link: &Link, peer: &PeerStatus, query: &UsageQuery) -> NodeAnswer {
    let node = peer.identity.node();
    let rows = match peer.is_connected() {
        true => tokio::time::timeout(ANSWER_LIMIT, ask(link, node, (PATH, query)))
            .await
            .unwrap_or(Err("it did not answer in time"))
            .map(|answer: Answer| answer.rows),
        false => Err("there is no connection"),
    };
    NodeAnswer { name: node.to_string(), region: peer.identity.region().to_string(), rows }
}

/// Asks a node a question, given as path and query.
///
/// # Errors
/// Returns the reason in words if there is no answer.
pub(super) async fn ask<T: DeserializeOwned>(
    link: &Link,
    node: &NodeName,
    (path, query): (&str, &impl Serialize),
) -> Result<T, &'static str> {
    // A plain struct always has a JSON form.
    let text = serde_json::to_string(query).unwrap_or_default();
    let uri = format!("{path}?{}", utf8_percent_encode(&text, NON_ALPHANUMERIC));
    let uri = Uri::try_from(uri).map_err(|_| "the question is too long")?;
    let head = ForwardHead::new(Method::GET, uri);
    let answer = link.forward(node, head, Empty::new(), PeerRoom::Unknown).await;
    let ForwardAnswer::Reply(reply) = answer.map_err(|_| "the connection broke off")? else {
        return Err("it refused the question");
    };
    if reply.status() != StatusCode::OK {
        return Err("its version does not know the question");
    }
    let body = Limited::new(reply.into_body(), ANSWER_BYTES_MAX).collect().await;
    let bytes = body.map_err(|_| "its answer broke off, or is too long")?.to_bytes();
    serde_json::from_slice(&bytes).map_err(|_| "its answer can't be read")
}
