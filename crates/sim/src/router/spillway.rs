//! Router of the gateway: the driver of each request's journey, with the knowledge of one node.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use spillway_journey::{Claim, Ending, Event, Journey, RetryTime, Room, Step};
use spillway_prefix::{HotDelta, HotView};
use spillway_route::{
    Attempt, Candidate, Group, Guest, Policy, RetryBudget, RetryBudgetConfig, SloProbes,
    SpillTerms, Tuning, admit_guest,
};
use spillway_types::{RAMP_FULL, RegionName, ReplicaSlot, Speed};

use super::facts::{Facts, own_region};
use super::memory::Memory;
use super::{
    Ask, CacheReport, Ended, Forwarded, Place, Replied, Router, RouterVerdict, Sent, Sight,
    Written, region_name,
};
use crate::text::mix;

/// Milliseconds from one board of signals to the next.
const BOARD_MS: u64 = 100;

/// Settings of a node's routing.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RouterConfig {
    /// Policy that chooses a replica of the region.
    pub policy: Policy,
    /// Settings of the policy.
    pub tuning: Tuning,
    /// Weights between regions.
    #[serde(rename = "spill")]
    pub terms: SpillTerms,
    /// True if requests may go to other regions.
    pub spills: bool,
    /// Regions that one request asks at most, as `spill.regions_max` of the gateway.
    pub regions_asked_max: usize,
    /// Attempts of one request at most, as `retry.attempts_max` of the gateway.
    pub attempts_max: u32,
    /// Budget of retries of all requests of a node.
    #[serde(skip)]
    pub retries: RetryBudgetConfig,
    /// Source of the node's knowledge of caches.
    pub knowledge: Knowledge,
    /// True if the node finds limits of the requests in flight at its replicas.
    pub limits: bool,
    /// Most requests in flight at a replica, as `connections_max` of one, within which a limit is
    /// found; `None` for the 1,024 of the gateway.
    pub connections_max: Option<u32>,
    /// Milliseconds to the first token beyond which a reply is of no use, as `slo_ms` of a route;
    /// `None` without such an objective.
    pub slo_ms: Option<u32>,
    /// True if requests sent since a report are added to it.
    pub corrects: bool,
    /// True if the node remembers what it forwarded to other regions.
    pub remembers_forwards: bool,
    /// True if the node learns the blocks that replies add to caches.
    pub learns_replies: bool,
    /// True if the node learns the speed of replicas from their replies.
    pub learns: bool,
    /// Error of the speeds that the node learns: each is off by a factor from `1 / (1 + e)` to `1 + e`,
    /// which stays the same for the run.
    pub speed_error: f32,
    /// Speed that replicas are assumed to have before anything was learned.
    pub speed: Speed,
}

/// Source of a node's knowledge of caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Knowledge {
    /// No knowledge.
    None,
    /// Requests sent by the node and its neighbours, corrected by the replies.
    Index,
    /// As `index`, with the KV events of the engines, which say what is stored and evicted.
    Events,
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
            regions_asked_max: 2,
            attempts_max: 3,
            retries: RetryBudgetConfig::default(),
            knowledge: Knowledge::Index,
            limits: true,
            connections_max: None,
            slo_ms: None,
            speed_error: 0.0,
            corrects: true,
            learns: true,
            remembers_forwards: true,
            learns_replies: true,
            speed,
        }
    }

    /// Returns the most requests in flight at a replica; `None` if no limit is found.
    fn in_flight_max(&self) -> Option<u32> {
        self.limits.then(|| self.connections_max.unwrap_or(IN_FLIGHT_MAX))
    }
}

/// Most requests in flight at a replica, by default in the gateway.
const IN_FLIGHT_MAX: u32 = 1_024;

/// Node of Spillway, as far as it routes: drives the journeys of the requests that are in it.
#[derive(Debug)]
pub struct SpillwayRouter {
    pub(super) config: RouterConfig,
    pub(super) group: Group,
    /// Candidates of the group while all replicas are there.
    candidates: Vec<Candidate>,
    pub(super) memory: Memory,
    /// Leading blocks of the present request's prompt at each replica.
    pub(super) cached: Vec<u32>,
    pub(super) speeds: Vec<Speed>,
    /// Factor by which the speed of each replica is wrong.
    speed_errors: Vec<f32>,
    speeds_until_ms: u64,
    pub(super) ticket: Cell<u64>,
    /// Name of the region.
    pub(super) name: RegionName,
    /// Names of the other regions, in the order of the world.
    pub(super) other_names: Vec<RegionName>,
    /// Budget of retries; `None` before the first request.
    pub(super) retries: Option<RetryBudget>,
    pub(super) slo_probes: SloProbes,
    /// Journeys of the requests that have not ended here, by their numbers.
    journeys: BTreeMap<usize, Journey>,
}

impl SpillwayRouter {
    /// Returns a node without any knowledge, in a region with so many replicas.
    #[must_use]
    pub fn new(config: RouterConfig, place: &Place) -> Self {
        let &Place { region, replicas, seed: ticket, .. } = place;
        let candidate = |slot: u32| Candidate {
            slot: ReplicaSlot(slot),
            identity: identity(region, slot as usize),
            weight: 1,
            ramp_permille: RAMP_FULL,
            in_flight_max: config.in_flight_max().unwrap_or(u32::MAX),
        };
        let slots = 0..u32::try_from(replicas).unwrap_or(u32::MAX);
        let candidates: Vec<Candidate> = slots.map(candidate).collect();
        Self {
            config,
            group: Group::with_tuning(config.policy, &config.tuning, candidates.clone()),
            candidates,
            memory: Memory::new(&config, place),
            cached: vec![0; replicas],
            speeds: vec![config.speed; replicas],
            speed_errors: speed_errors(config.speed_error, place),
            speeds_until_ms: 0,
            ticket: Cell::new(ticket),
            name: region_name(region),
            other_names: Vec::new(),
            retries: None,
            slo_probes: SloProbes::default(),
            journeys: BTreeMap::new(),
        }
    }

    /// Takes out the journey of a request; a request that is new here begins one.
    fn take_journey(&mut self, ask: &Ask<'_>, sight: &Sight<'_>) -> Journey {
        if let Some(journey) = self.journeys.remove(&ask.number) {
            return journey;
        }
        let config = self.config.retries;
        // Made with the first request, because time is known only then.
        self.retries.get_or_insert_with(|| RetryBudget::new(config, sight.now)).on_request();
        if self.other_names.len() != sight.others.len() {
            self.other_names = sight.others.iter().map(|other| region_name(other.region)).collect();
        }
        let mut journey = Journey::new(sight.now, self.config.attempts_max);
        // Promises are made to clients: a guest has none here.
        let is_own = ask.inquiry.hop == 0;
        let fingerprint = ask.asker(Claim::Newcomer).fingerprint;
        if is_own && sight.queue.promised() > 0 && sight.queue.redeem(fingerprint, sight.now) {
            journey.redeem_promise();
        }
        journey
    }

    /// Leaves the replicas out of the group that are away.
    fn regroup(&mut self, sight: &Sight<'_>) {
        let is_here = |one: &Candidate| !sight.replicas[one.slot.index()].is_away;
        let here = self.candidates.iter().filter(|one| is_here(one));
        if here.clone().map(|one| one.slot).ne(self.group.candidates().iter().map(|one| one.slot)) {
            let here = here.copied().collect();
            self.group = Group::with_tuning(self.config.policy, &self.config.tuning, here);
        }
    }

    /// Looks up the cached blocks and speeds that the policies read.
    fn prepare(&mut self, ask: &Ask<'_>, sight: &Sight<'_>) {
        self.regroup(sight);
        self.memory.look_up(ask.inquiry.prefix.as_slice());
        for (replica, cached) in self.cached.iter_mut().enumerate() {
            *cached = match self.config.knowledge {
                Knowledge::Truth => sight.truth.cached_blocks(replica),
                Knowledge::Index | Knowledge::Events => self.memory.blocks(replica),
                Knowledge::None => 0,
            };
        }
        // As in nodes: speeds change with every new board of signals, not with every request.
        if self.config.learns && sight.now_ms >= self.speeds_until_ms {
            self.speeds_until_ms = sight.now_ms + BOARD_MS;
            for (replica, speed) in self.speeds.iter_mut().enumerate() {
                *speed = self.memory.speed(replica, sight.now_ms);
                let wrong = self.speed_errors[replica];
                speed.floor_ms *= wrong;
                speed.prefill_ms *= wrong;
                speed.decode_ms *= wrong;
            }
        }
    }

    /// Returns the verdict that carries out a step.
    fn verdict(&self, step: Step, facts: &Facts<'_>, journey: &Journey) -> Option<RouterVerdict> {
        match step {
            Step::Ask { attempt: Attempt { slot, prediction, .. }, .. } => {
                Some(RouterVerdict::Serve { replica: slot.index(), prediction })
            }
            Step::Forward { region, .. } => {
                let index = self.other_names.iter().position(|name| *name == region)?;
                Some(RouterVerdict::Forward(facts.sight.others[index].region))
            }
            Step::Wait(terms) => Some(RouterVerdict::Wait { terms, claim: journey.claim() }),
            Step::Pause(pause) => Some(RouterVerdict::Pause(pause)),
            // One model is served, silence is never reported, and verdicts about a request that a
            // replica works on are not asked for.
            Step::StandIn | Step::Hedge(_) | Step::Listen | Step::End(_) => None,
        }
    }
}

impl Router for SpillwayRouter {
    fn decide(
        &mut self,
        ask: &Ask<'_>,
        sight: &Sight<'_>,
        rng: &mut fastrand::Rng,
    ) -> RouterVerdict {
        let mut journey = self.take_journey(ask, sight);
        self.prepare(ask, sight);
        let facts = Facts { router: self, ask, sight };
        let step = journey.next(&facts, sight.now, rng);
        if let Step::End(ending) = step {
            return end(ending, &journey, &facts, rng);
        }
        let verdict = self.verdict(step, &facts, &journey);
        debug_assert!(verdict.is_some(), "{journey:?}");
        self.journeys.insert(ask.number, journey);
        // A release build of the simulator goes on without this request.
        verdict.unwrap_or(RouterVerdict::Shed(None))
    }

    fn handle(&mut self, ask: &Ask<'_>, sight: &Sight<'_>, event: Event) {
        let Some(mut journey) = self.journeys.remove(&ask.number) else { return };
        let has_place = matches!(event, Event::Asked | Event::RegionReplied);
        // Waiting requests learn from it how soon places come free.
        if has_place && (sight.queue.is_busy(sight.now) || journey.waits_since().is_some()) {
            sight.queue.began(&ask.asker(journey.claim()), sight.now);
        }
        let _retry = journey.on(event, &Facts { router: self, ask, sight }, sight.now);
        self.journeys.insert(ask.number, journey);
    }

    fn left(&mut self, request: usize) {
        self.journeys.remove(&request);
    }

    fn admits(&mut self, ask: &Ask<'_>, sight: &Sight<'_>) -> bool {
        // No rate is needed: a guest is judged by how many wait here, not by how long.
        let waiting = sight.queue.before(&ask.asker(Claim::Newcomer), sight.now, |_| None);
        let room = Room {
            can_wait: sight.queue.limits().count_max > 0,
            is_past_guesses: false,
            kept: None,
            first: None,
            tenant: None,
            half_blocks: 0,
        };
        admit_guest(&own_region(sight, room, waiting), &self.config.terms) == Guest::Welcome
    }

    fn in_flight_max(&self) -> Option<u32> {
        self.config.in_flight_max()
    }

    fn sent(&mut self, sent: &Sent<'_>) {
        self.memory.sent(sent);
    }

    fn replied(&mut self, replied: &Replied<'_>) {
        self.memory.replied(replied);
    }

    fn written(&mut self, written: &Written<'_>) {
        self.memory.written(written);
    }

    fn follows_caches(&self) -> bool {
        self.config.knowledge == Knowledge::Events
    }

    fn cache_told(&mut self, report: &CacheReport<'_>) {
        self.memory.cache_told(report);
    }

    fn forwarded(&mut self, forwarded: &Forwarded<'_>) {
        self.memory.forwarded(forwarded);
    }

    fn ended(&mut self, ended: &Ended<'_>) {
        self.memory.ended(ended);
    }

    fn hot_delta(&mut self, now_ms: u64) -> Option<HotDelta> {
        Some(self.memory.hot_delta(now_ms))
    }

    fn hot_changed(&mut self, view: &Arc<HotView>) {
        self.memory.hot_changed(view);
    }
}

/// Returns the answer to the client at the end of a journey.
fn end(
    ending: Ending,
    journey: &Journey,
    facts: &Facts<'_>,
    rng: &mut fastrand::Rng,
) -> RouterVerdict {
    let Sight { now, queue, .. } = *facts.sight;
    if ending.is_of_replica() {
        return RouterVerdict::Fail;
    }
    RouterVerdict::Shed(match ending.retry_time(now) {
        RetryTime::Untold => None,
        RetryTime::After(after) => Some(after),
        RetryTime::Spread { not_before } => {
            Some(RetryTime::at_least(queue.turn_away(now, rng), not_before, now))
        }
        RetryTime::Promised { refusal, not_before } => {
            let rate = |tokens| journey.expected_rate(facts, tokens);
            let asker = facts.ask.asker(journey.claim());
            let promised = queue.shed(&asker, (refusal, rate), now, rng);
            Some(RetryTime::at_least(promised, not_before, now))
        }
    })
}

/// Returns the factor by which a node is wrong about the time that each replica takes.
pub(super) fn speed_errors(error: f32, place: &Place) -> Vec<f32> {
    let mut rng = fastrand::Rng::with_seed(mix(place.seed, 0x7370_6565));
    let widest = (1.0 + error).ln();
    (0..place.replicas).map(|_| (widest * (2.0 * rng.f32() - 1.0)).exp()).collect()
}

/// Returns the identity of a replica, equal on all nodes.
pub(super) fn identity(region: usize, replica: usize) -> u64 {
    mix(mix(17, region as u64), replica as u64)
}
