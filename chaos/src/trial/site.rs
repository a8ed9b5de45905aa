//! Where a trial's nodes are.

use std::net::SocketAddr;

use anyhow::Context as _;

use super::client::Client;
use super::gear::Gear;
use crate::wan::{Answer, Command, Network, PlaceReport};

/// Port of the admin API, on the region's own loopback.
pub(crate) const ADMIN_PORT: u16 = 9900;
/// Port for models' requests, there too.
pub(crate) const DATA_PORT: u16 = 8080;
/// Port of the region's emulated replica, there too.
pub(crate) const REPLICA_PORT: u16 = 9101;
/// UDP port for other nodes; the one that `wans/nat.toml` leads to the first node.
pub(crate) const LINK_PORT: u16 = 7400;

/// The first node of a region.
#[derive(Debug)]
pub(crate) struct Site {
    /// The node's name. By name the first one forms the cluster.
    pub(crate) name: String,
    pub(crate) region: String,
    /// Where others reach it.
    pub(crate) public: SocketAddr,
    /// Whether a replica is there. Without, it is an edge that sends all requests elsewhere.
    pub(crate) has_replica: bool,
    /// Round trips to all other regions in milliseconds, by name.
    pub(crate) rtts_ms: Vec<(String, u32)>,
    pub(crate) gear: Gear,
    /// The file of its region's namespace.
    pub(crate) namespace: String,
    pub(crate) admin: Client,
    pub(crate) data: Client,
}

impl Site {
    /// Where clients of its own region reach it.
    pub(crate) fn data_address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], DATA_PORT))
    }
}

/// One node in each region; those whose place is in `edges` have no replica.
pub(crate) fn sites(network: &Network, edges: &[usize], gear: Gear) -> anyhow::Result<Vec<Site>> {
    let Answer::Places(places) = network.handle().ask(Command::Places {})? else {
        anyhow::bail!("the network answered something else");
    };
    let mut sites = Vec::new();
    for (index, region) in network.topology().regions.iter().enumerate() {
        let is_it = |place: &&PlaceReport| place.region == region.name && place.node == 1;
        let place = places.iter().find(is_it).context("a region has a first node")?;
        let local =
            |port| Client::inside(&place.namespace, SocketAddr::from(([127, 0, 0, 1], port)));
        sites.push(Site {
            name: format!("node-{}", char::from(b'a' + u8::try_from(index)?)),
            region: region.name.clone(),
            public: SocketAddr::from((place.public_address, LINK_PORT)),
            has_replica: !edges.contains(&index),
            rtts_ms: rtts_ms(network, index),
            gear,
            namespace: place.namespace.clone(),
            admin: local(ADMIN_PORT)?,
            data: local(DATA_PORT)?,
        });
    }
    Ok(sites)
}

fn rtts_ms(network: &Network, from: usize) -> Vec<(String, u32)> {
    let topology = network.topology();
    let others = topology.regions.iter().enumerate().filter(|(to, _)| *to != from);
    let rtt = |to| topology.shape(from, to).delay_ns + topology.shape(to, from).delay_ns;
    others
        .map(|(to, region)| (region.name.clone(), u32::try_from(rtt(to) / 1_000_000).unwrap_or(0)))
        .collect()
}
