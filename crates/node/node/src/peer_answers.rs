//! Answers of this node to other nodes' questions about it.

use std::future::ready;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use http::Uri;
use spillway_link::Serving;
use spillway_types::unix_ms;

use crate::agreed::WatchedControlPlane;
use crate::cluster::{AnswerPeers, NodeFacts, node_facts};
use crate::local_node::LocalNode;
use crate::questions::json_reply;
use crate::{all_nodes, rollouts, usage, usage_of_nodes};

/// Facts about this node, its history, replicas, requests, usage and spending, for other nodes.
#[derive(Debug)]
pub(crate) struct PeerAnswers {
    local: LocalNode,
    /// Set once this node takes part in the agreed state: the link, on which others ask, is open
    /// before that.
    control_plane: OnceLock<WatchedControlPlane>,
}

impl PeerAnswers {
    pub(crate) fn new(local: LocalNode) -> Self {
        Self { local, control_plane: OnceLock::new() }
    }

    /// Reports the progress of this control plane from now on; only the first call counts.
    pub(crate) fn watch(&self, control_plane: WatchedControlPlane) {
        drop(self.control_plane.set(control_plane));
    }

    /// Returns the facts about this node that other nodes get.
    fn node_facts(&self) -> NodeFacts {
        let progress = self.control_plane.get().map(WatchedControlPlane::progress);
        let (applied_index, log_fault) = progress.unwrap_or_default();
        NodeFacts {
            version: self.local.version.clone(),
            applied_index,
            log_fault,
            problems: self.local.outcomes.health.reported(),
            clock_ms: Some(unix_ms(SystemTime::now())),
        }
    }
}

impl AnswerPeers for PeerAnswers {
    fn answer(&self, uri: &Uri) -> Option<Serving> {
        match uri.path() {
            node_facts::PATH => Some(Box::pin(ready(Ok(json_reply(Some(&self.node_facts())))))),
            rollouts::PATH => {
                self.local.outcomes.collect();
                let reply = rollouts::reply(&self.local.outcomes.rollouts);
                Some(Box::pin(ready(Ok(reply))))
            }
            usage::SPENDING_PATH => {
                let reply = usage::spending_reply(uri, &self.local.outcomes.usage);
                Some(Box::pin(ready(Ok(reply))))
            }
            all_nodes::HISTORY_PATH | all_nodes::REPLICAS_PATH | all_nodes::REQUESTS_PATH => {
                let (local, uri) = (self.local.clone(), uri.clone());
                Some(Box::pin(async move { Ok(all_nodes::reply(&uri, &local).await) }))
            }
            usage_of_nodes::PATH => {
                let (outcomes, uri) = (Arc::clone(&self.local.outcomes), uri.clone());
                Some(Box::pin(async move { Ok(usage_of_nodes::reply(&uri, outcomes).await) }))
            }
            _ => None,
        }
    }
}
