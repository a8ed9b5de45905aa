//! A sight of plain data, and stories told against it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use spillway_route::{
    Access, ByRegion, Candidate, Group, HoldTime, KeptShare, Loads, OwnRegion, Policy,
    RegionCandidate, RegionReport, SpillTerms, Waiting,
};
use spillway_types::{
    BlockHashes, Deadline, Inquiry, ModelLoad, ModelName, RAMP_FULL, RegionName, ReplicaSlot,
    Residency, Signals, Speed,
};

use crate::{
    Claim, Connection, Conversation, Ending, Event, Journey, QueueSight, RegionSight, ReplicaGroup,
    ReplicaSight, RequestSight, ResidencyDenial, Room, RoomLoads, RouteRules, SlotSight, Step,
    TenantKey, TenantSight,
};

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

impl RequestSight for TestSight {
    fn inquiry(&self) -> &Inquiry {
        &self.inquiry
    }
    fn route_rules(&self) -> RouteRules {
        self.rules
    }
    fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }
    fn is_repeatable(&self) -> bool {
        self.is_repeatable
    }
    fn client_patience(&self) -> Option<Duration> {
        self.patience
    }
    fn pinned(&self) -> Option<ReplicaSlot> {
        self.pinned
    }
    fn has_stand_in(&self) -> bool {
        self.stand_ins > 0
    }
    fn starts_with_stand_in(&self) -> bool {
        self.starts_with_stand_in
    }
    fn permission(&self) -> Result<(), ResidencyDenial> {
        self.permission
    }
}

#[derive(Debug)]
pub(crate) struct TestLoads<'a> {
    sight: &'a TestSight,
    room: Room,
    with_caches: bool,
}

impl Loads for TestLoads<'_> {
    fn in_flight(&self, slot: ReplicaSlot) -> u32 {
        self.sight.replica(slot).in_flight
    }
    fn limit(&self, slot: ReplicaSlot) -> u32 {
        self.room.slots(self.sight.replica(slot), slot)
    }
    fn cached_blocks_max(&self) -> u32 {
        if self.with_caches { self.sight.cached_longest } else { 0 }
    }
    fn speed(&self, slot: ReplicaSlot) -> Speed {
        self.sight.replica_speed(slot)
    }
}

impl SlotSight for TestReplica {
    fn rests_for(&self, tenant: u64) -> bool {
        tenant == RESTING && self.rests_until.is_some()
    }
    fn has_guessed_limit(&self) -> bool {
        self.is_guess
    }
    fn has_loaded(&self, _adapter: u64) -> bool {
        self.has_loaded
    }
    fn slots_for(&self, can_wait: bool) -> u32 {
        self.limit + u32::from(self.is_guess && !can_wait)
    }
    fn slots_for_guests(&self) -> u32 {
        u32::MAX
    }
}

impl RoomLoads for TestLoads<'_> {
    fn set_room(&mut self, room: Room) {
        self.room = room;
    }
}

impl ReplicaSight for TestSight {
    type Loads<'a> = TestLoads<'a>;

    fn group(&self) -> Option<ReplicaGroup<'_>> {
        let (group, next) = &self.groups;
        (!self.replicas.is_empty()).then_some(ReplicaGroup {
            group,
            next: next.as_ref(),
            is_out: self.is_out,
            busy_until: self.busy_until,
            healthy_permille: self.healthy_permille,
            adapter: self.adapter,
        })
    }
    fn loads(&self, room: Room, with_caches: bool) -> TestLoads<'_> {
        TestLoads { sight: self, room, with_caches }
    }
    fn signals(&self, _slot: ReplicaSlot) -> Signals {
        let mut signals = Signals::UNKNOWN;
        signals.queued.value = 0.0;
        signals.queued.trust = 1.0;
        signals
    }
    fn replica_speed(&self, _slot: ReplicaSlot) -> Speed {
        let floor_ms = self.first_token_ms.unwrap_or(20.0);
        let prefill_ms = self.prefill_ms;
        Speed { floor_ms, prefill_ms, is_decode_known: true, trust: 1.0, ..Speed::UNKNOWN }
    }
    fn hold_time(&self, _slot: ReplicaSlot) -> HoldTime {
        let hold = HoldTime::default();
        if self.is_fresh { hold } else { hold.with(1_000, 2_000.0) }
    }
    fn has_guessed_limit(&self, slot: ReplicaSlot) -> bool {
        self.replica(slot).is_guess
    }
}

impl TenantSight for TestSight {
    fn tenant(&self) -> Option<TenantKey> {
        self.tenant.map(|tenant| TenantKey { tenant, class: self.inquiry.priority })
    }
    fn left_by(&self, tenant: TenantKey) -> Option<KeptShare> {
        self.share.filter(|_| self.much.contains(&tenant.tenant))
    }
    fn kept_for(&self, tenant: TenantKey) -> Option<KeptShare> {
        self.share.filter(|_| !self.much.contains(&tenant.tenant))
    }
    fn rests_until(&self, slot: ReplicaSlot, tenant: u64) -> Option<Instant> {
        self.replica(slot).rests_until.filter(|_| tenant == RESTING)
    }
    fn tells_tenants_apart(&self) -> bool {
        self.share.is_some() || self.replicas.iter().any(|replica| replica.rests_until.is_some())
    }
    fn waiting_of(&self, is_counted: &dyn Fn(TenantKey) -> bool) -> Option<u32> {
        self.inquiry.model.as_ref()?;
        let key = |tenant: &u64| TenantKey { tenant: *tenant, class: self.inquiry.priority };
        let counted = self.queued.iter().filter(|tenant| is_counted(key(tenant)));
        u32::try_from(counted.count()).ok()
    }
}

impl QueueSight for TestSight {
    fn is_quiet(&self) -> bool {
        self.is_quiet
    }
    fn waiting(&self, _claim: Claim, certain_rate: &dyn Fn(f32) -> Option<f32>) -> Waiting {
        let expected = || certain_rate(1_000.0).map(|rate| (1_000.0 / rate) as u32);
        let wait_ms = self.wait_ms.or_else(expected);
        Waiting { ahead: self.ahead, wait_ms, all: self.ahead, has_room: self.has_room }
    }
}

impl RegionSight for TestSight {
    fn spill_terms(&self) -> &SpillTerms {
        &self.terms
    }
    fn regions_asked_max(&self) -> usize {
        self.asked_max
    }
    fn is_evacuated(&self) -> bool {
        self.is_evacuated
    }
    fn is_roomy(&self, _model: &ModelName) -> bool {
        self.is_roomy
    }
    fn is_alone(&self) -> bool {
        !self.regions.iter().any(|region| region.may_serve)
    }
    fn own(&self, _model: &ModelName, room: Room, waiting: Waiting) -> OwnRegion {
        let loads = self.loads(room, false);
        let slots = (0..self.best).map(|slot| ReplicaSlot(u32::try_from(slot).unwrap()));
        let free = |slot| loads.limit(slot).saturating_sub(loads.in_flight(slot));
        OwnRegion {
            replicas: u32::try_from(self.best).unwrap(),
            report: RegionReport {
                load: ModelLoad {
                    running: self.running,
                    replicas: self.reported_replicas,
                    ..ModelLoad::default()
                },
                ..RegionReport::default()
            },
            slots: Some(slots.map(free).sum()),
            waiting,
            guests: 0,
            nodes: 1,
            prefill_ms: 0.0,
            stall_ms: 0.0,
            price_ms: 0.0,
            weight_permille: 1_000,
            first_token_ms_max: None,
            rest_ms: 0.0,
            late_ms: None,
        }
    }
    fn others(
        &self,
        _model: &ModelName,
        access: &dyn Fn(&RegionName) -> Access,
    ) -> ByRegion<RegionCandidate> {
        let candidate = |region: &TestRegion| RegionCandidate {
            access: match region.may_serve && region.is_reachable {
                true => access(&region.name),
                false => Access::Unreachable,
            },
            report: RegionReport {
                load: ModelLoad {
                    capacity: Some(region.capacity),
                    running: region.running,
                    replicas: self.reported_replicas,
                    ..ModelLoad::default()
                },
                sent: region.sent,
                ..RegionReport::default()
            },
            rtt_ms: region.rtt_ms,
            prefill_ms: 0.0,
            stall_ms: 0.0,
            pending_ms: 0.0,
            rest_ms: 0.0,
            is_shared: false,
            price_ms: 0.0,
            weight_permille: 1_000,
            ramp_permille: 1_000,
            is_home: false,
            home_ms: 0.0,
        };
        self.regions.iter().map(candidate).collect()
    }
    fn region(&self, index: usize) -> &RegionName {
        &self.regions[index].name
    }
    fn may_serve(&self, region: &RegionName) -> bool {
        self.regions.iter().any(|known| known.name == *region && known.may_serve)
    }
    fn only_region(&self) -> Option<&RegionName> {
        self.only_region.as_ref()
    }
    fn session_region(&self) -> Option<&RegionName> {
        self.session_region.as_ref()
    }
    fn conversation(&self) -> Option<Conversation> {
        self.conversation.clone()
    }
    fn own_speed(&self, _model: &ModelName) -> Option<Speed> {
        Some(Speed { is_decode_known: true, trust: 1.0, ..Speed::UNKNOWN })
    }
    fn speed(&self, _index: usize, _model: &ModelName) -> Option<Speed> {
        Some(Speed { is_decode_known: true, trust: 1.0, ..Speed::UNKNOWN })
    }
    fn hot_blocks(&self) -> Option<ByRegion<u32>> {
        let is_any = self.regions.iter().any(|region| region.hot > 0);
        is_any.then(|| self.regions.iter().map(|region| region.hot).collect())
    }
    fn forwarded_blocks(&self) -> Option<ByRegion<u32>> {
        let is_any = self.regions.iter().any(|region| region.forwarded > 0);
        is_any.then(|| self.regions.iter().map(|region| region.forwarded).collect())
    }
    fn prefill_ms(&self, cached_blocks: u32, _speed: &Speed) -> f32 {
        (1_000.0 - 100.0 * cached_blocks as f32).max(0.0)
    }
}

/// A request, its surroundings, its driver's budgets, and the time.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) sight: TestSight,
    pub(crate) journey: Journey,
    pub(crate) now: Instant,
    pub(crate) rng: fastrand::Rng,
    /// Retries left in the budget.
    pub(crate) retries: u32,
    /// Requests whose turn it is to try a prediction.
    pub(crate) late_probes: u32,
    /// Number of the next request.
    pub(crate) ticket: u64,
}

impl Story {
    pub(crate) fn of(sight: TestSight) -> Self {
        let journey = Journey::new(*START, 3);
        let rng = fastrand::Rng::with_seed(1);
        Self { sight, journey, now: *START, rng, retries: 10, late_probes: 0, ticket: 0 }
    }

    /// Returns the next step for which time passes. Takes numbers, retries and probes before it, as
    /// a driver does.
    pub(crate) fn next(&mut self) -> Step {
        loop {
            let step = self.step();
            let Some(event) = self.take(&step) else { return step };
            self.tell(event);
        }
    }

    /// Carries out a step that only takes something.
    pub(crate) fn take(&mut self, step: &Step) -> Option<Event> {
        let take = |budget: &mut u32| {
            let left = *budget;
            *budget = left.saturating_sub(1);
            left > 0
        };
        match step {
            Step::TakeTicket => {
                self.ticket += 1;
                Some(Event::Ticket(self.ticket - 1))
            }
            Step::TakeRetry(_) => Some(Event::Retry { is_allowed: take(&mut self.retries) }),
            Step::TakeLateProbe => {
                Some(Event::LateProbe { is_allowed: take(&mut self.late_probes) })
            }
            _ => None,
        }
    }

    /// Returns the next step of the journey.
    pub(crate) fn step(&mut self) -> Step {
        let step = self.journey.next(&self.sight, self.now, &mut self.rng);
        let again = self.journey.next(&self.sight, self.now, &mut self.rng);
        assert_eq!(step, again, "a step holds until an event");
        step
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.journey.on(event, &self.sight, self.now);
    }
}

/// Checks a story step by step: each line has the step that the journey takes, and its result.
/// An attempt, `ask` or `forward`, is one line: the slot is taken without saying so, as are numbers,
/// retries and probes.
#[track_caller]
pub(crate) fn check(story: &mut Story, steps: &[(&str, Option<Event>)]) {
    for (number, (expected, event)) in steps.iter().enumerate() {
        let step = story.next();
        assert_eq!(short(&step), *expected, "step {number} of {steps:?}");
        let Some(event) = event else { continue };
        if matches!(step, Step::Ask { .. }) && *event != Event::NoSlot {
            story.tell(Event::Asked);
        }
        story.tell(*event);
    }
}

/// Checks a story as [`check`] does, with the steps that only take something.
#[track_caller]
pub(crate) fn check_each(story: &mut Story, steps: &[(&str, Option<Event>)]) {
    for (number, (expected, event)) in steps.iter().enumerate() {
        assert_eq!(short(&story.step()), *expected, "step {number} of {steps:?}");
        if let Some(event) = event {
            story.tell(*event);
        }
    }
}

/// A step in a few words.
pub(crate) fn short(step: &Step) -> String {
    match step {
        Step::Ask { attempt, connection: Connection::KeptOrNew } => {
            format!("ask {}", attempt.slot.index())
        }
        Step::Ask { attempt, connection: Connection::New } => {
            format!("ask {} anew", attempt.slot.index())
        }
        Step::TakeTicket => "take ticket".to_owned(),
        Step::TakeRetry(safety) => format!("take retry {safety:?}"),
        Step::TakeLateProbe => "take late probe".to_owned(),
        Step::Listen => "listen".to_owned(),
        Step::Hedge(attempt) => format!("hedge {}", attempt.slot.index()),
        Step::Forward { region, .. } => format!("forward {region}"),
        Step::Wait(_) => "wait".to_owned(),
        Step::Pause(pause) => format!("pause {}", pause.as_millis()),
        Step::StandIn => "stand in".to_owned(),
        Step::End(ending) => match ending {
            Ending::Shed { reason, .. } => format!("shed {}", reason.name()),
            Ending::SentAway { reason, .. } => format!("sent away {}", reason.name()),
            Ending::TooLate { reason, .. } => format!("too late {}", reason.name()),
            Ending::NoSlotInTime(reason) => format!("no slot {}", reason.name()),
            Ending::Refused(refused) => format!("refused {}", refused.refusal.name()),
            Ending::OutsideResidency(denial) => format!("outside residency {denial:?}"),
            Ending::Reply
            | Ending::HeldReply
            | Ending::LastFailure
            | Ending::ClientFault
            | Ending::EnginesDied
            | Ending::OnlyRegionGone => format!("end {ending:?}"),
        },
    }
}
