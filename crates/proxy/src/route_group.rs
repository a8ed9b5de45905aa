//! The replicas that can serve the same requests, put together from their standing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use spillway_route::{Admitted, Candidate, Group, admitted};
use spillway_types::{Admission, ModelName, ReplicaSlot, Standing};

use crate::hedging::FirstByte;
use crate::late_probes::LateProbes;
use crate::replica::Replica;
use crate::tenants::Tenants;
use crate::view::RouteSpec;

/// The replicas that can serve one model on one route.
#[derive(Debug)]
pub(crate) struct RouteGroup {
    pub(crate) group: Group,
    /// Those of the next best standing, if there are any: a request that all of the group have failed
    /// asks one of these before it gives up.
    pub(crate) next: Option<Group>,
    /// Set if none of its replicas is open, so that those of this standing have to serve.
    pub(crate) last_resort: Option<Admission>,
    /// Set if all of its replicas asked to be left alone: when the first will take requests again.
    pub(crate) busy_until: Option<Instant>,
    /// Those that asked to be left alone: no candidates until that is over.
    pub(crate) resting: Box<[ReplicaSlot]>,
    /// The part of its replicas' weight, in thousandths, that is open. Replicas that are kept in
    /// reserve or were taken out by an operator are no part of it.
    pub(crate) healthy_permille: u16,
    pub(crate) memory: Arc<GroupMemory>,
}

/// What a group remembers beyond a change of its replicas.
#[derive(Debug, Default)]
pub(crate) struct GroupMemory {
    tickets: AtomicU64,
    /// How long first bytes take, where second attempts go by that.
    pub(crate) first_byte: FirstByte,
    /// What tenants have there.
    pub(crate) tenants: Tenants,
    /// Requests that were predicted to come too late.
    pub(crate) late_probes: LateProbes,
}

impl GroupMemory {
    /// Of a new group, whose turns begin there.
    pub(crate) fn new(first_turn: u64) -> Self {
        Self { tickets: AtomicU64::new(first_turn), ..Self::default() }
    }

    /// The number of the next decision, which is not made.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.tickets.load(Ordering::Relaxed)
    }
}

impl RouteGroup {
    /// Whether it can be expected to serve: by replicas that are open, or kept for the purpose.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.last_resort, None | Some(Admission::Standby))
            && !self.group.candidates().is_empty()
    }

    /// The number of the next decision in this group.
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
    /// An operator's weight, instead of its own.
    pub(crate) weight: Option<u32>,
}

/// Replicas of a group in the making.
#[derive(Debug, Default)]
pub(crate) struct Members {
    candidates: Vec<(Candidate, Admission)>,
    busy_until: Option<Instant>,
    /// Weight of those that are to serve, and of those of them that do.
    weight: u64,
    open_weight: u64,
}

impl Members {
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
            // Nothing is missing where nothing is to be.
            0 => 1_000,
            weight => u16::try_from(self.open_weight * 1_000 / weight).unwrap_or(1_000),
        };
        let is_resting = |it: &&(Candidate, Admission)| it.1 == Admission::Busy;
        let resting = self.candidates.iter().filter(is_resting).map(|(it, _)| it.slot).collect();
        let Admitted { candidates, last_resort, next } = admitted(self.candidates);
        let busy_until = self.busy_until.filter(|_| candidates.is_empty());
        let group = |candidates| Group::with_tuning(spec.policy, &spec.tuning, candidates);
        let next = (!next.is_empty()).then(|| group(next));
        let group = group(candidates);
        RouteGroup { group, next, last_resort, busy_until, resting, healthy_permille, memory }
    }
}
