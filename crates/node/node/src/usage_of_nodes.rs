//! Usage of all nodes together: questions about it, and their answers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{Response, Uri};
use serde::{Deserialize, Serialize};
use spillway_admin::{AskedNode, ClusterUsage};
use spillway_link::{BoxBody, Link};
use spillway_usage::{UsageQuery, UsageRow};

use crate::outcomes::Outcomes;
use crate::questions::{Answered, ask_each, json_reply, question};

/// Path of the question; its query is a [`UsageQuery`] in JSON. No client reaches it: only nodes
/// forward requests.
pub(crate) const PATH: &str = "/.spillway/usage";
/// Time limit of an answer: a node may have to read the files of two months.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Answer of a node. A newer node may add fields.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Answer {
    rows: Vec<UsageRow>,
}

/// Returns this node's reply to another node's question.
pub(crate) async fn reply(uri: &Uri, outcomes: Arc<Outcomes>) -> Response<BoxBody> {
    match question::<UsageQuery>(uri) {
        Some(query) => json_reply(Some(&Answer { rows: outcomes.usage_of(query).await.rows() })),
        None => json_reply(None::<&Answer>),
    }
}

/// Answers a question about the usage of all nodes, of which `me` is this one. Each is asked for its
/// own clients alone, so that no request counts twice.
pub(crate) async fn of_cluster(
    outcomes: &Arc<Outcomes>,
    link: Option<&Link>,
    me: AskedNode,
    query: &UsageQuery,
) -> ClusterUsage {
    let own = Arc::clone(outcomes).usage_of(query.clone());
    let asked = async {
        let Some(link) = link else { return Vec::new() };
        ask_each::<Answer>(link, |_| true, (PATH, query), ANSWER_LIMIT).await
    };
    let (mut table, answers): (_, Vec<Answered<Answer>>) = tokio::join!(own, asked);
    let mut nodes = vec![me];
    for answer in answers {
        let (answer, asked) = answer.into_parts();
        answer.into_iter().flat_map(|it| it.rows).for_each(|row| table.add_row(row));
        nodes.push(asked);
    }
    let budgets = outcomes.usage.budget_states(SystemTime::now());
    ClusterUsage { budgets, ..ClusterUsage::new(query, nodes, table) }
}
