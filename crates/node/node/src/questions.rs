//! Questions that nodes ask each other over their links, with answers in JSON.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use http::{HeaderValue, Method, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Full, Limited};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use spillway_admin::AskedNode;
use spillway_link::{BoxBody, ForwardAnswer, ForwardHead, Link, PeerRoom, PeerStatus};
use spillway_transport::BoxError;
use spillway_types::NodeName;

/// Largest answer in bytes: as many rows of usage as there may be, with usual names.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Nodes that are asked at the same time.
const ASKED_MAX: usize = 16;

/// Answer of a node, or the reason why there is none.
#[derive(Debug)]
pub(crate) struct Answered<T> {
    pub(crate) name: String,
    pub(crate) region: String,
    pub(crate) answer: Result<T, &'static str>,
}

impl<T> Answered<T> {
    /// Splits the answer into its content and what operators see of the node.
    pub(crate) fn into_parts(self) -> (Option<T>, AskedNode) {
        let (answer, fault) = match self.answer {
            Ok(answer) => (Some(answer), None),
            Err(fault) => (None, Some(fault.to_owned())),
        };
        (answer, AskedNode { name: self.name, region: self.region, fault })
    }
}

/// Reads the question in an address; `None` if a newer node asks for something unknown to this one.
pub(crate) fn question<T: DeserializeOwned>(uri: &Uri) -> Option<T> {
    let text = uri.query().and_then(spillway_protocol::decode_name)?;
    serde_json::from_str(&text).ok()
}

/// Returns the reply with an answer; without one the question was not understood.
pub(crate) fn json_reply(answer: Option<&impl Serialize>) -> Response<BoxBody> {
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

/// Asks every other node that `is_asked` a question, given as path and query, and returns their
/// answers in the order of names. A node has `limit` to answer.
pub(crate) async fn ask_each<T: DeserializeOwned>(
    link: &Link,
    is_asked: impl Fn(&PeerStatus) -> bool,
    (path, query): (&str, &impl Serialize),
    limit: Duration,
) -> Vec<Answered<T>> {
    let mut seen = BTreeSet::new();
    // A node that changed its address may be there twice.
    let peers = link.peers().into_iter().filter(is_asked);
    let peers = peers.filter(|peer| seen.insert(peer.identity.node().clone()));
    let mut answers: Vec<Answered<T>> = stream::iter(peers)
        .map(|peer| async move { ask_one(link, &peer, (path, query), limit).await })
        .buffer_unordered(ASKED_MAX)
        .collect()
        .await;
    answers.sort_by(|one, other| one.name.cmp(&other.name));
    answers
}

async fn ask_one<T: DeserializeOwned>(
    link: &Link,
    peer: &PeerStatus,
    question: (&str, &impl Serialize),
    limit: Duration,
) -> Answered<T> {
    let node = peer.identity.node();
    let answer = match peer.is_connected() {
        true => tokio::time::timeout(limit, ask(link, node, question))
            .await
            .unwrap_or(Err("it did not answer in time")),
        false => Err("there is no connection"),
    };
    Answered { name: node.to_string(), region: peer.identity.region().to_string(), answer }
}

/// Asks a node a question, given as path and query.
///
/// # Errors
/// Returns the reason in words if there is no answer.
pub(crate) async fn ask<T: DeserializeOwned>(
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
