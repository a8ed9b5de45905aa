//! Router of the gateway: `plan` and `spill` of the route crate, with the knowledge of one node.

use spillway_route::{
    Access, Candidate, Group, Guest, Loads, Moment, OwnRegion, Plan, Policy, Refusal,
    RegionCandidate, SpillTerms, SpillVerdict, Tuning, admit_guest, spill,
};
use spillway_types::{RAMP_FULL, ReplicaSlot, Signals, Speed};

use std::sync::Arc;

use spillway_prefix::{HotDelta, HotView};

use super::memory::{BLOCK_TOKENS, Memory};
use super::{Ask, Ended, RegionSight, Replied, Router, Sent, Sight, Verdict};
use crate::text::mix;

/// Settings of a node's routing.
#[derive(Clone, Copy, Debug)]
pub struct RouterConfig {
    /// Policy that chooses a replica of the region.
    pub policy: Policy,
    /// Settings of the policy.
    pub tuning: Tuning,
    /// Weights between regions.
    pub terms: SpillTerms,
    /// True if requests may go to other regions.
    pub spills: bool,
    /// Source of the node's knowledge of caches.
    pub knowledge: Knowledge,
    /// True if requests sent since a report are added to it.
    pub corrects: bool,
    /// True if the node learns the speed of replicas from their replies.
    pub learns: bool,
    /// Speed that replicas are assumed to have before anything was learned.
    pub speed: Speed,
}

/// Source of a node's knowledge of caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// No knowledge.
    None,
    /// Requests sent by the node and its neighbours, corrected by the replies.
    Index,
    /// The caches themselves.
    Truth,
}

impl RouterConfig {
    /// Returns the settings of a policy with all defaults.
    #[must_use]
    pub fn new(policy: Policy, speed: Speed) -> Self {
        Self {
            policy,
            tuning: Tuning::default(),
            terms: SpillTerms::default(),
            spills: true,
            knowledge: Knowledge::Index,
            corrects: true,
            learns: true,
            speed,
        }
    }
}

/// Node of Spillway, as far as it routes.
#[derive(Debug)]
pub struct SpillwayRouter {
    config: RouterConfig,
    group: Group,
    memory: Memory,
    /// Leading blocks of the present request's prompt at each replica.
    cached: Vec<u32>,
    speeds: Vec<Speed>,
    speeds_until_ms: u64,
    ticket: u64,
}

impl SpillwayRouter {
    /// Returns a node without any knowledge, in a region with so many replicas.
    #[must_use]
    pub fn new(config: RouterConfig, region: usize, replicas: usize, ticket: u64) -> Self {
        let candidate = |slot: u32| Candidate {
            slot: ReplicaSlot(slot),
            identity: identity(region, slot as usize),
            weight: 1,
            ramp_permille: RAMP_FULL,
            in_flight_max: u32::MAX,
        };
        let slots = 0..u32::try_from(replicas).unwrap_or(u32::MAX);
        let candidates: Vec<Candidate> = slots.map(candidate).collect();
        Self {
            config,
            group: Group::with_tuning(config.policy, &config.tuning, candidates),
            memory: Memory::new(&config, region, replicas),
            cached: vec![0; replicas],
            speeds: vec![config.speed; replicas],
            speeds_until_ms: 0,
            ticket,
        }
    }

    fn own_region(&self, sight: &Sight<'_>, planned: &Plan) -> OwnRegion {
        let (mut replicas, mut places) = (sight.replicas.len(), None);
        let mut prefill_ms = 0.0;
        match planned {
            Plan::Attempt(attempt) => {
                if let Some(prediction) = attempt.prediction {
                    prefill_ms = prediction.wait_ms + prediction.prefill_ms;
                }
            }
            // All replicas are at their limits: the region has replicas, but no places.
            Plan::Refuse(Refusal::AllBusy) => places = Some(0),
            Plan::Refuse(_) => replicas = 0,
        }
        OwnRegion {
            replicas: u32::try_from(replicas).unwrap_or(u32::MAX),
            report: sight.own,
            places,
            waiting: sight.waiting,
            guests: sight.guests,
            nodes: sight.nodes,
            prefill_ms,
            price_ms: 0.0,
            weight_permille: RAMP_FULL,
            first_token_ms_max: None,
            late_ms: None,
        }
    }

    fn candidates(&self, ask: &Ask<'_>, sight: &Sight<'_>) -> Vec<RegionCandidate> {
        let candidate = |other: &RegionSight| RegionCandidate {
            access: match other.report {
                None => Access::Unreachable,
                Some(_) if ask.refused.contains(&other.region) => Access::Refused,
                Some(_) => Access::Ready,
            },
            report: other.report.unwrap_or_default(),
            rtt_ms: other.rtt_ms,
            prefill_ms: self.prefill_elsewhere_ms(ask, other.region),
            price_ms: 0.0,
            weight_permille: RAMP_FULL,
            ramp_permille: RAMP_FULL,
            is_current: false,
            is_home: false,
            home_ms: 0.0,
        };
        sight.others.iter().map(candidate).collect()
    }

    /// Returns the milliseconds to read the prompt in another region, if its caches hold what it
    /// reported and its replicas are as fast as those here.
    fn prefill_elsewhere_ms(&self, ask: &Ask<'_>, region: usize) -> f32 {
        let cached_tokens = self.memory.hot_blocks(region) * BLOCK_TOKENS;
        let prefill_ms = self.speeds.first().map_or(0.0, |speed| speed.prefill_ms);
        ask.prompt_tokens.saturating_sub(cached_tokens) as f32 * prefill_ms
    }

    /// Looks up the cached blocks and speeds that the policies read.
    fn prepare(&mut self, ask: &Ask<'_>, sight: &Sight<'_>) {
        self.memory.look_up(ask.inquiry.prefix.as_slice());
        for (replica, cached) in self.cached.iter_mut().enumerate() {
            *cached = match self.config.knowledge {
                Knowledge::Truth => sight.truth.cached_blocks(replica),
                Knowledge::Index => self.memory.blocks(replica),
                Knowledge::None => 0,
            };
        }
        // As in nodes: speeds change with every new board of signals, not with every request.
        if self.config.learns && sight.now_ms >= self.speeds_until_ms {
            self.speeds_until_ms = sight.now_ms + BOARD_MS;
            for (replica, speed) in self.speeds.iter_mut().enumerate() {
                *speed = self.memory.speed(replica, sight.now_ms);
            }
        }
    }
}

impl Router for SpillwayRouter {
    fn decide(&mut self, ask: &Ask<'_>, sight: &Sight<'_>, rng: &mut fastrand::Rng) -> Verdict {
        self.ticket = self.ticket.wrapping_add(1);
        self.prepare(ask, sight);
        let loads = Board { router: self, sight };
        let moment = Moment { now: sight.now, loads: &loads, ticket: self.ticket, rng };
        let planned = plan(ask, &self.group, moment);
        let served = match planned {
            Plan::Attempt(attempt) => Some(Verdict::Serve {
                replica: attempt.slot.index(),
                prediction: attempt.prediction,
            }),
            Plan::Refuse(_) => None,
        };
        let own = self.own_region(sight, &planned);
        // Without other regions the plan alone decides.
        if !self.config.spills || sight.others.is_empty() {
            return served.unwrap_or(match planned {
                Plan::Refuse(Refusal::AllBusy) => Verdict::Wait,
                _ => Verdict::Shed,
            });
        }
        let others = self.candidates(ask, sight);
        let mut moment = Moment { now: sight.now, loads: &loads, ticket: self.ticket, rng };
        let spilled = spill(ask.inquiry, &own, &others, &self.config.terms, &mut moment);
        // Without a limit, the replica's own queue is the place to wait.
        let queues_there = served.filter(|_| own.places != Some(0));
        match (spilled.verdict, queues_there, served) {
            (SpillVerdict::Own, _, Some(served)) => served,
            (SpillVerdict::Forward(ways), ..) if !ways.is_empty() => {
                Verdict::Forward(sight.others[ways[0]].region)
            }
            (_, Some(served), _) => served,
            (SpillVerdict::Shed { .. }, ..) => Verdict::Shed,
            _ => Verdict::Wait,
        }
    }

    fn admits(&mut self, _ask: &Ask<'_>, sight: &Sight<'_>) -> bool {
        let own = OwnRegion {
            replicas: u32::try_from(sight.replicas.len()).unwrap_or(u32::MAX),
            report: sight.own,
            places: None,
            waiting: sight.waiting,
            guests: sight.guests,
            nodes: sight.nodes,
            prefill_ms: 0.0,
            price_ms: 0.0,
            weight_permille: RAMP_FULL,
            first_token_ms_max: None,
            late_ms: None,
        };
        admit_guest(&own, &self.config.terms) == Guest::Welcome
    }

    fn sent(&mut self, sent: &Sent<'_>) {
        self.memory.sent(sent);
    }

    fn replied(&mut self, replied: &Replied<'_>) {
        self.memory.replied(replied);
    }

    fn ended(&mut self, ended: &Ended) {
        self.memory.ended(ended);
    }

    fn hot_delta(&mut self, now_ms: u64) -> Option<HotDelta> {
        Some(self.memory.hot_delta(now_ms))
    }

    fn hot_changed(&mut self, view: &Arc<HotView>) {
        self.memory.hot_changed(view);
    }
}

fn plan(ask: &Ask<'_>, group: &Group, moment: Moment<'_>) -> Plan {
    spillway_route::plan(ask.inquiry, group, &[], moment)
}

/// Milliseconds from one board of signals to the next.
const BOARD_MS: u64 = 100;

/// Returns the identity of a replica, equal on all nodes.
pub(super) fn identity(region: usize, replica: usize) -> u64 {
    mix(mix(17, region as u64), replica as u64)
}

/// Loads that the policies read.
#[derive(Debug)]
struct Board<'a> {
    router: &'a SpillwayRouter,
    sight: &'a Sight<'a>,
}

impl Loads for Board<'_> {
    fn in_flight(&self, slot: ReplicaSlot) -> u32 {
        self.sight.replicas[slot.index()].in_flight
    }

    fn elsewhere(&self, slot: ReplicaSlot) -> u32 {
        self.sight.replicas[slot.index()].elsewhere
    }

    fn started(&self, slot: ReplicaSlot) -> u64 {
        self.sight.replicas[slot.index()].started
    }

    fn signals(&self, slot: ReplicaSlot) -> Signals {
        let replica = &self.sight.replicas[slot.index()];
        if self.router.config.corrects {
            return replica.signals;
        }
        Signals {
            in_flight_at_report: replica.in_flight + replica.elsewhere,
            started_at: replica.started,
            ..replica.signals
        }
    }

    fn cached_blocks(&self, slot: ReplicaSlot) -> u32 {
        self.router.cached[slot.index()]
    }

    fn cached_blocks_max(&self) -> u32 {
        self.router.cached.iter().copied().max().unwrap_or(0)
    }

    fn pending_tokens(&self, slot: ReplicaSlot) -> u32 {
        let replica = &self.sight.replicas[slot.index()];
        let pending = replica.pending_tokens.saturating_add(replica.pending_elsewhere);
        if self.router.config.corrects { pending } else { 0 }
    }

    fn speed(&self, slot: ReplicaSlot) -> Speed {
        self.router.speeds[slot.index()]
    }
}
