//! Names of the models that other regions serve: gossip reports them as numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use http::{Method, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use serde::Deserialize;
use spillway_gossip::NameId;
use spillway_link::{ForwardAnswer, ForwardHead, Link, PeerRoom};
use spillway_types::{ModelName, NodeName};

/// Maximum size of a list of models in bytes.
const LIST_BYTES_MAX: usize = 1 << 20;
/// Time limit for a node to list its models.
const LIST_TIME_MAX: Duration = Duration::from_secs(5);
/// Shortest time between two questions to one node.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Names by number, for numbers that are known.
#[derive(Debug, Default)]
pub(super) struct ClusterNames {
    known: BTreeMap<NameId, ModelName>,
    asked_at: BTreeMap<NodeName, Instant>,
}

impl ClusterNames {
    pub(super) fn get(&self, id: NameId) -> Option<&ModelName> {
        self.known.get(&id)
    }

    pub(super) fn learn<'n>(&mut self, names: impl IntoIterator<Item = &'n ModelName>) {
        for name in names {
            self.known.entry(NameId::of_model(name)).or_insert_with(|| name.clone());
        }
    }

    /// Forgets names that no region uses any more.
    pub(super) fn keep(&mut self, used: &BTreeSet<NameId>) {
        self.known.retain(|id, _| used.contains(id));
    }

    /// Returns true if the node may be asked now, and notes that it is asked.
    pub(super) fn is_due(&mut self, node: &NodeName, now: Instant) -> bool {
        let is_due = self.asked_at.get(node).is_none_or(|&at| now >= at + ASK_AGAIN);
        if is_due {
            self.asked_at.insert(node.clone(), now);
        }
        is_due
    }
}

#[derive(Deserialize)]
struct ModelList {
    data: Vec<Card>,
}

#[derive(Deserialize)]
struct Card {
    id: ModelName,
}

/// Asks a node for the models that it lists; empty if it can't be asked now.
pub(super) async fn ask(link: &Link, node: &NodeName) -> Vec<ModelName> {
    let asked = async {
        let head = ForwardHead::new(Method::GET, Uri::from_static("/v1/models"));
        let answer = link.forward(node, head, Empty::new(), PeerRoom::Unknown).await.ok()?;
        let ForwardAnswer::Reply(reply) = answer else { return None };
        let body = Limited::new(reply.into_body(), LIST_BYTES_MAX).collect().await.ok()?;
        Some(read_list(&body.to_bytes()))
    };
    tokio::time::timeout(LIST_TIME_MAX, asked).await.ok().flatten().unwrap_or_default()
}

/// Reads the names in a list of models in OpenAI's form; empty if it has another form.
pub(super) fn read_list(body: &[u8]) -> Vec<ModelName> {
    let list = serde_json::from_slice::<ModelList>(body).ok();
    list.map(|list| list.data.into_iter().map(|card| card.id).collect()).unwrap_or_default()
}
