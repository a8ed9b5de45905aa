//! Formation of a cluster by its seeds. Pure.
//!
//! All nodes that the config names as seeds start at about the same time and know nothing of each
//! other. The one with the lowest name forms the cluster, once, and only after each seed has
//! reported that it is in none: a seed that can't be reached may be in a cluster already.

use std::collections::{BTreeMap, BTreeSet};

use spillway_types::{ClusterId, DiskId, NodeId, NodeName, RegionName};

use crate::ids::Member;

/// A node that the config names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// Name of the node.
    pub name: NodeName,
    /// Region of the node.
    pub region: RegionName,
}

/// Returns the number of each seed: its place by name, from one on. All seeds get the same result.
#[must_use]
pub fn seed_ids(seeds: &[Seed]) -> BTreeMap<NodeName, NodeId> {
    let names: BTreeSet<NodeName> = seeds.iter().map(|seed| seed.name.clone()).collect();
    (1..).map(NodeId).zip(names).map(|(id, name)| (name, id)).collect()
}

/// Answer of a seed about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeedAnswer {
    pub(crate) node: NodeId,
    pub(crate) disk: DiskId,
    pub(crate) cluster: Option<ClusterId>,
}

/// Next step of a node that forms a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormationStep {
    /// Ask these seeds, and then again what is to be done. // => any
    Ask(Vec<NodeName>),
    /// Form the cluster of these members; `None` gives the cluster a new id. // => In
    Form(Option<ClusterId>, BTreeMap<NodeId, Member>),
    /// Another one forms the cluster, or has; it will make itself known. // => In
    Wait,
    /// This node is in a cluster. // end
    In(ClusterId),
    /// Seeds are in different clusters, or one has another number than the config gives it. Only a
    /// person can decide which is right. // => any, when the seeds report something else
    Conflict(String),
}

/// Rule for forming a cluster, with the answers of the seeds.
#[derive(Clone, Debug)]
pub(crate) struct Formation {
    me: NodeName,
    seeds: BTreeMap<NodeName, Seed>,
    ids: BTreeMap<NodeName, NodeId>,
    answers: BTreeMap<NodeName, SeedAnswer>,
}

/// Knowledge of a node about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    pub(crate) disk: DiskId,
    pub(crate) cluster: Option<ClusterId>,
    /// True if the log is empty: then a cluster that the node has named was never formed.
    pub(crate) is_blank: bool,
}

impl Formation {
    pub(crate) fn new(me: NodeName, seeds: &[Seed]) -> Self {
        let ids = seed_ids(seeds);
        let seeds = seeds.iter().map(|seed| (seed.name.clone(), seed.clone())).collect();
        Self { me, seeds, ids, answers: BTreeMap::new() }
    }

    /// A seed has answered.
    pub(crate) fn answered(&mut self, seed: &NodeName, answer: SeedAnswer) {
        if self.seeds.contains_key(seed) && *seed != self.me {
            self.answers.insert(seed.clone(), answer);
        }
    }

    /// Returns the next step. Call it again when an input has changed: the answer changes with
    /// [`Self::answered`] and with `own`.
    #[must_use]
    pub(crate) fn step(&self, own: Own) -> FormationStep {
        let others = self.answers.iter().filter_map(|(name, answer)| Some((name, answer.cluster?)));
        let mut clusters: BTreeMap<ClusterId, &NodeName> = BTreeMap::new();
        for (name, cluster) in own.cluster.map(|own| (&self.me, own)).into_iter().chain(others) {
            clusters.entry(cluster).or_insert(name);
        }
        if clusters.len() > 1 {
            let said: Vec<String> =
                clusters.iter().map(|(cluster, name)| format!("{name} is in {cluster}")).collect();
            return FormationStep::Conflict(said.join(", "));
        }
        if let Some(wrong) = self.misnumbered() {
            return FormationStep::Conflict(wrong);
        }
        let is_lowest = self.seeds.keys().next() == Some(&self.me);
        match own.cluster {
            // The lowest seed with an empty log named the cluster and ended before it formed it: it
            // goes on.
            Some(cluster) if !own.is_blank || !is_lowest => return FormationStep::In(cluster),
            // Another node is in a cluster already: it will inform this node, or this node must
            // join.
            None if !clusters.is_empty() => return FormationStep::Wait,
            _ if !is_lowest => return FormationStep::Wait,
            _ => {}
        }
        let missing: Vec<NodeName> = self
            .seeds
            .keys()
            .filter(|name| **name != self.me && !self.answers.contains_key(*name))
            .cloned()
            .collect();
        if missing.is_empty() {
            FormationStep::Form(own.cluster, self.members(own.disk))
        } else {
            FormationStep::Ask(missing)
        }
    }

    fn misnumbered(&self) -> Option<String> {
        let wrong = self.answers.iter().find(|(name, answer)| self.ids[*name] != answer.node);
        wrong.map(|(name, answer)| {
            format!("{name} is node {}, not {}: its seeds are others", answer.node, self.ids[name])
        })
    }

    fn members(&self, own_disk: DiskId) -> BTreeMap<NodeId, Member> {
        let member = |seed: &Seed| Member {
            name: seed.name.clone(),
            region: seed.region.clone(),
            disk: self.answers.get(&seed.name).map_or(own_disk, |answer| answer.disk),
        };
        self.seeds.values().map(|seed| (self.ids[&seed.name], member(seed))).collect()
    }
}

#[cfg(test)]
#[path = "formation_test.rs"]
mod tests;
