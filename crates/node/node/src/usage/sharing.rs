//! Spending of tenants with a budget, sent from node to node.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use http::{Response, Uri};
use spillway_link::{BoxBody, Link};
use spillway_types::NodeName;
use tokio_util::sync::CancellationToken;

use super::budgets::{SpendingMark, SpendingReport};
use crate::cluster::questions::{ask, json_reply, question};
use crate::feedback::Feedback;

/// Path of the question; its query is a [`SpendingMark`] in JSON. No client reaches it.
pub(crate) const SPENDING_PATH: &str = "/.spillway/spending";
/// Pause between two questions to a node: about as much as this is spent beyond a budget.
const PACE: Duration = Duration::from_secs(1);
/// Time limit of an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Nodes that are asked at the same time.
const ASKED_MAX: usize = 16;

/// Returns the reply to a node that asks what changed.
pub(crate) fn spending_reply(uri: &Uri, feedback: &Feedback) -> Response<BoxBody> {
    let heard = question::<SpendingMark>(uri);
    json_reply(heard.map(|heard| feedback.usage.budgets.report_since(heard)).as_ref())
}

/// Asks all nodes again and again what tenants spent there, as long as any tenant has a budget.
pub(crate) async fn share(feedback: Arc<Feedback>, stop: CancellationToken) {
    let mut interval = tokio::time::interval(PACE);
    // A round that took long is not made up for.
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while stop.run_until_cancelled(interval.tick()).await.is_some() {
        if feedback.usage.budgets.is_empty() {
            continue;
        }
        if let Some(link) = feedback.link() {
            stop.run_until_cancelled(ask_all(&feedback, &link)).await;
        }
    }
}

async fn ask_all(feedback: &Feedback, link: &Link) {
    let peers = link.peers().into_iter().filter(|peer| peer.is_connected());
    let names = peers.map(|peer| peer.identity.node().clone());
    let asking = stream::iter(names).for_each_concurrent(ASKED_MAX, |node| async move {
        ask_one(feedback, link, &node).await;
    });
    asking.await;
}

async fn ask_one(feedback: &Feedback, link: &Link, node: &NodeName) {
    let budgets = &feedback.usage.budgets;
    let heard = budgets.mark_of(node);
    let report = tokio::time::timeout(ANSWER_LIMIT, ask(link, node, (SPENDING_PATH, &heard)));
    // A node that does not answer is asked again in a moment.
    if let Ok(Ok(report)) = report.await {
        let report: SpendingReport = report;
        budgets.receive(node, heard, &report);
    }
}
