//! What all tasks of one link share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use spillway_types::NodeName;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Limits, Transport};
use crate::counters::Counters;
use crate::forward::Handler;
use crate::identity::Identity;
use crate::join::{Gate, Places};
use crate::peer::{OpenStreams, Peer};
use crate::rpc::StreamHandler;
use crate::tls::{Members, Refusals, Sessions};

/// What all tasks of one link share.
pub(crate) struct Shared {
    pub(crate) me: Identity,
    /// Tells this process from those before and after it.
    pub(crate) process: u64,
    pub(crate) endpoint: quinn::Endpoint,
    /// Settings of connections that come; their transport is made for each.
    pub(crate) accepting: ArcSwap<quinn::ServerConfig>,
    pub(crate) sessions: Sessions,
    pub(crate) members: Arc<Members>,
    pub(crate) refusals: Arc<Refusals>,
    /// Counted up whenever other certificates are revoked.
    pub(crate) revocations: watch::Sender<u64>,
    pub(crate) peers: ArcSwap<BTreeMap<NodeName, Arc<Peer>>>,
    pub(crate) handler: Arc<dyn Handler>,
    /// Who serves streams that are no forwarded requests; nobody at first.
    pub(crate) streams: ArcSwapOption<Arc<dyn StreamHandler>>,
    /// Who answers strangers; nobody at first.
    pub(crate) gate: ArcSwapOption<Arc<dyn Gate>>,
    pub(crate) strangers: Places,
    pub(crate) transport: Transport,
    pub(crate) limits: Limits,
    pub(crate) counters: Arc<Counters>,
    pub(crate) open: Arc<OpenStreams>,
    pub(crate) tracker: TaskTracker,
    /// Where the link was started: its tasks stay there, whoever calls it.
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) stop: CancellationToken,
}

impl Shared {
    pub(crate) fn peer(&self, node: &NodeName) -> Option<Arc<Peer>> {
        self.peers.load().get(node).cloned()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("me", &self.me).finish_non_exhaustive()
    }
}
