//! Commands to a running network, and their answers: one JSON object a line.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::hub::{Hub, HubBlock, StrayCounts};
use super::link::{LinkCounts, Passage};
use super::shape::{ShapeError, ShapePatch};

/// Most blocks at once. A scenario that needs more should cut links.
pub const BLOCKS_MAX: usize = 4096;

/// Command to a network, on the command line and as JSON. Regions are named as in the config.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, clap::Subcommand)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum ControlCommand {
    /// Change what links do to packets.
    Shape {
        /// A region; "*" is every region.
        from: String,
        /// Another one.
        to: String,
        /// Only from the first to the second.
        #[arg(long)]
        #[serde(default)]
        one_way: bool,
        /// Changes to the shape.
        #[command(flatten)]
        set: ShapePatch,
    },
    /// Stop all packets between two regions, including those on their way.
    Cut {
        /// A region; "*" is every region.
        from: String,
        /// Another one.
        to: String,
        /// Only from the first to the second.
        #[arg(long)]
        #[serde(default)]
        one_way: bool,
    },
    /// Undo a cut.
    Mend {
        /// A region; "*" is every region.
        from: String,
        /// Another one.
        to: String,
        /// Only from the first to the second.
        #[arg(long)]
        #[serde(default)]
        one_way: bool,
    },
    /// Stop all packets between two addresses.
    Block {
        /// Sender; all addresses if left out.
        #[arg(long, required_unless_present = "to")]
        from: Option<Ipv4Addr>,
        /// Receiver; all addresses if left out.
        #[arg(long)]
        to: Option<Ipv4Addr>,
        /// Only from the first to the second.
        #[arg(long)]
        #[serde(default)]
        one_way: bool,
    },
    /// Undo a block.
    Unblock {
        /// Sender; all addresses if left out.
        #[arg(long, required_unless_present = "to")]
        from: Option<Ipv4Addr>,
        /// Receiver; all addresses if left out.
        #[arg(long)]
        to: Option<Ipv4Addr>,
        /// Only from the first to the second.
        #[arg(long)]
        #[serde(default)]
        one_way: bool,
    },
    /// Undo all cuts and blocks, and give links the shape of the config.
    Heal {},
    /// Make a region's address translation forget its flows and use other ports.
    Rebind {
        /// The region.
        region: String,
    },
    /// Show counts of packets, and the lateness of the emulator.
    Stats {},
    /// Set all counts to zero.
    ResetStats {},
    /// Show the nodes, their addresses and namespaces.
    Nodes {},
    /// End the network and everything that runs in it.
    Stop {},
}

/// Answer to a command.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlAnswer {
    /// The command was carried out: the next packet meets the new state.
    Done,
    /// Answer to [`ControlCommand::Stats`].
    Stats(WanStats),
    /// Answer to [`ControlCommand::Nodes`].
    Nodes(Vec<NodeReport>),
}

/// Counts since the start or the last [`ControlCommand::ResetStats`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct WanStats {
    /// Number of packets in transit.
    pub in_flight: u64,
    /// Processor time of the forwarding thread since its start, in microseconds.
    pub cpu_us: u64,
    /// Median lateness of packets, in microseconds.
    pub lateness_p50_us: u64,
    /// p99 of the lateness of packets, in microseconds.
    pub lateness_p99_us: u64,
    /// Largest lateness of a packet, in microseconds.
    pub lateness_max_us: u64,
    /// Packets that never reached a link.
    pub strays: StrayCounts,
    /// Counts of each direction of each link.
    pub links: Vec<LinkReport>,
}

/// State of one direction of a link.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LinkReport {
    /// Sending region.
    pub from: String,
    /// Receiving region.
    pub to: String,
    /// True if no packet passes.
    pub is_cut: bool,
    /// Delay of this direction in milliseconds.
    pub delay_ms: f64,
    /// Counts of packets.
    pub counts: LinkCounts,
}

/// Node with its addresses and namespace.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct NodeReport {
    /// Name of the region.
    pub region: String,
    /// Number within the region, from 1.
    pub node: u16,
    /// Address that the node can bind to.
    pub address: Ipv4Addr,
    /// Address at which other regions reach the node.
    pub public_address: Ipv4Addr,
    /// Path of a file that opens the namespace, as long as the network runs.
    pub namespace: String,
}

/// Error of a command. The network is unchanged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ControlError {
    /// The region does not exist.
    #[error("there is no region {name}; there are: {known}")]
    Region {
        /// Name that was given.
        name: String,
        /// Names that exist.
        known: String,
    },
    /// The region has no address translation.
    #[error("region {0} has no address translation")]
    NoNat(String),
    /// A value is one that no link can have.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The limit of blocks is reached.
    #[error("there are {BLOCKS_MAX} blocks already; cut links or heal first")]
    Blocks,
    /// The network has ended.
    #[error("the network has ended")]
    Ended,
    /// Too many commands are waiting.
    #[error("too many commands wait; ask again")]
    Busy,
}

impl Hub {
    /// Carries out the part of `command` that is about packets.
    pub(crate) fn apply(
        &mut self,
        command: &ControlCommand,
    ) -> Result<ControlAnswer, ControlError> {
        match command {
            ControlCommand::Shape { from, to, one_way, set } => {
                let links = self.select(from, to, *one_way)?;
                let shapes: Vec<_> = links
                    .iter()
                    .map(|link| set.apply(&self.links[*link].shape))
                    .collect::<Result<_, _>>()?;
                for (link, shape) in links.into_iter().zip(shapes) {
                    self.links[link].reshape(shape);
                }
            }
            ControlCommand::Cut { from, to, one_way } => {
                self.pass(from, to, *one_way, Passage::Cut)?;
            }
            ControlCommand::Mend { from, to, one_way } => {
                self.pass(from, to, *one_way, Passage::Open)?;
            }
            ControlCommand::Block { from, to, one_way } => {
                let blocks = both(*from, *to, *one_way);
                let new = blocks.iter().filter(|block| !self.blocks.contains(block)).count();
                if self.blocks.len() + new > BLOCKS_MAX {
                    return Err(ControlError::Blocks);
                }
                self.blocks.extend(blocks);
            }
            ControlCommand::Unblock { from, to, one_way } => {
                for block in both(*from, *to, *one_way) {
                    self.blocks.remove(&block);
                }
            }
            ControlCommand::Heal {} => self.heal(),
            ControlCommand::Rebind { region } => {
                let index = self.index(region)?;
                let nat = self.nats[index].as_mut();
                nat.ok_or_else(|| ControlError::NoNat(region.clone()))?.rebind();
            }
            ControlCommand::Stats {} => return Ok(ControlAnswer::Stats(self.stats())),
            ControlCommand::ResetStats {} => self.reset_counts(),
            // The network itself handles these.
            ControlCommand::Nodes {} | ControlCommand::Stop {} => {}
        }
        Ok(ControlAnswer::Done)
    }

    fn pass(
        &mut self,
        from: &str,
        to: &str,
        one_way: bool,
        passage: Passage,
    ) -> Result<(), ControlError> {
        for link in self.select(from, to, one_way)? {
            self.links[link].passage = passage;
        }
        Ok(())
    }

    fn heal(&mut self) {
        self.blocks.clear();
        for link in &mut self.links {
            link.passage = Passage::Open;
            link.reshape(link.configured);
        }
    }

    /// Returns the indices of the links from each region of `from` to each of `to`. A link within a
    /// region is selected only if both are the same name.
    fn select(&self, from: &str, to: &str, one_way: bool) -> Result<Vec<usize>, ControlError> {
        let count = self.topology.regions.len();
        let mut links = Vec::new();
        for from_index in self.indices(from)? {
            for to_index in self.indices(to)? {
                if from_index == to_index && (from != to || from == "*") {
                    continue;
                }
                links.push(from_index * count + to_index);
                if !one_way {
                    links.push(to_index * count + from_index);
                }
            }
        }
        links.sort_unstable();
        links.dedup();
        Ok(links)
    }

    fn indices(&self, name: &str) -> Result<Vec<usize>, ControlError> {
        match name {
            "*" => Ok((0..self.topology.regions.len()).collect()),
            _ => Ok(vec![self.index(name)?]),
        }
    }

    fn index(&self, name: &str) -> Result<usize, ControlError> {
        self.topology.region(name).ok_or_else(|| {
            let names: Vec<&str> =
                self.topology.regions.iter().map(|region| region.name.as_str()).collect();
            ControlError::Region { name: name.to_owned(), known: names.join(", ") }
        })
    }

    fn stats(&self) -> WanStats {
        let count = self.topology.regions.len();
        let name = |index: usize| self.topology.regions[index].name.clone();
        let report = |(index, link): (usize, &super::link::WanLink)| LinkReport {
            from: name(index / count),
            to: name(index % count),
            is_cut: link.passage == Passage::Cut,
            delay_ms: link.shape.delay_ns as f64 / 1e6,
            counts: link.counts,
        };
        WanStats {
            in_flight: self.in_flight() as u64,
            cpu_us: 0,
            lateness_p50_us: self.lateness_us.value_at_quantile(0.5),
            lateness_p99_us: self.lateness_us.value_at_quantile(0.99),
            lateness_max_us: self.lateness_us.max(),
            strays: self.strays,
            links: self.links.iter().enumerate().map(report).collect(),
        }
    }
}

impl WanStats {
    /// Returns the counts of the direction `from` to `to`; `None` if there is no such link.
    #[must_use]
    pub fn link(&self, from: &str, to: &str) -> Option<&LinkCounts> {
        let is_it = |link: &&LinkReport| link.from == from && link.to == to;
        self.links.iter().find(is_it).map(|link| &link.counts)
    }
}

fn both(from: Option<Ipv4Addr>, to: Option<Ipv4Addr>, one_way: bool) -> Vec<HubBlock> {
    let there = HubBlock { from, to };
    let back = HubBlock { from: to, to: from };
    if one_way || there == back { vec![there] } else { vec![there, back] }
}
