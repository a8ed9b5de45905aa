//! Groups of replicas that can serve the same requests, by admission.

use std::sync::Arc;
use std::time::Instant;

use spillway_route::{Admitted, Candidate, Group, Policy, admitted};
use spillway_types::{Admission, ModelName, ReplicaSlot, Standing};

use crate::group_memory::GroupMemory;
use crate::replica::Replica;
use crate::route_spec::RouteSpec;

/// Replicas that can serve one model on one route.
#[derive(Debug)]
pub struct RouteGroup {
    /// Candidates and their policy.
    pub group: Group,
    /// Replicas of the next best admission, if any: a request that failed at all of the group asks
    /// one of these before it gives up.
    pub next: Option<Group>,
    /// Overflow replicas that are open: asked where a request would otherwise be shed. They count nowhere
    /// else. `None` if there are none.
    pub overflow: Option<Group>,
    /// Admission of the group's replicas if none is open, so that these have to serve.
    pub last_resort: Option<Admission>,
    /// Earliest end of the rests, if all replicas of the group rest.
    pub busy_until: Option<Instant>,
    /// Replicas that rest: no candidates until their rest ends.
    pub resting: Box<[ReplicaSlot]>,
    /// Open share of the replicas' weight, in thousandths. Replicas on standby or drained by an
    /// operator do not count.
    pub healthy_permille: u16,
    /// True if each of the replicas serves this one model: a request that names none can mean no
    /// other there.
    pub serves_one: bool,
    /// Identity of the model if it is an adapter, by the pages of its replicas.
    pub adapter: Option<u64>,
    /// Counters that outlive the view.
    pub memory: Arc<GroupMemory>,
}

impl RouteGroup {
    /// Returns true if the group can be expected to serve: by open replicas, or by standby ones.
    pub fn is_open(&self) -> bool {
        matches!(self.last_resort, None | Some(Admission::Standby))
            && !self.group.candidates().is_empty()
    }

    /// Returns true if no replica of the group is known to serve: all are down or starting.
    pub fn is_out(&self) -> bool {
        matches!(self.last_resort, Some(Admission::Starting | Admission::Down))
    }

    /// Takes the number of the next decision in this group.
    pub fn ticket(&self) -> u64 {
        self.memory.ticket()
    }
}

/// A replica that is to become a member of groups.
#[derive(Clone, Copy, Debug)]
pub struct Entrant<'a> {
    /// Replica.
    pub replica: &'a Replica,
    /// Slot of the replica in the view.
    pub slot: ReplicaSlot,
    /// Standing of the replica.
    pub standing: &'a Standing,
    /// Weight set by an operator, in place of the replica's own.
    pub weight: Option<u32>,
    /// True if the replica serves one model.
    pub serves_one: bool,
}

/// Replicas of a group under construction.
#[derive(Debug, Default)]
pub struct GroupMembers {
    candidates: Vec<(Candidate, Admission)>,
    /// Open overflow replicas.
    overflow: Vec<Candidate>,
    busy_until: Option<Instant>,
    /// Weight of the replicas that should serve, and of those of them that do.
    weight: u64,
    open_weight: u64,
    /// True if a replica serves several models.
    is_mixed: bool,
}

impl GroupMembers {
    /// Adds a replica, with its settings for `model` if it serves one.
    pub fn add(&mut self, entrant: Entrant<'_>, model: Option<&ModelName>) {
        let Entrant { replica, slot, standing, weight, serves_one } = entrant;
        self.is_mixed |= !serves_one;
        let (admission, ramp_permille) = standing.for_model(model);
        let candidate = Candidate {
            slot,
            identity: Candidate::identity_of(&replica.spec.name),
            weight: weight.unwrap_or(replica.spec.weight),
            ramp_permille,
            in_flight_max: replica.spec.in_flight_max,
        };
        if replica.is_overflow() {
            self.overflow.extend((admission == Admission::Open).then_some(candidate));
            return;
        }
        if !matches!(admission, Admission::Standby | Admission::Draining) {
            self.weight += u64::from(candidate.weight);
        }
        if matches!(admission, Admission::Open | Admission::Busy) {
            self.open_weight += u64::from(candidate.weight);
        }
        self.candidates.push((candidate, admission));
        let busy_until = standing.busy_until.filter(|_| admission == Admission::Busy);
        self.busy_until = self.busy_until.into_iter().chain(busy_until).min();
    }

    /// Returns the group of all that were added, for `spec`.
    pub fn into_group(self, spec: &RouteSpec, memory: Arc<GroupMemory>) -> RouteGroup {
        let healthy_permille = match self.weight {
            // Nothing is missing where no replica should serve.
            0 => 1_000,
            weight => u16::try_from(self.open_weight * 1_000 / weight).unwrap_or(1_000),
        };
        let is_resting = |it: &&(Candidate, Admission)| it.1 == Admission::Busy;
        let resting = self.candidates.iter().filter(is_resting).map(|(it, _)| it.slot).collect();
        let Admitted { candidates, last_resort, next } = admitted(self.candidates);
        // Only a group without candidates has to wait for the end of a rest.
        let busy_until = self.busy_until.filter(|_| candidates.is_empty());
        let group = |candidates| Group::with_tuning(spec.policy, &spec.tuning, candidates);
        let next = (!next.is_empty()).then(|| group(next));
        let group = group(candidates);
        let is_allowed = spec.overflow && !self.overflow.is_empty();
        // No policy of the route: what they read of replicas is not known of a hosted API.
        let overflow =
            is_allowed.then(|| Group::new(Policy::WeightedLeastConnections, self.overflow));
        let serves_one = !self.is_mixed;
        RouteGroup {
            group,
            next,
            overflow,
            last_resort,
            busy_until,
            resting,
            healthy_permille,
            serves_one,
            adapter: None,
            memory,
        }
    }
}
