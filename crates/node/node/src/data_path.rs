//! The data path, as tasks of the node use it.

use std::sync::Arc;

use spillway_knowledge::KnowledgeHandle;
use spillway_proxy::Worker;
use spillway_request::gateway::Gateway;

/// State that requests share, the workers that serve them, and what was learned from them.
#[derive(Clone, Debug)]
pub(crate) struct DataPath {
    pub(crate) gateway: Arc<Gateway>,
    /// Workers, each with pools of its own at each replica. In a cluster the last one serves the
    /// requests that other nodes forward.
    pub(crate) workers: Vec<Arc<Worker>>,
    pub(crate) knowledge: Arc<KnowledgeHandle>,
}
