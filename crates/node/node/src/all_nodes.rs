//! Common knowledge of all nodes: histories, replicas and requests, asked for over the links.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use http::{Response, Uri};
use serde::{Deserialize, Serialize};
use spillway_admin::{
    AllNodes, AllReplicas, ArmsOfNodes, Asking, FilterField, HistoryScope, Overview, RegionReplica,
    ReplicaOverview, RequestFilter, RequestHistoryOverview, Requests, RequestsOfNodes,
};
use spillway_health::{CountedRequests, HistoryBin, sum_bins};
use spillway_link::{BoxBody, PeerStatus};
use spillway_types::{ModelName, RequestEntry};
use tokio::sync::Mutex;

use crate::health_watch::history_overview;
use crate::local_node::LocalNode;
use crate::overview::{OverviewSource, replica_overviews};
use crate::questions::{Answered, ask_each, json_reply, question};
use crate::rollouts::{self, FiguresQuestion, NodeFigures};

/// Paths of the questions. No client reaches them: only nodes forward requests.
pub(crate) const HISTORY_PATH: &str = "/.spillway/history";
pub(crate) const REPLICAS_PATH: &str = "/.spillway/replicas";
pub(crate) const REQUESTS_PATH: &str = "/.spillway/requests";
/// Time limit of an answer: several round trips of the longest path, at a busy node.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Age up to which an answer is given again: many open pages ask the other nodes no more often than
/// one does.
const SHARED_FOR: Duration = Duration::from_secs(2);

/// Question about the history of a node.
#[derive(Debug, Serialize, Deserialize)]
struct HistoryQuestion {
    counted: CountedRequests,
}

/// Bins of a node, the oldest first. A newer node may add fields.
#[derive(Debug, Default, Serialize, Deserialize)]
struct HistoryReply {
    bins: Vec<HistoryBin>,
}

/// Question about the replicas of a node.
#[derive(Debug, Serialize, Deserialize)]
struct ReplicasQuestion {}

#[derive(Debug, Default, Serialize, Deserialize)]
struct ReplicasReply {
    replicas: Vec<ReplicaOverview>,
}

/// Question about the requests that ended last on a node. An older node looks at the fields that it
/// knows, and refuses a question with others.
#[derive(Debug, Serialize, Deserialize)]
struct RequestsQuestion {
    is_failed: bool,
    fields: Vec<(String, String)>,
    limit: usize,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct RequestsReply {
    requests: Vec<RequestEntry>,
}

/// Answers that were given last.
#[derive(Debug, Default)]
pub(crate) struct LastAnswers {
    histories: Mutex<BTreeMap<HistoryScope, (Instant, RequestHistoryOverview)>>,
    fleet: Mutex<Option<(Instant, AllReplicas)>>,
}

/// Returns this node's reply to another node's question.
pub(crate) async fn reply(uri: &Uri, local: &LocalNode) -> Response<BoxBody> {
    match uri.path() {
        HISTORY_PATH => {
            let asked = question::<HistoryQuestion>(uri);
            let bins = |asked: HistoryQuestion| local.outcomes.health.bins(asked.counted);
            json_reply(asked.map(|asked| HistoryReply { bins: bins(asked) }).as_ref())
        }
        REPLICAS_PATH => {
            let replicas = replica_overviews(local).await;
            json_reply(Some(&ReplicasReply { replicas }))
        }
        REQUESTS_PATH => {
            let asked = question::<RequestsQuestion>(uri);
            let asked = asked.and_then(|asked| Some((asked.filter()?, asked.limit)));
            let found = |(filter, limit)| local.outcomes.recent(&filter, limit);
            json_reply(asked.map(|asked| RequestsReply { requests: found(asked) }).as_ref())
        }
        _ => json_reply(None::<&HistoryReply>),
    }
}

impl RequestsQuestion {
    fn new(filter: &RequestFilter, limit: usize) -> Self {
        let fields = filter.fields.iter();
        Self {
            is_failed: filter.is_failed,
            fields: fields.map(|(field, value)| (field.name().to_owned(), value.clone())).collect(),
            limit,
        }
    }

    /// Returns the filter; `None` if a field is unknown here.
    fn filter(&self) -> Option<RequestFilter> {
        let known = |name: &str| FilterField::ALL.into_iter().find(|field| field.name() == name);
        let fields = self.fields.iter().map(|(name, value)| Some((known(name)?, value.clone())));
        let fields = fields.collect::<Option<Vec<_>>>()?;
        Some(RequestFilter { after: None, is_failed: self.is_failed, fields })
    }
}

impl AllNodes for OverviewSource {
    fn history(&self, scope: HistoryScope) -> Asking<'_, RequestHistoryOverview> {
        Box::pin(async move {
            let scope = match scope {
                HistoryScope::Node => return Overview::history(self),
                HistoryScope::Region(None) => {
                    HistoryScope::Region(Some(self.local.region().to_owned()))
                }
                scope => scope,
            };
            // Held while asking: requests that arrive during that time wait for this answer.
            let mut last = self.last.histories.lock().await;
            last.retain(|_, (at, _)| at.elapsed() < SHARED_FOR);
            if let Some((_, history)) = last.get(&scope) {
                return history.clone();
            }
            let (at, history) = (Instant::now(), self.ask_for_history(&scope).await);
            last.insert(scope, (at, history.clone()));
            history
        })
    }

    fn replicas(&self) -> Asking<'_, AllReplicas> {
        Box::pin(async {
            let mut last = self.last.fleet.lock().await;
            if let Some((_, fleet)) = last.as_ref().filter(|(at, _)| at.elapsed() < SHARED_FOR) {
                return fleet.clone();
            }
            let (at, fleet) = (Instant::now(), self.ask_for_replicas().await);
            *last = Some((at, fleet.clone()));
            fleet
        })
    }

    fn requests(&self, filter: RequestFilter, limit: usize) -> Asking<'_, RequestsOfNodes> {
        Box::pin(async move {
            let filter = RequestFilter { after: None, ..filter };
            let asked = RequestsQuestion::new(&filter, limit);
            let answers = self.ask((REQUESTS_PATH, &asked), |_| true);
            let answers: Vec<Answered<RequestsReply>> = answers.await;
            let mut nodes = vec![self.local.asked()];
            let mut requests = self.local.outcomes.recent(&filter, limit);
            for answer in answers {
                let (found, node) = answer.into_parts();
                nodes.push(node);
                requests.extend(found.unwrap_or_default().requests);
            }
            requests.sort_by_key(|it| std::cmp::Reverse(it.ended_ms));
            requests.truncate(limit);
            RequestsOfNodes { nodes, requests }
        })
    }

    fn arms(&self, split: ModelName, epoch: u32) -> Asking<'_, ArmsOfNodes> {
        Box::pin(async move {
            self.local.outcomes.collect();
            let own = self.local.outcomes.rollouts.figures();
            let asked = self.ask((rollouts::PATH, &FiguresQuestion {}), |_| true);
            let answers: Vec<Answered<NodeFigures>> = asked.await;
            let mut arms =
                ArmsOfNodes { nodes: vec![self.local.asked()], ..ArmsOfNodes::default() };
            own.add_to(&split, epoch, (&mut arms.baseline, &mut arms.candidate));
            for answer in answers {
                let (figures, node) = answer.into_parts();
                arms.nodes.push(node);
                let figures = figures.unwrap_or_default();
                figures.add_to(&split, epoch, (&mut arms.baseline, &mut arms.candidate));
            }
            arms
        })
    }
}

impl OverviewSource {
    async fn ask_for_history(&self, scope: &HistoryScope) -> RequestHistoryOverview {
        let region = match scope {
            HistoryScope::Region(region) => region.as_deref(),
            HistoryScope::Node | HistoryScope::Cluster => None,
        };
        // A request that is forwarded ends on two nodes, in two regions.
        let counted = match scope {
            HistoryScope::Cluster => CountedRequests::OfClients,
            HistoryScope::Node | HistoryScope::Region(_) => CountedRequests::All,
        };
        let is_in = |name: &str| region.is_none_or(|region| region == name);
        let asked = HistoryQuestion { counted };
        let answers = self.ask((HISTORY_PATH, &asked), |it| is_in(it.identity.region().as_str()));
        let answers: Vec<Answered<HistoryReply>> = answers.await;
        let (mut nodes, mut bins) = (Vec::new(), Vec::new());
        if is_in(self.local.region()) {
            nodes.push(self.local.asked());
            bins.push(self.local.outcomes.health.bins(counted));
        }
        for answer in answers {
            let (answer, node) = answer.into_parts();
            nodes.push(node);
            bins.extend(answer.map(|answer| answer.bins));
        }
        RequestHistoryOverview {
            nodes,
            ..history_overview(sum_bins(bins).iter().map(HistoryBin::point))
        }
    }

    async fn ask_for_replicas(&self) -> AllReplicas {
        let own = replica_overviews(&self.local);
        let asked = self.ask((REPLICAS_PATH, &ReplicasQuestion {}), |_| true);
        let (own, answers): (_, Vec<Answered<ReplicasReply>>) = tokio::join!(own, asked);
        let mut nodes = vec![self.local.asked()];
        let mut all = BTreeMap::new();
        let mut take = |region: &str, replicas: Vec<ReplicaOverview>| {
            for replica in replicas {
                add(&mut all, region, replica);
            }
        };
        take(self.local.region(), own);
        for answer in answers {
            let (answer, node) = answer.into_parts();
            take(&node.region, answer.unwrap_or_default().replicas);
            nodes.push(node);
        }
        let replicas = all.into_iter();
        AllReplicas {
            nodes,
            replicas: replicas
                .map(|((region, _), replica)| RegionReplica { region, replica })
                .collect(),
        }
    }

    async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        question: (&str, &impl Serialize),
        is_asked: impl Fn(&PeerStatus) -> bool,
    ) -> Vec<Answered<T>> {
        match self.link.upgrade() {
            Some(link) => ask_each(&link, is_asked, question, ANSWER_LIMIT).await,
            None => Vec::new(),
        }
    }
}

/// Adds what a node says of a replica. Nodes of a region say the same, except that each counts its own
/// requests.
fn add(
    all: &mut BTreeMap<(String, String), ReplicaOverview>,
    region: &str,
    replica: ReplicaOverview,
) {
    let in_flight = replica.in_flight;
    let key = (region.to_owned(), replica.name.clone());
    match all.get_mut(&key) {
        Some(known) => known.in_flight = known.in_flight.saturating_add(in_flight),
        None => drop(all.insert(key, replica)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_of_a_region_add_up_their_requests_at_a_replica() {
        let replica = |in_flight| ReplicaOverview {
            name: "gpu-a".to_owned(),
            in_flight,
            state: "serving".to_owned(),
            ..ReplicaOverview::default()
        };
        let mut all = BTreeMap::new();
        add(&mut all, "eu", replica(2));
        add(&mut all, "eu", replica(3));
        add(&mut all, "us", replica(7));
        let in_flight: Vec<u32> = all.values().map(|replica| replica.in_flight).collect();
        assert_eq!(in_flight, [5, 7]);
    }

    #[test]
    fn a_filter_comes_along_with_the_question_and_unknown_fields_are_refused() {
        let filter = RequestFilter {
            after: None,
            is_failed: true,
            fields: vec![(FilterField::Id, "a b".to_owned())],
        };
        let mut asked = RequestsQuestion::new(&filter, 7);
        assert_eq!(asked.filter(), Some(filter));
        asked.fields.push(("colour".to_owned(), "red".to_owned()));
        assert_eq!(asked.filter(), None);
    }
}
