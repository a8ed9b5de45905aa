//! Nodes of a trial with their addresses and clients.

use std::net::SocketAddr;

use anyhow::Context as _;

use super::client::ApiClient;
use super::site_profile::SiteProfile;
use crate::wan::{NodeReport, WanNetwork};

/// Port of the admin API, on the loopback of the region.
pub(crate) const ADMIN_PORT: u16 = 9900;
/// Port of clients' requests, on the loopback of the region.
pub(crate) const DATA_PORT: u16 = 8080;
/// Port of the region's emulated replica, on the loopback of the region.
pub(crate) const REPLICA_PORT: u16 = 9101;
/// UDP port of the mesh; `wans/nat.toml` forwards this port to the first node.
pub(crate) const LINK_PORT: u16 = 7400;

/// First node of a region.
#[derive(Debug)]
pub(crate) struct TrialSite {
    /// Name of the node. The node whose name sorts first forms the cluster.
    pub(crate) name: String,
    pub(crate) region: String,
    /// Address at which nodes of other regions reach this node.
    pub(crate) public: SocketAddr,
    /// True if the region has a replica. Otherwise it is an edge that forwards all requests.
    pub(crate) has_replica: bool,
    /// Round trips to all other regions in milliseconds, by name of the region.
    pub(crate) rtts_ms: Vec<(String, u32)>,
    pub(crate) profile: SiteProfile,
    /// Path of the region's namespace file.
    pub(crate) namespace: String,
    pub(crate) admin: ApiClient,
    pub(crate) data: ApiClient,
}

impl TrialSite {
    /// Returns the address for clients of the same region.
    pub(crate) fn data_address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], DATA_PORT))
    }
}

/// Returns one node for each region; regions with an index in `edges` have no replica.
pub(crate) fn sites(
    network: &WanNetwork,
    edges: &[usize],
    profile: SiteProfile,
) -> anyhow::Result<Vec<TrialSite>> {
    let handle = network.handle();
    let mut sites = Vec::new();
    for (index, region) in network.topology().regions.iter().enumerate() {
        let is_it = |node: &&NodeReport| node.region == region.name && node.node == 1;
        let node = handle.nodes().iter().find(is_it).context("a region has a first node")?;
        let local =
            |port| ApiClient::inside(&node.namespace, SocketAddr::from(([127, 0, 0, 1], port)));
        sites.push(TrialSite {
            name: format!("node-{}", char::from(b'a' + u8::try_from(index)?)),
            region: region.name.clone(),
            public: SocketAddr::from((node.public_address, LINK_PORT)),
            has_replica: !edges.contains(&index),
            rtts_ms: rtts_ms(network, index),
            profile,
            namespace: node.namespace.clone(),
            admin: local(ADMIN_PORT)?,
            data: local(DATA_PORT)?,
        });
    }
    Ok(sites)
}

fn rtts_ms(network: &WanNetwork, from: usize) -> Vec<(String, u32)> {
    let topology = network.topology();
    let others = topology.regions.iter().enumerate().filter(|(to, _)| *to != from);
    let rtt = |to| topology.shape(from, to).delay_ns + topology.shape(to, from).delay_ns;
    others
        .map(|(to, region)| (region.name.clone(), u32::try_from(rtt(to) / 1_000_000).unwrap_or(0)))
        .collect()
}
