//! The names of models that other regions serve: gossip tells them as numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use http::{Method, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use serde::Deserialize;
use spillway_link::{Answer, ForwardHead, Link, Room};
use spillway_pulse::NameId;
use spillway_types::{ModelName, NodeName};

/// Bytes of a list of models at most.
const LIST_BYTES_MAX: usize = 1 << 20;
/// How long a node may take to tell its models.
const LIST_TIME_MAX: Duration = Duration::from_secs(5);
/// A node is asked again no sooner than this.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Names by number, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: BTreeMap<NameId, ModelName>,
    asked_at: BTreeMap<NodeName, Instant>,
}

impl Names {
    pub(super) fn get(&self, id: NameId) -> Option<&ModelName> {
        self.known.get(&id)
    }

    pub(super) fn learn<'n>(&mut self, names: impl IntoIterator<Item = &'n ModelName>) {
        for name in names {
            self.known.entry(NameId::of_model(name)).or_insert_with(|| name.clone());
        }
    }

    /// Forgets names that nobody uses any more.
    pub(super) fn keep(&mut self, used: &BTreeSet<NameId>) {
        self.known.retain(|id, _| used.contains(id));
    }

    /// Whether that node is to be asked now.
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

/// The models that a node lists; nothing if it can't be asked now.
pub(super) async fn ask(link: &Link, node: &NodeName) -> Vec<ModelName> {
    let asked = async {
        let head = ForwardHead::new(Method::GET, Uri::from_static("/v1/models"));
        let answer = link.forward(node, head, Empty::new(), Room::Unknown).await.ok()?;
        let Answer::Reply(reply) = answer else { return None };
        let body = Limited::new(reply.into_body(), LIST_BYTES_MAX).collect().await.ok()?;
        Some(read_list(&body.to_bytes()))
    };
    tokio::time::timeout(LIST_TIME_MAX, asked).await.ok().flatten().unwrap_or_default()
}

/// Reads the models of a list as OpenAI has it; none if it is no such list.
pub(super) fn read_list(body: &[u8]) -> Vec<ModelName> {
    let list = serde_json::from_slice::<ModelList>(body).ok();
    list.map(|list| list.data.into_iter().map(|card| card.id).collect()).unwrap_or_default()
}
