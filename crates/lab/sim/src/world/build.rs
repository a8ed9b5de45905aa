//! Making of a world from its settings.

use std::collections::BTreeMap;
use std::sync::Arc;

use spillway_gossip::{GossipConfig, GossipMachine, GossipMember};
use spillway_prefix::HotTrie;
use spillway_types::ModelName;

use super::datagrams::Network;
use super::kv_streams::KvStreams;
use super::node::{Names, SimNode};
use super::replica::SimReplica;
use super::{Group, Region, World, WorldConfig, WorldEvent};
use crate::router::{NodePosition, Router, region_name};
use crate::text::mix;
use crate::{Agenda, Session, Time};

impl World {
    /// Returns a world before its first request. `router` makes the router of each node.
    #[must_use]
    pub fn new(
        config: WorldConfig,
        sessions: Vec<Session>,
        router: &mut dyn FnMut(&NodePosition) -> Box<dyn Router>,
    ) -> Self {
        let mut rng = fastrand::Rng::with_seed(config.seed);
        let (regions, replicas) = regions(&config);
        let believed_rtt_ms = believed_rtt_ms(&config);
        let members = members(&config);
        let mut spread = fastrand::Rng::with_seed(mix(config.seed, 0x7075_6C73));
        let (mut nodes, mut groups) = (Vec::new(), Vec::new());
        for (number, (region, served)) in stands(&config).into_iter().enumerate() {
            let mut group = group((region, served), &regions);
            let first = nodes.len();
            for _ in 0..config.regions[region].nodes {
                let position = NodePosition {
                    region,
                    replicas: group.homes.len(),
                    regions: regions.len(),
                    is_central: config.central.is_some(),
                    homes: Arc::clone(&group.homes),
                    seed: rng.u64(..),
                };
                let made = router(&position);
                let dice = fastrand::Rng::with_seed(spread.u64(..));
                let me: GossipMember = members[nodes.len()].clone();
                let mut machine =
                    GossipMachine::new(me, 1, GossipConfig::default(), dice, config.origin);
                machine.set_members(&members, config.origin);
                let mut node = SimNode::new(number, made, &position, machine, rng.u64(..));
                for (replica, &home) in node.replicas.iter_mut().zip(&*group.homes) {
                    replica.rtt_ms = believed_rtt_ms[region][home];
                }
                nodes.push(node);
            }
            group.nodes = first..nodes.len();
            groups.push(group);
        }
        let mut world = Self {
            agenda: agenda(&config, &sessions, groups.len()),
            network: Network::new(members, (0..regions.len()).map(region_name).collect()),
            believed_rtt_ms,
            luck: fastrand::Rng::with_seed(mix(config.seed, 0x6C6F_7374)),
            ended_turns: vec![0; sessions.len()],
            open: 0,
            now: Time(0),
            faults: Vec::new(),
            requests: Vec::new(),
            streams: BTreeMap::new(),
            trie: HotTrie::default(),
            deltas: BTreeMap::new(),
            proposals: 0,
            kv_streams: KvStreams::default(),
            model: ModelName::from("m"),
            config,
            sessions,
            regions,
            groups,
            nodes,
            replicas,
            rng,
        };
        world.begin_gossip();
        world.begin_limits();
        world.begin_kv_events();
        world
    }
}

/// Returns all nodes, by their numbers. The first node of a region has the first name there, too.
fn members(config: &WorldConfig) -> Vec<GossipMember> {
    let regions = stands(config).into_iter();
    let nodes = regions.flat_map(|(region, _)| vec![region; config.regions[region].nodes]);
    let name = |(at, region): (usize, usize)| {
        GossipMember::new(format!("node-{at:06}"), region_name(region))
    };
    nodes.enumerate().map(name).collect()
}

fn regions(config: &WorldConfig) -> (Vec<Region>, Vec<SimReplica>) {
    let (mut regions, mut replicas) = (Vec::new(), Vec::new());
    for region in &config.regions {
        let first = replicas.len();
        for at in first..first + region.replicas {
            let slow = config.slow.iter().find(|(replica, _)| *replica == at);
            replicas.push(SimReplica::new(config.engine, slow.map_or(1.0, |(_, factor)| *factor)));
        }
        regions.push(Region { replicas: first..replicas.len() });
    }
    (regions, replicas)
}

/// Returns the region in which each group of nodes runs, and the regions of its replicas.
fn stands(config: &WorldConfig) -> Vec<(usize, Vec<usize>)> {
    let all = 0..config.regions.len();
    match config.central {
        Some(region) => vec![(region, all.collect())],
        None => all.map(|region| (region, vec![region])).collect(),
    }
}

/// Returns a group of nodes, which has none yet.
fn group((region, served): (usize, Vec<usize>), regions: &[Region]) -> Group {
    let each = served.iter().flat_map(|&home| regions[home].replicas.clone().map(move |_| home));
    let homes: Arc<[usize]> = each.collect();
    // Regions that one group serves follow each other, and so do their replicas.
    let first = served.first().map_or(0, |&home| regions[home].replicas.start);
    Group {
        region,
        nodes: 0..0,
        replicas: first..first + homes.len(),
        names: Names::new(homes.len()),
        homes,
    }
}

fn agenda(config: &WorldConfig, sessions: &[Session], groups: usize) -> Agenda<WorldEvent> {
    let mut agenda = Agenda::default();
    let end = Time::from_s(config.end_s);
    // Only the first request of a session: the next ones follow the replies.
    for (session, asked) in sessions.iter().enumerate().filter(|(_, one)| one.start < end) {
        agenda.put(asked.start, WorldEvent::Asked { session, turn: 0 });
    }
    (0..groups).for_each(|group| agenda.put(Time(0), WorldEvent::Look { group }));
    for (number, fault) in config.faults.iter().enumerate() {
        agenda.put(fault.begin(), WorldEvent::Broken { fault: number });
        agenda.put(fault.end(), WorldEvent::Repaired { fault: number });
    }
    // A lone group has no other group to agree with.
    if let Some(every_ms) = config.news.hot_ms.filter(|_| groups > 1) {
        // Groups propose one after the other, as in a cluster.
        let at = |group| Time::from_ms(every_ms * (1.0 + group as f64 / groups as f64));
        (0..groups).for_each(|group| agenda.put(at(group), WorldEvent::Propose { group }));
    }
    agenda
}

/// Returns the round-trip times that nodes of each region believe.
fn believed_rtt_ms(config: &WorldConfig) -> Vec<Vec<f32>> {
    let mut rng = fastrand::Rng::with_seed(mix(config.seed, 0x7274_7473));
    let widest = (1.0 + config.news.rtt_error).ln();
    let mut believed = |rtt_ms: &f64| (rtt_ms * (widest * (2.0 * rng.f64() - 1.0)).exp()) as f32;
    config.rtt_ms.iter().map(|row| row.iter().map(&mut believed).collect()).collect()
}
