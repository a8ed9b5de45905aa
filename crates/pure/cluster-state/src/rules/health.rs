//! Rules for the health of replicas.

use std::collections::{BTreeMap, BTreeSet};

use spillway_types::{NodeName, RegionName};

use crate::limits::NODES_MAX;
use crate::rules::{check, leases};
use crate::state::{Done, Turn};
use crate::{ApplyError, Belief, Health, NodeId, Observation, Observed, Replica};

/// Independent signals that a node needs to report a replica as down if it is the only living node.
const SIGNALS_MIN: u8 = 2;

/// Applies one node's observations of replicas. Only reports of nodes in the replicas' region
/// count. The cluster believes that a replica is down if a majority of the region's living nodes
/// observe it; a node that is alone needs two independent signals. A belief stays for
/// `health.transition_ms` before it changes again. The next observation after that changes it, so a
/// node that disagrees with the cluster repeats its observation.
pub(super) fn report(
    turn: &mut Turn<'_>,
    region: &RegionName,
    live: &BTreeSet<NodeName>,
    observations: &[Observation],
) -> Result<Done, ApplyError> {
    let reporter = turn.check_owner(region)?;
    check::batch(observations.len())?;
    check::count(live.len(), NODES_MAX, "nodes")?;
    let jury = Jury::of(turn, region, reporter, live);
    let mut skipped = 0;
    for observation in observations {
        let id = observation.id(region);
        // The observed server has registered again since then, or is gone.
        if turn.get::<Replica>(&id).is_none_or(|replica| replica.epoch != observation.epoch) {
            skipped += 1;
            continue;
        }
        let known = turn.get::<Health>(&id).cloned();
        let before = known.unwrap_or_else(|| Health::new(observation.epoch));
        let after = jury.judge(&before, observation);
        // Only the time is new: watchers need no notice.
        if seen(&before) == seen(&after) && turn.get::<Health>(&id).is_some() {
            turn.put_quietly(id, after);
        } else {
            turn.put(id, after)?;
        }
    }
    Ok(Done { skipped })
}

/// The nodes whose observations of a region's replicas count, with the present time and the
/// settings.
struct Jury {
    reporter: NodeId,
    /// Nodes of the region, with true for each that the reporter has contact with.
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
        // Hysteresis: a replica that flaps must not change the belief with every report.
        if verdict != health.belief && self.may_change(&health) {
            health.belief = verdict;
            health.changed_ms = Some(self.now_ms);
        }
        health
    }

    /// Returns true for an observation that still counts: its node is a member, and it is recent.
    fn counts(&self, id: NodeId, said: Observed) -> bool {
        self.nodes.contains_key(&id)
            && self.now_ms.saturating_sub(said.at_ms) <= self.observation_ms
    }

    fn verdict(&self, health: &Health) -> Belief {
        // A node with an observation lives, even if the reporter has no contact with it: half a
        // region that lost contact with the other half must not decide alone.
        let lives = |id: &NodeId, is_heard: bool| is_heard || health.observers.contains_key(id);
        let living = self.nodes.iter().filter(|(id, is_heard)| lives(id, **is_heard)).count();
        let down = health.observers.values().filter(|said| said.belief == Belief::Down);
        if living > 1 {
            return if 2 * down.count() > living { Belief::Down } else { Belief::Up };
        }
        // The reporter is alone: one signal is too little to take a replica out.
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

/// Returns the parts of a replica's health that watchers get: all but the times.
fn seen(health: &Health) -> (Belief, Vec<(NodeId, Belief, u8)>) {
    let said = |(id, said): (&NodeId, &Observed)| (*id, said.belief, said.signals);
    (health.belief, health.observers.iter().map(said).collect())
}
