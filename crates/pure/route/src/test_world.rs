//! Test data of the crate: a group, loads in an array, and a fixed moment.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use spillway_types::{
    BlockHashes, Deadline, Inquiry, ModelName, RAMP_FULL, Reading, ReplicaName, ReplicaSlot,
    Residency, Signals, Speed,
};

use crate::{Attempt, Candidate, Group, Loads, Moment, Plan, Policy, plan};

/// The moment at which all tests take place.
pub(crate) static NOW: LazyLock<Instant> = LazyLock::new(|| {
    #[expect(clippy::disallowed_methods, reason = "a test needs some starting moment")]
    Instant::now()
});

/// Loads by slot; a test may change them between decisions.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub(crate) in_flight: Vec<u32>,
    pub(crate) started: Vec<u64>,
    pub(crate) signals: Vec<Signals>,
    pub(crate) cached_blocks: Vec<u32>,
    pub(crate) pending_tokens: Vec<u32>,
    pub(crate) context_tokens: Vec<u32>,
    pub(crate) speeds: Vec<Speed>,
}

impl Array {
    /// Returns idle replicas of which nothing is known.
    pub(crate) fn idle(count: usize) -> Self {
        Self {
            in_flight: vec![0; count],
            started: vec![0; count],
            signals: vec![Signals::UNKNOWN; count],
            cached_blocks: vec![0; count],
            pending_tokens: vec![0; count],
            context_tokens: vec![0; count],
            speeds: vec![Speed::UNKNOWN; count],
        }
    }
}

impl Loads for Array {
    fn in_flight(&self, slot: ReplicaSlot) -> u32 {
        self.in_flight[slot.index()]
    }

    fn started(&self, slot: ReplicaSlot) -> u64 {
        self.started[slot.index()]
    }

    fn signals(&self, slot: ReplicaSlot) -> Signals {
        self.signals[slot.index()]
    }

    fn cached_blocks(&self, slot: ReplicaSlot) -> u32 {
        self.cached_blocks[slot.index()]
    }

    fn cached_blocks_max(&self) -> u32 {
        self.cached_blocks.iter().copied().max().unwrap_or(0)
    }

    fn context_tokens(&self, slot: ReplicaSlot) -> u32 {
        self.context_tokens[slot.index()]
    }

    fn pending_tokens(&self, slot: ReplicaSlot) -> u32 {
        self.pending_tokens[slot.index()]
    }

    fn speed(&self, slot: ReplicaSlot) -> Speed {
        self.speeds[slot.index()]
    }
}

/// Group, loads of its replicas, and replicas tried before.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) group: Group,
    pub(crate) loads: Array,
    pub(crate) tried: Vec<ReplicaSlot>,
    /// The key of the requests.
    pub(crate) affinity: Option<u64>,
    /// The replica of the requests' session.
    pub(crate) session: Option<u64>,
    /// The prompt of the requests.
    pub(crate) prompt: Prompt,
    pub(crate) rng: fastrand::Rng,
}

/// Prompt of the requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prompt {
    pub(crate) blocks: BlockHashes,
    pub(crate) bytes: u32,
    pub(crate) output_tokens_max: Option<u32>,
    /// Expected tokens of a reply in one piece; `None` for streams.
    pub(crate) whole_tokens: Option<u32>,
    /// True if the requests name a model, so that they can wait.
    pub(crate) has_model: bool,
}

impl World {
    /// Returns idle replicas without limits, with these weights.
    pub(crate) fn idle(policy: Policy, weights: &[u32]) -> Self {
        let ramping: Vec<_> = weights.iter().map(|&weight| (weight, RAMP_FULL)).collect();
        Self::ramping(policy, &ramping)
    }

    /// Returns idle replicas without limits, with these weights and ramps.
    pub(crate) fn ramping(policy: Policy, weights: &[(u32, u16)]) -> Self {
        let candidates = (0..).zip(weights).map(|(slot, &(weight, ramp_permille))| Candidate {
            slot: ReplicaSlot(slot),
            identity: identity(slot),
            weight,
            ramp_permille,
            in_flight_max: u32::MAX,
        });
        Self {
            group: Group::new(policy, candidates.collect()),
            loads: Array::idle(weights.len()),
            tried: Vec::new(),
            affinity: Some(11),
            session: None,
            prompt: Prompt::default(),
            rng: fastrand::Rng::with_seed(7),
        }
    }

    /// Returns these replicas under another policy.
    pub(crate) fn under(&self, policy: Policy) -> Self {
        Self {
            group: Group::new(policy, self.group.candidates().to_vec()),
            loads: self.loads.clone(),
            tried: self.tried.clone(),
            prompt: self.prompt.clone(),
            rng: self.rng.clone(),
            ..*self
        }
    }

    /// Returns these replicas with full ramps.
    pub(crate) fn all_warm(self) -> Self {
        let warm = |one: &Candidate| Candidate { ramp_permille: RAMP_FULL, ..*one };
        let candidates = self.group.candidates().iter().map(warm).collect();
        Self { group: Group::new(self.group.policy(), candidates), ..self }
    }

    /// Returns the plan of the decision with this ticket.
    pub(crate) fn plan(&mut self, ticket: u64) -> Plan {
        let inquiry = self.inquiry();
        let moment = Moment { now: *NOW, loads: &self.loads, ticket, rng: &mut self.rng };
        plan(&inquiry, &self.group, &self.tried, moment)
    }

    /// Returns one of the requests.
    pub(crate) fn inquiry(&self) -> Inquiry {
        let Self { affinity, session, .. } = *self;
        Inquiry {
            affinity,
            session,
            model: self.prompt.has_model.then(|| ModelName::from("m")),
            prefix: self.prompt.blocks.clone(),
            prompt_bytes: self.prompt.bytes,
            output_tokens_max: self.prompt.output_tokens_max,
            output_tokens: None,
            whole_tokens: self.prompt.whole_tokens,
            answers: 1,
            ..inquiry()
        }
    }

    /// Returns the attempt of the decision with this ticket; fails the test if it is refused.
    pub(crate) fn attempt(&mut self, ticket: u64) -> Attempt {
        match self.plan(ticket) {
            Plan::Attempt(attempt) => attempt,
            Plan::Refuse(refusal) => panic!("refused: {refusal}"),
        }
    }

    /// Returns how often each replica is chosen in `decisions` consecutive decisions with unchanged
    /// loads.
    pub(crate) fn tally(&mut self, decisions: u64) -> Vec<u64> {
        let mut chosen = vec![0; self.loads.in_flight.len()];
        for ticket in 0..decisions {
            chosen[self.attempt(ticket).slot.index()] += 1;
        }
        chosen
    }

    /// Returns how often each replica is chosen in `decisions` consecutive decisions, each with its
    /// own key, while the last `concurrency` requests stay in flight.
    ///
    /// The signals stay unchanged, so they don't include these requests.
    pub(crate) fn serve(&mut self, decisions: u64, concurrency: usize) -> Vec<u64> {
        let mut chosen = vec![0; self.loads.in_flight.len()];
        let mut in_flight = VecDeque::new();
        for ticket in 0..decisions {
            self.affinity = Some(self.rng.u64(..));
            let slot = self.attempt(ticket).slot.index();
            chosen[slot] += 1;
            self.loads.in_flight[slot] += 1;
            self.loads.started[slot] += 1;
            in_flight.push_back(slot);
            if in_flight.len() > concurrency
                && let Some(ended) = in_flight.pop_front()
            {
                self.loads.in_flight[ended] -= 1;
            }
        }
        in_flight.into_iter().for_each(|slot| self.loads.in_flight[slot] -= 1);
        chosen
    }

    /// Returns true if the candidate may be chosen.
    pub(crate) fn is_usable(&self, candidate: &Candidate) -> bool {
        self.loads.in_flight(candidate.slot) < candidate.in_flight_max
            && !self.tried.contains(&candidate.slot)
    }

    /// Returns the usable candidates, in order.
    pub(crate) fn usable(&self) -> Vec<Candidate> {
        self.group.candidates().iter().filter(|c| self.is_usable(c)).copied().collect()
    }
}

/// Returns the identity of a replica whose name ends in `number`.
pub(crate) fn identity(number: u32) -> u64 {
    Candidate::identity_of(&ReplicaName::from(format!("replica-{number}")))
}

/// Returns a request with a second left, and no key.
pub(crate) fn inquiry() -> Inquiry {
    Inquiry {
        model: None,
        prefix: BlockHashes::default(),
        prompt_bytes: 0,
        output_tokens_max: None,
        output_tokens: None,
        whole_tokens: None,
        answers: 1,
        affinity: None,
        session: None,
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
        deadline: Deadline::after(*NOW, Duration::from_secs(1)),
        hop: 0,
        tenant: None,
        priority: 0,
        residency: Residency::default(),
        is_isolated: false,
    }
}

/// Any policy.
pub(crate) fn any_policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(Policy::ALL)
}

/// A reading of any trust.
fn any_reading(values: Range<f32>) -> impl Strategy<Value = Reading> {
    let trust = prop_oneof![Just(0.0), Just(1.0), 0.0..1.0_f32];
    (values, trust).prop_map(|(value, trust)| Reading { value, trust })
}

/// Any signals; now and then none.
pub(crate) fn any_signals() -> impl Strategy<Value = Signals> {
    let count = || any_reading(0.0..50.0);
    let latencies = (any_reading(0.0..1e4), any_reading(0.0..1e5));
    let counts = (count(), count(), count(), 0..10_u32);
    let shares = (any_reading(0.0..1.0), any_reading(0.0..1.0));
    let bucket = (-5.0..20.0_f32, 0..5_u64);
    let known = (latencies, counts, shares, bucket).prop_map(
        |(latencies, (queued, running, pending, in_flight_at_report), shares, bucket)| Signals {
            latency_ms: latencies.0,
            p99_ms: latencies.1,
            queued,
            running,
            kv_use: shares.0,
            gpu_use: shares.1,
            gpu_memory_use: Reading::UNKNOWN,
            pending,
            in_flight_at_report,
            bucket_tokens: bucket.0,
            started_at: bucket.1,
        },
    );
    prop_oneof![1 => Just(Signals::UNKNOWN), 4 => known]
}

/// Replica of [`any_world`].
#[derive(Debug)]
struct AnyReplica {
    weight: u32,
    ramp_permille: u16,
    in_flight: u32,
    in_flight_max: u32,
    was_tried: bool,
    signals: Signals,
}

fn any_replica() -> impl Strategy<Value = AnyReplica> {
    let ramp = prop_oneof![Just(RAMP_FULL), 1..=RAMP_FULL];
    let tried = prop::bool::weighted(0.2);
    (1..12_u32, ramp, 0..6_u32, 1..6_u32, tried, any_signals()).prop_map(
        |(weight, ramp_permille, in_flight, in_flight_max, was_tried, signals)| AnyReplica {
            weight,
            ramp_permille,
            in_flight,
            in_flight_max,
            was_tried,
            signals,
        },
    )
}

/// Up to 40 replicas, any part of them busy, tried or in slow start, with any signals, slots in any
/// order and with gaps; requests with or without a key, of no session or of any replica's.
pub(crate) fn any_world(policy: impl Strategy<Value = Policy>) -> impl Strategy<Value = World> {
    let replicas = prop::collection::vec(any_replica(), 0..40);
    let slots = Just((0..60).collect::<Vec<u32>>()).prop_shuffle();
    let session = prop::option::weighted(0.3, (0..60_u32).prop_map(identity));
    let chance = (any::<u64>(), any::<Option<u64>>(), session);
    let parts = (policy, replicas, slots, chance);
    parts.prop_map(|(policy, replicas, slots, (seed, affinity, session))| {
        let mut loads = Array::idle(60);
        let mut tried = Vec::new();
        let mut candidates = Vec::new();
        for (replica, slot) in replicas.into_iter().zip(slots.into_iter().map(ReplicaSlot)) {
            let identity = identity(slot.0);
            let AnyReplica { weight, ramp_permille, in_flight_max, .. } = replica;
            candidates.push(Candidate { slot, identity, weight, ramp_permille, in_flight_max });
            loads.in_flight[slot.index()] = replica.in_flight;
            loads.signals[slot.index()] = replica.signals;
            tried.extend(replica.was_tried.then_some(slot));
        }
        let group = Group::new(policy, candidates);
        let rng = fastrand::Rng::with_seed(seed);
        World { group, loads, tried, affinity, session, prompt: Prompt::default(), rng }
    })
}

/// Any speed, learned or not.
fn any_speed() -> impl Strategy<Value = Speed> {
    let times = (0.0..500.0_f32, 0.0..2.0_f32, 0.0..0.1_f32, 0.0..0.2_f32, 0.0..100.0_f32);
    let kv_tokens = prop_oneof![Just(0.0_f32), 500.0..50_000.0_f32];
    let rest = (0.0..20.0_f32, 1.0..8.0_f32, kv_tokens, 0.0..=1.0_f32);
    let learned = (times, rest).prop_map(|(times, rest)| Speed {
        floor_ms: times.0,
        prefill_ms: times.1,
        prefill_ms_per_thousand: times.2,
        prefill_per_running: times.3,
        decode_ms: times.4,
        step_ms: times.4,
        step_ms_per_thousand: times.1,
        is_decode_known: true,
        ends_per_s: rest.0,
        bytes_per_token: rest.1,
        kv_tokens: rest.2,
        trust: rest.3,
    });
    prop_oneof![1 => Just(Speed::UNKNOWN), 4 => learned]
}

/// Like [`any_world`], with requests that have a model and a prompt, any part of it cached anywhere,
/// and replicas of any speed.
pub(crate) fn any_prompted(policy: impl Strategy<Value = Policy>) -> impl Strategy<Value = World> {
    let slots = prop::collection::vec((any_speed(), 0..40_u32, 0..9_000_u32), 60);
    let prompt = (prop::collection::vec(any::<u64>(), 0..40), any::<Option<u32>>(), 0..4_000_u32);
    (any_world(policy), slots, prompt).prop_map(|(mut world, slots, prompt)| {
        for (index, (speed, cached_blocks, pending_tokens)) in slots.into_iter().enumerate() {
            world.loads.speeds[index] = speed;
            world.loads.cached_blocks[index] = cached_blocks.min(prompt.0.len() as u32);
            world.loads.pending_tokens[index] = pending_tokens;
        }
        let bytes = prompt.0.len() as u32 * 256 + prompt.2;
        let (blocks, output_tokens_max) = (BlockHashes::new(prompt.0), prompt.1);
        let prompt = Prompt { blocks, bytes, output_tokens_max, ..Prompt::default() };
        world.prompt = Prompt { has_model: true, ..prompt };
        world
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
