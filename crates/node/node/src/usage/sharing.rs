//! Spending of tenants with a budget, sent from node to node.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use http::{Response, Uri};
use spillway_link::{BoxBody, Link};
use spillway_types::NodeName;
use tokio_util::sync::CancellationToken;

use super::Usage;
use super::budgets::{SpendingMark, SpendingReport};
use crate::questions::{ask, json_reply, question};

/// Path of the question; its query is a [`SpendingMark`] in JSON. No client reaches it.
pub(crate) const SPENDING_PATH: &str = "/.spillway/spending";
/// Pause between two questions to a node: about as much as this is spent beyond a budget.
const PACE: Duration = Duration::from_secs(1);
/// Time limit of an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Nodes that are asked at the same time.
const ASKED_MAX: usize = 16;

/// Returns the reply to a node that asks what changed.
pub(crate) fn spending_reply(uri: &Uri, usage: &Usage) -> Response<BoxBody> {
    let heard = question::<SpendingMark>(uri);
    json_reply(heard.map(|heard| usage.budgets.report_since(heard)).as_ref())
}

/// Asks all nodes again and again what tenants spent there, as long as any tenant has a budget.
pub(crate) async fn share(usage: Arc<Usage>, link: Weak<Link>, stop: CancellationToken) {
    let mut interval = tokio::time::interval(PACE);
    // A round that took long is not made up for.
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while stop.run_until_cancelled(interval.tick()).await.is_some() {
        if usage.budgets.is_empty() {
            continue;
        }
        if let Some(link) = link.upgrade() {
            stop.run_until_cancelled(ask_all(&usage, &link)).await;
        }
    }
}

async fn ask_all(usage: &Usage, link: &Link) {
    let peers = link.peers().into_iter().filter(|peer| peer.is_connected());
    let names = peers.map(|peer| peer.identity.node().clone());
    let asking = stream::iter(names).for_each_concurrent(ASKED_MAX, |node| async move {
        ask_one(usage, link, &node).await;
    });
    asking.await;
}

async fn ask_one(usage: &Usage, link: &Link, node: &NodeName) {
    let budgets = &usage.budgets;
    let heard = budgets.mark_of(node);
    let report = tokio::time::timeout(ANSWER_LIMIT, ask(link, node, (SPENDING_PATH, &heard)));
    // A node that does not answer is asked again in a moment.
    if let Ok(Ok(report)) = report.await {
        let report: SpendingReport = report;
        budgets.receive(node, heard, &report);
    }
}
