//! What ties the thread that learns to the rest of the cluster.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use spillway_agreement::Agreement;
use spillway_link::{DatagramFault, Link};
use spillway_pulse::To;
use spillway_types::{NodeName, RegionName};
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// A node's place among others. Neither link nor log is kept open by it.
#[derive(Debug)]
pub(crate) struct Ties {
    pub(crate) me: (NodeName, RegionName),
    pub(crate) link: Weak<Link>,
    /// `None` if nothing is agreed on.
    pub(crate) agreement: Option<Weak<Agreement>>,
    /// The cluster's key, which all epochs' follow from.
    pub(crate) prefix_key: [u64; 4],
    /// Where things are kept.
    pub(crate) data: Option<PathBuf>,
    /// Runs what has to do with the log.
    pub(crate) runtime: Handle,
    pub(crate) tasks: TaskTracker,
}

impl Ties {
    /// What the cluster agreed on, as far as it is known.
    pub(super) fn agreement(&self) -> Option<Arc<Agreement>> {
        self.agreement.as_ref()?.upgrade()
    }

    /// Sends these to whom they are for; whoever has no connection asks for what it comes to lack.
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
                let _: Result<(), DatagramFault> = link.send_datagram(node, datagram.clone());
            }
        }
    }
}
