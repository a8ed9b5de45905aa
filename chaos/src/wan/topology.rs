//! Regions, their places and the links between them: a config that cannot be wrong any more.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::nat::NatPlan;
use super::shape::Shape;

/// Everything the emulator is made of.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Where all chance comes from.
    pub seed: u64,
    /// The largest packet, on each device.
    pub mtu_bytes: u16,
    /// Packets on their way at once; more are lost and counted.
    pub packets_max: usize,
    /// Bytes on their way at once; more are lost and counted.
    pub bytes_max: usize,
    /// In the order of the config.
    pub regions: Vec<Region>,
    /// One for each namespace.
    pub places: Vec<Place>,
    /// From each region to each: row by row, as many rows and columns as regions.
    pub shapes: Vec<Shape>,
}

/// A region.
#[derive(Clone, Debug)]
pub struct Region {
    /// Unique.
    pub name: String,
    /// Address translation at its edge.
    pub nat: Option<NatPlan>,
}

/// A network namespace with one device and one or more addresses.
#[derive(Clone, Debug)]
pub struct Place {
    /// Index into the regions.
    pub region: usize,
    /// Its nodes: number within the region, from 1, and address.
    pub nodes: Vec<(u16, Ipv4Addr)>,
    /// Bits of the region's subnet.
    pub prefix_length: u8,
}

/// Whether the nodes of a region share a namespace.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolate {
    /// One namespace for all: what they send each other never reaches the emulator.
    #[default]
    Region,
    /// One for each: they can be blocked from each other, and need not tell their ports apart.
    Node,
}

impl Topology {
    /// The index of the region called `name`.
    #[must_use]
    pub fn region(&self, name: &str) -> Option<usize> {
        self.regions.iter().position(|region| region.name == name)
    }

    /// The index of the place where node number `node` of a region is.
    #[must_use]
    pub fn place(&self, region: usize, node: u16) -> Option<usize> {
        self.places.iter().position(|place| {
            place.region == region && place.nodes.iter().any(|(number, _)| *number == node)
        })
    }

    /// The shape of one direction.
    #[must_use]
    pub fn shape(&self, from: usize, to: usize) -> &Shape {
        &self.shapes[from * self.regions.len() + to]
    }
}
