//! Questions about usage between nodes.

use std::time::Duration;

use http::{Response, Uri};
use serde::{Deserialize, Serialize};
use spillway_link::{BoxBody, Link};
use spillway_usage::{UsageQuery, UsageRow};

use crate::cluster::questions::{Answered, ask_each, json_reply, question};

/// Path of the question; its query is a [`UsageQuery`] in JSON. No client reaches it: only nodes
/// forward requests.
pub(crate) const PATH: &str = "/.spillway/usage";
/// Time limit of an answer: a node may have to read the files of two months.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Answer of a node. A newer node may add fields.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) rows: Vec<UsageRow>,
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

/// Asks every other node for usage, in the order of names.
pub(super) async fn ask_nodes(link: &Link, query: &UsageQuery) -> Vec<Answered<Answer>> {
    ask_each(link, |_| true, (PATH, query), ANSWER_LIMIT).await
}
