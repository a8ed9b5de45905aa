//! Regions, their namespaces and the links between them: a checked config.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::nat::NatPlan;
use super::shape::Shape;

/// Description of an emulated network.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Seed of all randomness.
    pub seed: u64,
    /// Largest packet in bytes, on each device.
    pub mtu_bytes: u16,
    /// Most packets in transit at once; more are lost and counted.
    pub packets_max: usize,
    /// Most bytes in transit at once; more are lost and counted.
    pub bytes_max: usize,
    /// Regions in the order of the config.
    pub regions: Vec<TopologyRegion>,
    /// Network namespaces.
    pub namespaces: Vec<NamespaceConfig>,
    /// Shapes from each region to each, as a square matrix row by row.
    pub shapes: Vec<Shape>,
}

/// Region.
#[derive(Clone, Debug)]
pub struct TopologyRegion {
    /// Unique name.
    pub name: String,
    /// Address translation at the edge; `None` without.
    pub nat: Option<NatPlan>,
}

/// Network namespace with one device and one or more addresses.
#[derive(Clone, Debug)]
pub struct NamespaceConfig {
    /// Index into the regions.
    pub region: usize,
    /// Nodes: number within the region, from 1, and address.
    pub nodes: Vec<(u16, Ipv4Addr)>,
    /// Prefix length of the region's subnet in bits.
    pub prefix_length: u8,
}

/// Number of namespaces of a region with several nodes.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolate {
    /// A namespace for all nodes: packets between them never reach the emulator.
    #[default]
    Region,
    /// A namespace for each node: nodes can be blocked from each other, and may use the same ports.
    Node,
}

impl Topology {
    /// Returns the index of the region `name`.
    #[must_use]
    pub fn region(&self, name: &str) -> Option<usize> {
        self.regions.iter().position(|region| region.name == name)
    }

    /// Returns the index of the namespace of node number `node` of a region.
    #[must_use]
    pub fn namespace(&self, region: usize, node: u16) -> Option<usize> {
        self.namespaces.iter().position(|namespace| {
            namespace.region == region && namespace.nodes.iter().any(|(number, _)| *number == node)
        })
    }

    /// Returns the shape of one direction.
    #[must_use]
    pub fn shape(&self, from: usize, to: usize) -> &Shape {
        &self.shapes[from * self.regions.len() + to]
    }
}
