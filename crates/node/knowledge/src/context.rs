//! Ties of the thread that learns to the rest of the cluster.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use spillway_control_plane::ControlPlane;
use spillway_gossip::To;
use spillway_link::{DatagramError, Link};
use spillway_types::{NodeName, RegionName};
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// Place of a node among others. The references are weak, so that neither link nor log is kept
/// open.
#[derive(Debug)]
pub struct KnowledgeContext {
    /// Name and region of this node.
    pub me: (NodeName, RegionName),
    /// Link to the other nodes.
    pub link: Weak<Link>,
    /// Control plane; `None` without an agreed state.
    pub control_plane: Option<Weak<ControlPlane>>,
    /// The cluster's key, from which the keys of all epochs are derived.
    pub prefix_key: [u64; 4],
    /// Data folder, if there is one.
    pub data: Option<PathBuf>,
    /// Runtime for tasks that deal with the log.
    pub runtime: Handle,
    /// Tracker of those tasks.
    pub tasks: TaskTracker,
}

impl KnowledgeContext {
    /// Returns the control plane, as long as it is open.
    pub(super) fn control_plane(&self) -> Option<Arc<ControlPlane>> {
        self.control_plane.as_ref()?.upgrade()
    }

    /// Sends datagrams to connected nodes of the region. A node without a connection asks later for
    /// what it lacks.
    pub(super) fn send(&self, datagrams: Vec<(To, bytes::Bytes)>) {
        let Some(link) = self.link.upgrade() else { return };
        let peers = link.peers();
        let near = peers.iter().filter(|peer| *peer.identity.region() == self.me.1);
        let near: Vec<&NodeName> =
            near.filter(|peer| peer.is_connected()).map(|peer| peer.identity.node()).collect();
        for (to, datagram) in datagrams {
            let is_meant = |node: &&&NodeName| match &to {
                To::All => true,
                To::Node(one) => one == **node,
            };
            for node in near.iter().filter(is_meant) {
                let _: Result<(), DatagramError> = link.send_datagram(node, datagram.clone());
            }
        }
    }
}
