//! State that all tasks of one link share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use spillway_resolver::Resolver;
use spillway_tasks::TaskWatch;
use spillway_types::NodeName;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{LinkLimits, Transport};
use crate::counters::LinkCounters;
use crate::forward::Handler;
use crate::identity::Identity;
use crate::join::{JoinHandler, JoinPermits};
use crate::peer::{OpenStreams, Peer};
use crate::revoked::RevokedCertificates;
use crate::rpc::StreamHandler;
use crate::tls::{Members, Refusals, Sessions};

/// State that all tasks of one link share.
pub(crate) struct LinkShared {
    pub(crate) me: Identity,
    /// Random number that distinguishes this process from earlier and later ones of the node.
    pub(crate) process: u64,
    pub(crate) endpoint: quinn::Endpoint,
    /// Looks the names of peers up.
    pub(crate) resolver: Resolver,
    /// Settings for accepted connections; the transport is made for each.
    pub(crate) accepting: ArcSwap<quinn::ServerConfig>,
    pub(crate) sessions: Sessions,
    pub(crate) members: Arc<Members>,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) revoked: RevokedCertificates,
    /// Counter that grows whenever other certificates are revoked.
    pub(crate) revocations: watch::Sender<u64>,
    pub(crate) peers: ArcSwap<BTreeMap<NodeName, Arc<Peer>>>,
    pub(crate) handler: Arc<dyn Handler>,
    /// Handler of streams that are not forwarded requests; `None` at first.
    pub(crate) streams: ArcSwapOption<Arc<dyn StreamHandler>>,
    /// Handler of questions from nodes that are not peers; `None` at first.
    pub(crate) join_handler: ArcSwapOption<Arc<dyn JoinHandler>>,
    pub(crate) strangers: JoinPermits,
    pub(crate) transport: Transport,
    pub(crate) limits: LinkLimits,
    pub(crate) counters: Arc<LinkCounters>,
    pub(crate) open: Arc<OpenStreams>,
    pub(crate) tracker: TaskTracker,
    /// Record of lost tasks, for those that live as long as the link or a peer.
    pub(crate) watch: TaskWatch,
    /// Runtime in which the link was started: its tasks stay there, from whatever runtime it is
    /// called.
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) stop: CancellationToken,
}

impl LinkShared {
    /// Refuses the certificates that are revoked now, and closes connections with them.
    pub(crate) fn apply_revoked(&self) {
        // Keepers check their connections only after a change.
        if self.revoked.publish(|all| self.members.set_revoked(all)) {
            self.revocations.send_modify(|count| *count += 1);
        }
    }

    pub(crate) fn peer(&self, node: &NodeName) -> Option<Arc<Peer>> {
        self.peers.load().get(node).cloned()
    }
}

impl fmt::Debug for LinkShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("me", &self.me).finish_non_exhaustive()
    }
}
