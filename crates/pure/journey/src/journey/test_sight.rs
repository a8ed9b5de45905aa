//! A sight of plain data.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use spillway_route::{Candidate, Group, KeptShare, Policy, SpillTerms};
use spillway_types::{
    BlockHashes, Deadline, Inquiry, ModelName, RAMP_FULL, RegionName, ReplicaSlot, Residency,
};

use crate::{Conversation, ResidencyDenial, RouteRules};

mod answers;
mod story;

pub(crate) use self::story::{Story, check, check_each, short};

/// The moment at which all stories begin.
pub(crate) static START: LazyLock<Instant> = LazyLock::new(|| {
    #[expect(clippy::disallowed_methods, reason = "a test needs some starting moment")]
    Instant::now()
});

/// Tenant that replicas of tests ask to stay away.
pub(crate) const RESTING: u64 = 7;

pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A replica of a test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestReplica {
    pub(crate) in_flight: u32,
    pub(crate) limit: u32,
    /// True if the limit is still being learned; requests past guesses may have one more.
    pub(crate) is_guess: bool,
    /// End of the replica's pause for the tenant [`RESTING`].
    pub(crate) rests_until: Option<Instant>,
    /// True if it has the adapter in memory.
    pub(crate) has_loaded: bool,
}

/// Another region of a test.
#[derive(Clone, Debug)]
pub(crate) struct TestRegion {
    pub(crate) name: RegionName,
    pub(crate) may_serve: bool,
    pub(crate) is_reachable: bool,
    /// Requests that it can run at a time, and those that run.
    pub(crate) capacity: f32,
    pub(crate) running: f32,
    pub(crate) rtt_ms: f32,
    /// Requests that this node sent there since its report.
    pub(crate) sent: u32,
    /// Leading blocks of the prompt in its caches, as all regions know.
    pub(crate) hot: u32,
    /// Leading blocks of the prompt that were forwarded there.
    pub(crate) forwarded: u32,
}

/// Everything that a decision may know, as data.
#[derive(Debug)]
pub(crate) struct TestSight {
    pub(crate) inquiry: Inquiry,
    pub(crate) rules: RouteRules,
    pub(crate) is_idempotent: bool,
    pub(crate) is_repeatable: bool,
    pub(crate) patience: Option<Duration>,
    pub(crate) pinned: Option<ReplicaSlot>,
    pub(crate) stand_ins: u32,
    pub(crate) starts_with_stand_in: bool,
    pub(crate) tenant: Option<u64>,
    /// Tenants that use much.
    pub(crate) much: Vec<u64>,
    /// Share that these tenants leave to all others.
    pub(crate) share: Option<KeptShare>,
    /// Tenants of the requests that wait.
    pub(crate) queued: Vec<u64>,
    pub(crate) permission: Result<(), ResidencyDenial>,
    pub(crate) replicas: Vec<TestReplica>,
    /// Number of replicas of the best standing; the others are the next best.
    pub(crate) best: usize,
    /// Time to the first token as predicted; `None` if the policy predicts nothing.
    pub(crate) first_token_ms: Option<f32>,
    /// Time to read a token at the chosen replica, where nothing is cached.
    pub(crate) prefill_ms: f32,
    /// Leading blocks of the prompt that some replica here has cached.
    pub(crate) cached_longest: u32,
    /// Requests that run here.
    pub(crate) running: f32,
    /// Replicas that each region reports, this one included.
    pub(crate) reported_replicas: u32,
    pub(crate) is_out: bool,
    pub(crate) busy_until: Option<Instant>,
    pub(crate) healthy_permille: u16,
    /// Identity of the model as an adapter.
    pub(crate) adapter: Option<u64>,
    /// True if no request has ended yet.
    pub(crate) is_fresh: bool,
    pub(crate) is_quiet: bool,
    pub(crate) ahead: u32,
    pub(crate) wait_ms: Option<u32>,
    pub(crate) has_room: bool,
    pub(crate) terms: SpillTerms,
    pub(crate) asked_max: usize,
    pub(crate) is_evacuated: bool,
    pub(crate) is_roomy: bool,
    pub(crate) regions: Vec<TestRegion>,
    pub(crate) only_region: Option<RegionName>,
    pub(crate) session_region: Option<RegionName>,
    pub(crate) conversation: Option<Conversation>,
    pub(crate) groups: (Group, Option<Group>),
}

pub(crate) fn request() -> Inquiry {
    Inquiry {
        model: Some(ModelName::from("m")),
        prefix: BlockHashes::default(),
        prompt_bytes: 4_000,
        output_tokens_max: None,
        output_tokens: None,
        whole_tokens: None,
        answers: 1,
        affinity: None,
        session: None,
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
        deadline: Deadline::after(*START, ms(60_000)),
        hop: 0,
        tenant: None,
        priority: 2,
        residency: Residency::default(),
        is_isolated: false,
    }
}

impl TestSight {
    /// A request in a region with so many free replicas, and no other region.
    pub(crate) fn new(replicas: usize) -> Self {
        let free = TestReplica {
            in_flight: 0,
            limit: 8,
            is_guess: false,
            rests_until: None,
            has_loaded: false,
        };
        let mut sight = Self {
            inquiry: request(),
            rules: RouteRules {
                reads_caches: false,
                queue_count_max: 100,
                wait_ms_max: 10_000,
                start_wait_ms: 0,
                slo: None,
                degraded_below_permille: 0,
            },
            is_idempotent: false,
            is_repeatable: false,
            patience: None,
            pinned: None,
            stand_ins: 0,
            starts_with_stand_in: false,
            tenant: None,
            much: Vec::new(),
            share: None,
            queued: Vec::new(),
            permission: Ok(()),
            replicas: vec![free; replicas],
            best: replicas,
            first_token_ms: None,
            prefill_ms: 0.0,
            cached_longest: 1,
            running: 0.0,
            reported_replicas: 0,
            is_out: false,
            busy_until: None,
            healthy_permille: 1_000,
            adapter: None,
            is_fresh: false,
            is_quiet: true,
            ahead: 0,
            wait_ms: None,
            has_room: true,
            terms: SpillTerms::default(),
            asked_max: 3,
            is_evacuated: false,
            is_roomy: true,
            regions: Vec::new(),
            only_region: None,
            session_region: None,
            conversation: None,
            groups: (Group::new(Policy::RoundRobin, Vec::new()), None),
        };
        sight.regroup();
        sight
    }

    /// The request with these other regions, each with room for ten requests.
    pub(crate) fn with_regions(mut self, names: &[&str]) -> Self {
        self.regions = names.iter().map(|name| TestRegion::free(name)).collect();
        self.is_roomy = false;
        self
    }

    /// Fills all replicas.
    pub(crate) fn full(mut self) -> Self {
        self.replicas.iter_mut().for_each(|replica| replica.in_flight = replica.limit);
        self.is_roomy = false;
        self
    }

    /// Makes the groups again, after `best` or the number of replicas has changed.
    pub(crate) fn regroup(&mut self) {
        let candidate = |slot: usize| Candidate {
            slot: ReplicaSlot(u32::try_from(slot).unwrap()),
            identity: slot as u64,
            weight: 1,
            ramp_permille: RAMP_FULL,
            in_flight_max: u32::MAX,
        };
        let group = |slots: std::ops::Range<usize>| {
            let policy = match self.first_token_ms {
                Some(_) => Policy::PredictedLatency,
                None => Policy::RoundRobin,
            };
            Group::new(policy, slots.map(candidate).collect())
        };
        let next = self.best < self.replicas.len();
        let next = next.then(|| group(self.best..self.replicas.len()));
        self.groups = (group(0..self.best), next);
    }

    fn replica(&self, slot: ReplicaSlot) -> &TestReplica {
        &self.replicas[slot.index()]
    }
}

impl TestRegion {
    pub(crate) fn free(name: &str) -> Self {
        Self {
            name: RegionName::from(name),
            may_serve: true,
            is_reachable: true,
            capacity: 10.0,
            running: 0.0,
            rtt_ms: 20.0,
            sent: 0,
            hot: 0,
            forwarded: 0,
        }
    }
}
