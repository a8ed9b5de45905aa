//! Router of the gateway: the driver of each request's journey, with the knowledge of one node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use spillway_journey::{
    Claim, Ending, Event, Journey, RequestSight, RetryTime, Room, Step, Unasked,
};
use spillway_prefix::{HotDelta, HotView};
use spillway_route::{Attempt, Candidate, Group, Guest, RetryBudget, SloProbes, admit_guest};
use spillway_types::{RAMP_FULL, RegionName, ReplicaSlot, Speed};

use super::config::{Knowledge, RouterConfig};
use super::facts::{Facts, own_region};
use super::memory::Memory;
use super::{
    Ask, CacheReport, Ended, Forwarded, NodePosition, Replied, Router, RouterVerdict, Sent,
    WorldView, Written, region_name,
};
use crate::text::mix;

/// Milliseconds from one board of signals to the next.
const BOARD_MS: u64 = 100;

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
    ticket: u64,
    /// Name of the region.
    pub(super) name: RegionName,
    /// Names of the other regions, in the order of the world.
    pub(super) other_names: Vec<RegionName>,
    /// Budget of retries; `None` before the first request.
    retries: Option<RetryBudget>,
    slo_probes: SloProbes,
    /// Journeys of the requests that have not ended here, by their numbers.
    journeys: BTreeMap<usize, Journey>,
    /// Ends of the journeys of requests that are still here, and the engines that died in them.
    endings: BTreeMap<usize, (Ending, u8)>,
    /// True if the region is being drained.
    pub(super) is_evacuated: bool,
}

impl SpillwayRouter {
    /// Returns a node without any knowledge, in a region with so many replicas.
    #[must_use]
    pub fn new(config: RouterConfig, position: &NodePosition) -> Self {
        let &NodePosition { region, replicas, seed: ticket, .. } = position;
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
            memory: Memory::new(&config, position),
            cached: vec![0; replicas],
            speeds: vec![config.speed; replicas],
            speed_errors: speed_errors(config.speed_error, position),
            speeds_until_ms: 0,
            ticket,
            name: region_name(region),
            other_names: Vec::new(),
            retries: None,
            slo_probes: SloProbes::default(),
            journeys: BTreeMap::new(),
            endings: BTreeMap::new(),
            is_evacuated: false,
        }
    }

    /// Takes out the journey of a request; a request that is new here begins one.
    fn take_journey(&mut self, ask: &Ask<'_>, sight: &WorldView<'_>) -> Journey {
        if let Some(journey) = self.journeys.remove(&ask.number) {
            return journey;
        }
        self.know(sight).on_request();
        let mut journey = Journey::new(sight.now, self.config.attempts_max);
        // Promises are made to clients, so a guest gets none here.
        let is_own = ask.inquiry.hop == 0;
        let fingerprint = ask.asker(Claim::Newcomer).fingerprint;
        if is_own && sight.queue.promised() > 0 && sight.queue.redeem(fingerprint, sight.now) {
            journey.redeem_promise();
        }
        journey
    }

    /// Returns the budget of retries. It is made with the first request, because time and the names
    /// of other regions are known only then.
    fn know(&mut self, sight: &WorldView<'_>) -> &RetryBudget {
        if self.other_names.len() != sight.others.len() {
            self.other_names = sight.others.iter().map(|other| region_name(other.region)).collect();
        }
        let config = self.config.retries;
        self.retries.get_or_insert_with(|| RetryBudget::new(config, sight.now))
    }

    /// Leaves the replicas out of the group that are away.
    fn regroup(&mut self, sight: &WorldView<'_>) {
        let is_here = |one: &Candidate| !sight.replicas[one.slot.index()].is_away;
        let here = self.candidates.iter().filter(|one| is_here(one));
        if here.clone().map(|one| one.slot).ne(self.group.candidates().iter().map(|one| one.slot)) {
            let here = here.copied().collect();
            self.group = Group::with_tuning(self.config.policy, &self.config.tuning, here);
        }
    }

    /// Looks up the cached blocks and speeds that the policies read.
    fn prepare(&mut self, ask: &Ask<'_>, sight: &WorldView<'_>) {
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

    /// Returns the next step that the world carries out. The router itself takes numbers, retries
    /// and probes, since no time passes for them.
    fn next(
        &mut self,
        journey: &mut Journey,
        ask: &Ask<'_>,
        sight: &WorldView<'_>,
        rng: &mut fastrand::Rng,
    ) -> Step {
        let now = sight.now;
        loop {
            let event = match journey.next(&Facts { router: self, ask, sight }, now, rng) {
                Step::TakeTicket => {
                    self.ticket = self.ticket.wrapping_add(1);
                    Event::Ticket(self.ticket)
                }
                Step::TakeRetry(_) => {
                    let budget = self.retries.as_ref();
                    Event::Retry { is_allowed: budget.is_some_and(|budget| budget.try_retry(now)) }
                }
                Step::TakeLateProbe => Event::LateProbe { is_allowed: self.slo_probes.pass(now) },
                step => return step,
            };
            journey.on(event, &Facts { router: self, ask, sight }, now);
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
            Step::StandIn
            | Step::Hedge(_)
            | Step::Listen
            | Step::End(_)
            // These are carried out at once.
            | Step::TakeTicket
            | Step::TakeRetry(_)
            | Step::TakeLateProbe => None,
        }
    }
}

impl Router for SpillwayRouter {
    fn decide(
        &mut self,
        ask: &Ask<'_>,
        sight: &WorldView<'_>,
        rng: &mut fastrand::Rng,
    ) -> RouterVerdict {
        let mut journey = self.take_journey(ask, sight);
        self.prepare(ask, sight);
        let step = self.next(&mut journey, ask, sight, rng);
        let facts = Facts { router: self, ask, sight };
        if let Step::End(ending) = step {
            let verdict = end(ending, &journey, &facts, rng);
            self.endings.insert(ask.number, (ending, journey.deaths()));
            return verdict;
        }
        let verdict = self.verdict(step, &facts, &journey);
        debug_assert!(verdict.is_some(), "{journey:?}");
        self.journeys.insert(ask.number, journey);
        // A release build of the simulator goes on without this request.
        verdict.unwrap_or(RouterVerdict::Shed(None))
    }

    fn handle(&mut self, ask: &Ask<'_>, sight: &WorldView<'_>, event: Event) {
        let Some(mut journey) = self.journeys.remove(&ask.number) else { return };
        let has_target = matches!(event, Event::Asked | Event::RegionReplied);
        // Waiting requests learn from it how soon slots come free.
        if has_target && (sight.queue.is_busy(sight.now) || journey.waits_since().is_some()) {
            sight.queue.began(&ask.asker(journey.claim()), sight.now);
        }
        journey.on(event, &Facts { router: self, ask, sight }, sight.now);
        self.journeys.insert(ask.number, journey);
    }

    fn resume(&mut self, ask: &Ask<'_>, sight: &WorldView<'_>, unasked: &Unasked, deaths: u8) {
        self.know(sight);
        // This is no further request: no promise is redeemed, and no retry is earned.
        let journey = Journey::new(sight.now, self.config.attempts_max);
        self.journeys.insert(ask.number, journey.without(unasked.clone()).after_deaths(deaths));
    }

    fn ending(&self, request: usize) -> Option<(Ending, u8)> {
        self.endings.get(&request).copied()
    }

    fn take_retry(&mut self, now: Instant) -> bool {
        self.retries.as_ref().is_some_and(|budget| budget.try_retry(now))
    }

    fn set_evacuated(&mut self, is_evacuated: bool) {
        self.is_evacuated = is_evacuated;
    }

    fn left(&mut self, request: usize) {
        self.journeys.remove(&request);
        self.endings.remove(&request);
    }

    fn admits(&mut self, ask: &Ask<'_>, sight: &WorldView<'_>) -> Guest {
        // No rate is needed: a guest is judged by how many wait here, not by how long.
        let waiting = sight.queue.before(&ask.asker(Claim::Newcomer), sight.now, |_| None);
        let room = Room {
            can_wait: sight.queue.limits().count_max > 0,
            is_guest: true,
            is_past_guesses: false,
            kept: None,
            first: None,
            adapter: None,
            tenant: None,
            half_blocks: 0,
        };
        admit_guest(&own_region(sight, room, waiting), &self.config.terms)
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
    let WorldView { now, queue, .. } = *facts.sight;
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
            let reply_tokens = facts.inquiry().output_tokens_max.unwrap_or(REPLY_TOKENS);
            let rate = |tokens| match refusal.is_by_objective() {
                true => journey.expected_rate(facts, tokens),
                false => journey.foreseen_rate(facts, tokens, reply_tokens),
            };
            let asker = facts.ask.asker(journey.claim());
            let promised = queue.shed(&asker, (refusal, rate), now, rng);
            Some(RetryTime::at_least(promised, not_before, now))
        }
    })
}

/// Tokens of a reply without a set length, as the gateway expects them.
const REPLY_TOKENS: u32 = 256;

/// Returns the factor by which a node is wrong about the time that each replica takes.
pub(super) fn speed_errors(error: f32, position: &NodePosition) -> Vec<f32> {
    let mut rng = fastrand::Rng::with_seed(mix(position.seed, 0x7370_6565));
    let widest = (1.0 + error).ln();
    (0..position.replicas).map(|_| (widest * (2.0 * rng.f32() - 1.0)).exp()).collect()
}

/// Returns the identity of a replica, equal on all nodes.
pub(super) fn identity(region: usize, replica: usize) -> u64 {
    mix(mix(17, region as u64), replica as u64)
}
