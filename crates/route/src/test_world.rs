//! What the tests of this crate share: a group, loads in an array, and a fixed moment.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use spillway_types::{BlockHashes, Deadline, Inquiry, RAMP_FULL, ReplicaName, ReplicaSlot};

use crate::{Attempt, Candidate, Group, Loads, Moment, Plan, Policy, plan};

/// The moment at which all tests take place.
pub(crate) static NOW: LazyLock<Instant> = LazyLock::new(|| {
    #[expect(clippy::disallowed_methods, reason = "a test needs some starting moment")]
    Instant::now()
});

/// Loads by slot; a test may change them between decisions.
#[derive(Debug)]
pub(crate) struct Array(pub(crate) Vec<u32>);

impl Loads for Array {
    fn in_flight(&self, slot: ReplicaSlot) -> u32 {
        self.0[slot.index()]
    }
}

/// A group, the loads of its replicas, and who was tried before.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) group: Group,
    pub(crate) loads: Array,
    pub(crate) tried: Vec<ReplicaSlot>,
    /// The key of the requests.
    pub(crate) affinity: Option<u64>,
    pub(crate) rng: fastrand::Rng,
}

impl World {
    /// Idle replicas without limits, with these weights.
    pub(crate) fn idle(policy: Policy, weights: &[u32]) -> Self {
        let candidates = (0..).zip(weights).map(|(slot, &weight)| Candidate {
            slot: ReplicaSlot(slot),
            identity: identity(slot),
            weight,
            ramp_permille: RAMP_FULL,
            in_flight_max: u32::MAX,
        });
        Self {
            group: Group::new(policy, candidates.collect()),
            loads: Array(vec![0; weights.len()]),
            tried: Vec::new(),
            affinity: Some(11),
            rng: fastrand::Rng::with_seed(7),
        }
    }

    /// The plan of the decision with this ticket.
    pub(crate) fn plan(&mut self, ticket: u64) -> Plan {
        let moment = Moment { now: *NOW, loads: &self.loads, ticket, rng: &mut self.rng };
        let inquiry = Inquiry { affinity: self.affinity, ..inquiry() };
        plan(&inquiry, &self.group, &self.tried, moment)
    }

    /// The attempt of the decision with this ticket; fails the test if it is refused.
    pub(crate) fn attempt(&mut self, ticket: u64) -> Attempt {
        match self.plan(ticket) {
            Plan::Attempt(attempt) => attempt,
            Plan::Refuse(refusal) => panic!("refused: {refusal}"),
        }
    }

    /// How often each replica is chosen in `decisions` consecutive decisions, loads unchanged.
    pub(crate) fn tally(&mut self, decisions: u64) -> Vec<u64> {
        let mut chosen = vec![0; self.loads.0.len()];
        for ticket in 0..decisions {
            chosen[self.attempt(ticket).slot.index()] += 1;
        }
        chosen
    }

    /// Whether the candidate may be chosen.
    pub(crate) fn is_usable(&self, candidate: &Candidate) -> bool {
        self.loads.in_flight(candidate.slot) < candidate.in_flight_max
            && !self.tried.contains(&candidate.slot)
    }

    /// The usable candidates, in order.
    pub(crate) fn usable(&self) -> Vec<Candidate> {
        self.group.candidates().iter().filter(|c| self.is_usable(c)).copied().collect()
    }
}

/// The identity of a replica whose name ends in `number`.
pub(crate) fn identity(number: u32) -> u64 {
    Candidate::identity_of(&ReplicaName::from(format!("replica-{number}")))
}

/// A request with a second left, and no key.
pub(crate) fn inquiry() -> Inquiry {
    Inquiry {
        model: None,
        prefix: BlockHashes::default(),
        prompt_bytes: 0,
        affinity: None,
        session: None,
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
        deadline: Deadline::after(*NOW, Duration::from_secs(1)),
        hop: 0,
    }
}

/// Any policy.
pub(crate) fn any_policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(Policy::ALL)
}

/// Up to 40 replicas, any part of them busy or tried, slots in any order and with gaps.
pub(crate) fn any_world(policy: impl Strategy<Value = Policy>) -> impl Strategy<Value = World> {
    let replica = (1..12_u32, 0..6_u32, 1..6_u32, prop::bool::weighted(0.2));
    let replicas = prop::collection::vec(replica, 0..40);
    let slots = Just((0..60).collect::<Vec<u32>>()).prop_shuffle();
    let chance = (any::<u64>(), any::<Option<u64>>());
    (policy, replicas, slots, chance).prop_map(|(policy, replicas, slots, (seed, affinity))| {
        let mut loads = vec![0; 60];
        let mut tried = Vec::new();
        let mut candidates = Vec::new();
        for ((weight, in_flight, in_flight_max, was_tried), slot) in
            replicas.into_iter().zip(slots.into_iter().map(ReplicaSlot))
        {
            let identity = identity(slot.0);
            let ramp_permille = RAMP_FULL;
            candidates.push(Candidate { slot, identity, weight, ramp_permille, in_flight_max });
            loads[slot.index()] = in_flight;
            tried.extend(was_tried.then_some(slot));
        }
        World {
            group: Group::new(policy, candidates),
            loads: Array(loads),
            tried,
            affinity,
            rng: fastrand::Rng::with_seed(seed),
        }
    })
}

/// Fails the test unless the counts are in the given proportions, up to chance.
///
/// Chi-squared, with a limit that holds for all but about one in a million samples (the
/// Wilson-Hilferty approximation at 4.75 standard deviations). The seeds are fixed, so a test
/// that passes once passes always.
pub(crate) fn assert_proportional(counts: &[u64], shares: &[f64]) {
    let decisions: u64 = counts.iter().sum();
    let whole: f64 = shares.iter().sum();
    let mut chi_squared = 0.0;
    for (&count, &share) in counts.iter().zip(shares) {
        let expected = decisions as f64 * share / whole;
        if expected == 0.0 {
            assert_eq!(count, 0, "counts {counts:?} for shares {shares:?}");
        } else {
            chi_squared += (count as f64 - expected).powi(2) / expected;
        }
    }
    let freedom = shares.iter().filter(|&&share| share > 0.0).count().saturating_sub(1) as f64;
    let spread = 2.0 / (9.0 * freedom.max(1.0));
    let limit = freedom.max(1.0) * (1.0 - spread + 4.75 * spread.sqrt()).powi(3);
    assert!(chi_squared <= limit, "{chi_squared} > {limit}: {counts:?} for shares {shares:?}");
}
