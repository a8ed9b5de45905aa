//! Facts that a node sends to other nodes when they ask, for their operators.

use std::time::{Duration, Instant, SystemTime};

use http::{Method, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use serde::{Deserialize, Serialize};
use spillway_admin::NodeProblem;
use spillway_link::{ForwardAnswer, ForwardHead, Link, PeerRoom};
use spillway_types::{NodeName, unix_ms};

/// Path of the question. No client reaches it: only nodes forward requests.
pub(crate) const PATH: &str = "/.spillway/node";
/// Time limit of an answer: three round trips of the longest path.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Largest answer in bytes.
const ANSWER_BYTES_MAX: usize = 4 << 10;

/// Facts about a node. An older node refuses the question, and a newer one may add facts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeFacts {
    /// Version of the software.
    pub(crate) version: String,
    /// Index of the last entry of the log that the node carried out; `None` without a log.
    pub(crate) applied_index: Option<u64>,
    /// Reason why the node's log has stopped; `None` while it runs, or if an older node is asked.
    pub(crate) log_fault: Option<String>,
    /// Most urgent problems of the node itself; none if an older node is asked.
    #[serde(default)]
    pub(crate) problems: Vec<NodeProblem>,
    /// Time of its clock when it answered, in milliseconds since 1970; `None` if an older node is asked.
    #[serde(default)]
    pub(crate) clock_ms: Option<u64>,
}

/// Answer of a node.
#[derive(Debug)]
pub(crate) struct NodeAnswer {
    pub(crate) facts: NodeFacts,
    /// Time by which its clock is ahead of this node's, in milliseconds, give or take half of the time
    /// that the answer took; `None` if an older node is asked.
    pub(crate) clock_ahead_ms: Option<i64>,
}

/// Asks a node for facts about itself; `None` if it does not answer in time.
pub(crate) async fn ask_node(link: &Link, node: &NodeName) -> Option<NodeAnswer> {
    let (asked_at, began) = (SystemTime::now(), Instant::now());
    let asked = async {
        let head = ForwardHead::new(Method::GET, Uri::from_static(PATH));
        let answer = link.forward(node, head, Empty::new(), PeerRoom::Unknown).await.ok()?;
        let ForwardAnswer::Reply(reply) = answer else { return None };
        let body = Limited::new(reply.into_body(), ANSWER_BYTES_MAX).collect().await.ok()?;
        let facts: NodeFacts = serde_json::from_slice(&body.to_bytes()).ok()?;
        let halfway = asked_at + began.elapsed() / 2;
        let clock_ahead_ms = facts.clock_ms.map(|clock_ms| difference(clock_ms, unix_ms(halfway)));
        Some(NodeAnswer { facts, clock_ahead_ms })
    };
    tokio::time::timeout(ANSWER_LIMIT, asked).await.ok().flatten()
}

/// Returns the time by which a clock is ahead of another one, in milliseconds.
fn difference(clock_ms: u64, other_ms: u64) -> i64 {
    let by = i64::try_from(clock_ms.abs_diff(other_ms)).unwrap_or(i64::MAX);
    if clock_ms >= other_ms { by } else { -by }
}
