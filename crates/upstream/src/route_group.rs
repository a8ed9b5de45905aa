//! Groups of replicas that can serve the same requests, by admission.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use spillway_route::{Admitted, Candidate, Group, LateProbes, admitted};
use spillway_types::{Admission, ModelName, ReplicaSlot, Standing};

use crate::hedging::FirstByte;
use crate::replica::Replica;
use crate::tenants::Tenants;
use crate::view::RouteSpec;

/// Replicas that can serve one model on one route.
#[derive(Debug)]
pub(crate) struct RouteGroup {
    pub(crate) group: Group,
    /// Replicas of the next best admission, if any: a request that failed at all of the group asks
    /// one of these before it gives up.
    pub(crate) next: Option<Group>,
    /// Admission of the group's replicas if none is open, so that these have to serve.
    pub(crate) last_resort: Option<Admission>,
    /// Earliest end of the rests, if all replicas of the group rest.
    pub(crate) busy_until: Option<Instant>,
    /// Replicas that rest: no candidates until their rest ends.
    pub(crate) resting: Box<[ReplicaSlot]>,
    /// Open share of the replicas' weight, in thousandths. Replicas on standby or drained by an
    /// operator do not count.
    pub(crate) healthy_permille: u16,
    pub(crate) memory: Arc<GroupMemory>,
}

/// State of a group that survives a change of its replicas.
#[derive(Debug, Default)]
pub(crate) struct GroupMemory {
    tickets: AtomicU64,
    /// Percentile of times to first byte, for hedging.
    pub(crate) first_byte: FirstByte,
    /// Places that tenants hold.
    pub(crate) tenants: Tenants,
    /// Probes of requests for which a late reply is predicted.
    pub(crate) late_probes: LateProbes,
}

impl GroupMemory {
    /// Returns the memory of a new group, whose tickets begin at `first_turn`.
    pub(crate) fn new(first_turn: u64) -> Self {
        Self { tickets: AtomicU64::new(first_turn), ..Self::default() }
    }

    /// Returns the number of the next decision, without making one.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.tickets.load(Ordering::Relaxed)
    }
}

impl RouteGroup {
    /// Returns true if the group can be expected to serve: by open replicas, or by standby ones.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.last_resort, None | Some(Admission::Standby))
            && !self.group.candidates().is_empty()
    }

    /// Takes the number of the next decision in this group.
    pub(crate) fn ticket(&self) -> u64 {
        self.memory.tickets.fetch_add(1, Ordering::Relaxed)
    }
}

/// A replica that is to become a member of groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entrant<'a> {
    pub(crate) replica: &'a Replica,
    pub(crate) slot: ReplicaSlot,
    pub(crate) standing: &'a Standing,
    /// Weight set by an operator, in place of the replica's own.
    pub(crate) weight: Option<u32>,
}

/// Replicas of a group under construction.
#[derive(Debug, Default)]
pub(crate) struct GroupMembers {
    candidates: Vec<(Candidate, Admission)>,
    busy_until: Option<Instant>,
    /// Weight of the replicas that should serve, and of those of them that do.
    weight: u64,
    open_weight: u64,
}

impl GroupMembers {
    pub(crate) fn add(&mut self, entrant: Entrant<'_>, model: Option<&ModelName>) {
        let Entrant { replica, slot, standing, weight } = entrant;
        let (admission, ramp_permille) = standing.for_model(model);
        let candidate = Candidate {
            slot,
            identity: Candidate::identity_of(&replica.spec.name),
            weight: weight.unwrap_or(replica.spec.weight),
            ramp_permille,
            in_flight_max: replica.spec.in_flight_max,
        };
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

    pub(crate) fn into_group(self, spec: &RouteSpec, memory: Arc<GroupMemory>) -> RouteGroup {
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
        RouteGroup { group, next, last_resort, busy_until, resting, healthy_permille, memory }
    }
}
