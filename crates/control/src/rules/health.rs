//! What the cluster believes about replicas.

use std::collections::{BTreeMap, BTreeSet};

use spillway_types::{NodeName, RegionName};

use crate::limits::NODES_MAX;
use crate::rules::{check, leases};
use crate::state::{Done, Turn};
use crate::{Belief, Fault, Health, NodeId, Observation, Observed, Replica};

/// Independent signals that are needed where only one node can say something.
const SIGNALS_MIN: u8 = 2;

/// Takes in what one node sees. Only nodes of the replica's region are heard. Most of the region's
/// living nodes must say that a replica is down for the cluster to believe it; where one node is
/// all there is, it needs two signals. A belief stays for a while before it changes again; then
/// the next observation changes it, so a node that sees otherwise than the cluster repeats it.
pub(super) fn report(
    turn: &mut Turn<'_>,
    region: &RegionName,
    live: &BTreeSet<NodeName>,
    observations: &[Observation],
) -> Result<Done, Fault> {
    let reporter = turn.check_owner(region)?;
    check::batch(observations.len())?;
    check::count(live.len(), NODES_MAX, "nodes")?;
    let jury = Jury::of(turn, region, reporter, live);
    let mut skipped = 0;
    for observation in observations {
        let id = observation.id(region);
        if turn.get::<Replica>(&id).is_none_or(|replica| replica.epoch != observation.epoch) {
            skipped += 1;
            continue;
        }
        let known = turn.get::<Health>(&id).cloned();
        let before = known.unwrap_or_else(|| Health::new(observation.epoch));
        let after = jury.judge(&before, observation);
        if seen(&before) == seen(&after) && turn.get::<Health>(&id).is_some() {
            turn.put_quietly(id, after);
        } else {
            turn.put(id, after)?;
        }
    }
    Ok(Done { skipped })
}

/// Who may say something about a region's replicas, and what time it is there.
struct Jury {
    reporter: NodeId,
    /// The region's nodes, and whether the reporter hears them.
    nodes: BTreeMap<NodeId, bool>,
    now_ms: u64,
    observation_ms: u64,
    transition_ms: u64,
}

impl Jury {
    fn of(
        turn: &Turn<'_>,
        region: &RegionName,
        reporter: NodeId,
        live: &BTreeSet<NodeName>,
    ) -> Self {
        let of_region = turn.records.nodes.iter().filter(|(_, node)| node.spec.region == *region);
        Self {
            reporter,
            nodes: of_region.map(|(id, node)| (*id, live.contains(&node.spec.name))).collect(),
            now_ms: leases::now_ms(turn, region),
            observation_ms: turn.setting_ms("health.observation_ms"),
            transition_ms: turn.setting_ms("health.transition_ms"),
        }
    }

    fn judge(&self, before: &Health, observation: &Observation) -> Health {
        let Observation { belief, signals, .. } = *observation;
        let mut health = before.clone();
        let said = Observed { belief, signals, at_ms: self.now_ms };
        health.observers.insert(self.reporter, said);
        health.observers.retain(|id, said| self.counts(*id, *said));
        let verdict = self.verdict(&health);
        if verdict != health.belief && self.may_change(&health) {
            health.belief = verdict;
            health.changed_ms = Some(self.now_ms);
        }
        health
    }

    /// Nodes that were removed do not count, nor does what was said long ago.
    fn counts(&self, id: NodeId, said: Observed) -> bool {
        self.nodes.contains_key(&id)
            && self.now_ms.saturating_sub(said.at_ms) <= self.observation_ms
    }

    fn verdict(&self, health: &Health) -> Belief {
        // Whoever spoke lives, whether the reporter hears it or not: half a region that lost sight
        // of the other half must not decide alone.
        let lives = |id: &NodeId, is_heard: bool| is_heard || health.observers.contains_key(id);
        let living = self.nodes.iter().filter(|(id, is_heard)| lives(id, **is_heard)).count();
        let down = health.observers.values().filter(|said| said.belief == Belief::Down);
        if living > 1 {
            return if 2 * down.count() > living { Belief::Down } else { Belief::Up };
        }
        match health.observers.get(&self.reporter) {
            Some(said) if said.belief == Belief::Down && said.signals < SIGNALS_MIN => {
                health.belief
            }
            Some(said) => said.belief,
            None => health.belief,
        }
    }

    fn may_change(&self, health: &Health) -> bool {
        health
            .changed_ms
            .is_none_or(|changed_ms| self.now_ms.saturating_sub(changed_ms) >= self.transition_ms)
    }
}

/// What watchers care about: who says what, and what is believed; not when it was last said.
fn seen(health: &Health) -> (Belief, Vec<(NodeId, Belief, u8)>) {
    let said = |(id, said): (&NodeId, &Observed)| (*id, said.belief, said.signals);
    (health.belief, health.observers.iter().map(said).collect())
}
