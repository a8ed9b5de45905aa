//! This node alone: its replicas, requests and usage, without those of other nodes.

use std::sync::Arc;

use spillway_admin::AskedNode;
use spillway_request::gateway::Gateway;

use crate::keeper::KeeperHandle;
use crate::outcomes::Outcomes;

/// This node as its pages, scrapes and answers to other nodes show it. It changes nothing.
#[derive(Clone, Debug)]
pub(crate) struct LocalNode {
    pub(crate) name: String,
    /// Version of the program.
    pub(crate) version: String,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) outcomes: Arc<Outcomes>,
    pub(crate) keeper: KeeperHandle,
}

impl LocalNode {
    /// Returns the name of the own region.
    pub(crate) fn region(&self) -> &str {
        &self.gateway.routing.own_region
    }

    /// Returns this node among the nodes that are asked something.
    pub(crate) fn asked(&self) -> AskedNode {
        AskedNode { name: self.name.clone(), region: self.region().to_owned(), fault: None }
    }

    /// Returns the start of the node in milliseconds since 1970.
    pub(crate) fn started_ms(&self) -> u64 {
        self.gateway.started_s().saturating_mul(1_000)
    }
}
