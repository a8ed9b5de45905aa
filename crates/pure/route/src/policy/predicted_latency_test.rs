//! Twin of the policy: the choice without any short cut, in random states.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, RangeInclusive};

use spillway_types::{BlockHashes, Inquiry, RAMP_FULL, Reading, ReplicaSlot, Signals, Speed};

use super::choose::Choose;
use super::predicted_latency::{ALL_MAX, CACHED_MAX, PredictedLatency, largest};
use super::sample::Sample;
use crate::cohorts::Cohort;
use crate::field::Field;
use crate::predict::{Fit, Weigher};
use crate::test_world::{Array, NOW, identity, inquiry};
use crate::{
    Attempt, Candidate, Goal, Loads, Moment, PredictedTuning, Push, Reason, Snapshot, Tuning,
};

const STATES: u64 = 3_000;

/// Loads that report directly which replicas have a part of the prompt cached.
#[derive(Debug)]
struct Told<'a>(&'a Array);

impl Loads for Told<'_> {
    fn in_flight(&self, slot: ReplicaSlot) -> u32 {
        self.0.in_flight(slot)
    }
    fn cached_blocks(&self, slot: ReplicaSlot) -> u32 {
        self.0.cached_blocks(slot)
    }
    fn cached_blocks_max(&self) -> u32 {
        self.0.cached_blocks_max()
    }
    fn visit_cached(
        &self,
        blocks: RangeInclusive<u32>,
        visit: &mut dyn FnMut(ReplicaSlot) -> ControlFlow<()>,
    ) -> bool {
        let has = |slot: &ReplicaSlot| blocks.contains(&self.0.cached_blocks(*slot));
        let slots = (0..self.0.in_flight.len() as u32).map(ReplicaSlot);
        let _ = slots.filter(has).try_for_each(visit);
        true
    }
    fn snapshot(&self, slot: ReplicaSlot) -> Snapshot {
        self.0.snapshot(slot)
    }
}

/// Input of one choice.
#[derive(Debug)]
struct State {
    candidates: Vec<Candidate>,
    loads: Array,
    tried: Vec<ReplicaSlot>,
    inquiry: Inquiry,
    tuning: PredictedTuning,
    cohort: Cohort,
}

impl State {
    /// Returns a random state; a third of them are large groups.
    fn random(rng: &mut fastrand::Rng) -> Self {
        let count = if rng.u8(..3) == 0 { rng.usize(250..600) } else { rng.usize(..40) };
        let mut loads = Array::idle(count + 3);
        // In each state other values are usual, so that each short cut is taken in some of them.
        let (busy, cached, known) = (rng.u32(1..30), rng.u32(..60), rng.f32());
        let holders = rng.f32() * rng.f32();
        for slot in 0..loads.in_flight.len() {
            loads.in_flight[slot] = rng.u32(..busy);
            loads.context_tokens[slot] = if rng.bool() { rng.u32(..200_000) } else { 0 };
            loads.pending_tokens[slot] = if rng.bool() { rng.u32(..20_000) } else { 0 };
            loads.cached_blocks[slot] = if rng.f32() < holders { rng.u32(..=cached) } else { 0 };
            loads.signals[slot] = any_signals(rng, known);
            loads.speeds[slot] = any_speed(rng, known);
        }
        if rng.u8(..4) == 0 {
            // Hardly any is free, so that a sample mostly has none.
            loads
                .in_flight
                .iter_mut()
                .for_each(|one| *one = if rng.u8(..99) > 0 { u32::MAX } else { 0 });
        }
        let mut tuning = any_tuning(rng);
        if rng.bool() {
            // Nearly equal replicas, whose cost is hardly more than its lower bound.
            let prefill_ms = |speed: &Speed| 0.1 + speed.prefill_ms * 0.02;
            let alike = |speed: &Speed| Speed {
                prefill_ms: prefill_ms(speed),
                prefill_ms_per_thousand: 0.0,
                prefill_per_running: 0.0,
                floor_ms: 20.0,
                ends_per_s: 50.0,
                trust: 1.0,
                ..Speed::UNKNOWN
            };
            loads.speeds.iter_mut().for_each(|speed| *speed = alike(speed));
            loads.pending_tokens.fill(0);
            tuning = PredictedTuning { crowding: 0.0, session_ms: 0.0, ..tuning };
        }
        if rng.bool() {
            // Many caches are equally deep.
            loads.cached_blocks.iter_mut().for_each(|blocks| *blocks = *blocks / 8 * 8);
        }
        let gap = rng.u32(..=count as u32);
        let slots = (0..count as u32).map(|at| at + u32::from(at >= gap));
        let mut candidates: Vec<_> = slots.map(|slot| any_candidate(rng, slot, busy)).collect();
        if rng.u8(..5) == 0 {
            rng.shuffle(&mut candidates);
        }
        let tried = (0..rng.usize(..3)).map(|_| ReplicaSlot(rng.u32(..=count as u32))).collect();
        let blocks = if rng.u8(..4) == 0 { 0 } else { rng.u64(..64) };
        let first = rng.u64(..);
        let session = rng.bool().then(|| identity(rng.u32(..=count as u32)));
        let inquiry = Inquiry {
            session,
            model: (rng.u8(..4) > 0).then(|| "m".into()),
            prefix: BlockHashes::new((0..blocks).map(|at| first.wrapping_add(at)).collect()),
            prompt_bytes: rng.u32(..20_000),
            output_tokens_max: rng.bool().then(|| rng.u32(..1_000)),
            output_tokens: None,
            whole_tokens: None,
            answers: 1,
            ..inquiry()
        };
        let cohort = [Cohort::All, Cohort::Established(RAMP_FULL)][rng.usize(..2)];
        Self { candidates, loads, tried, inquiry, tuning, cohort }
    }

    fn prepared(&self) -> PredictedLatency {
        let tuning = Tuning { predicted: self.tuning, ..Tuning::default() };
        PredictedLatency::prepare(&self.candidates, &tuning)
    }

    /// Returns the policy's choice, with the random numbers from `seed`.
    fn choice(&self, policy: &PredictedLatency, loads: &dyn Loads, seed: u64) -> Option<Attempt> {
        let field = Field::new(&self.candidates, &self.tried, loads).only(self.cohort);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut moment = Moment { now: *NOW, loads, ticket: 0, rng: &mut rng };
        policy.choose(&self.inquiry, &field, &mut moment)
    }

    /// Returns the choice among the selected candidates of which each is weighed in full.
    fn plain_choice(&self, seed: u64) -> Option<Attempt> {
        let field = Field::new(&self.candidates, &self.tried, &self.loads).only(self.cohort);
        let mut rng = fastrand::Rng::with_seed(seed);
        let weigher = Weigher::new(&self.tuning, &self.inquiry, &field, &mut rng);
        let all: Vec<usize> = (0..field.len()).collect();
        let selected =
            if field.len() > ALL_MAX { self.selected(&field, weigher.key()) } else { all.clone() };
        let slack = self.inquiry.prefix.as_slice().len() as u32 / 20;
        plain_best(&weigher, &field, &selected, slack)
            .or_else(|| plain_best(&weigher, &field, &all, slack))
            .or_else(|| largest(&weigher, &field))
    }

    /// Returns the candidates of a large group that are weighed, in the order of the policy.
    fn selected(&self, field: &Field<'_>, key: u64) -> Vec<usize> {
        let most = field.cached_blocks_max();
        let with = |is_it: &dyn Fn(u32) -> bool| -> Vec<usize> {
            let has = |&index: &usize| most > 0 && is_it(field.cached_blocks_at(index));
            (0..field.len()).filter(has).take(CACHED_MAX).collect()
        };
        let deepest = with(&|blocks| blocks == most);
        let deep = with(&|blocks| 2 * blocks > most && blocks < most);
        let session = (0..field.len()).find(|&at| Some(field.identity(at)) == self.inquiry.session);
        let sample = Sample::of(&self.candidates);
        deepest.into_iter().chain(deep).chain(session).chain(sample.draw(key)).collect()
    }
}

/// Returns the best of these candidates: one that looks full if it has half of the prompt cached
/// and costs less than all at which the request fits. Otherwise the one with the least contention
/// of those that have, within `slack` blocks, as much of the prompt as the cheapest, or as any if
/// the cheapest has that.
fn plain_best(
    weigher: &Weigher,
    field: &Field<'_>,
    indexes: &[usize],
    slack: u32,
) -> Option<Attempt> {
    let (mut fitting, mut cached) = (None::<(Attempt, f32)>, None::<(Attempt, f32)>);
    let mut fit = Vec::new();
    for &index in indexes {
        let Some(usable) = field.usable(index) else { continue };
        let weight = weigher.weigh(field, &usable, &field.snapshot(index));
        let cost = weight.cost.total_ms();
        let prediction = Some(weight.prediction);
        let is_cached = 2 * weight.prediction.cached_tokens >= weight.prediction.prompt_tokens;
        if weight.fit == Fit::Fits {
            let attempt = Attempt { prediction, ..usable.because(Reason::Soonest) };
            fit.push((field.cached_blocks_at(index), cost, weight.contended_ms(), attempt));
        }
        let place = match weight.fit {
            Fit::Fits => &mut fitting,
            Fit::Full if is_cached => &mut cached,
            Fit::Full | Fit::TooLarge => continue,
        };
        if place.is_none_or(|(_, least)| cost < least) {
            *place = Some((Attempt { prediction, ..usable.because(Reason::Soonest) }, cost));
        }
    }
    let least = fitting.map_or(f32::INFINITY, |(_, cost)| cost);
    if let Some((attempt, _)) = cached.filter(|&(_, cost)| cost < least) {
        return Some(attempt);
    }
    let blocks = fit.iter().find(|(_, cost, ..)| *cost == least)?.0;
    let most = field.cached_blocks_max();
    let as_any = blocks + slack >= most && most >= blocks;
    let enough = if as_any { most } else { blocks };
    let alike = fit.iter().filter(|(blocks, ..)| blocks + slack >= enough);
    alike.min_by(|a, b| a.2.total_cmp(&b.2)).map(|(.., attempt)| *attempt)
}

fn any_reading(rng: &mut fastrand::Rng, known: f32, most: f32) -> Reading {
    let trust = if rng.f32() < known { rng.f32() } else { 0.0 };
    Reading { value: rng.f32() * most, trust }
}

fn any_signals(rng: &mut fastrand::Rng, known: f32) -> Signals {
    let queued = if rng.bool() { 0.0 } else { 9.0 };
    Signals {
        queued: any_reading(rng, known, queued),
        running: any_reading(rng, known, 20.0),
        kv_use: any_reading(rng, known, 1.0),
        in_flight_at_report: rng.u32(..20),
        ..Signals::UNKNOWN
    }
}

fn any_speed(rng: &mut fastrand::Rng, known: f32) -> Speed {
    Speed {
        floor_ms: rng.f32() * 200.0,
        prefill_ms: rng.f32() * 0.3,
        prefill_ms_per_thousand: rng.f32() * 0.01,
        prefill_per_running: rng.f32() * 0.1,
        decode_ms: rng.f32() * 30.0,
        step_ms: rng.f32() * 30.0,
        step_ms_per_thousand: rng.f32(),
        is_decode_known: rng.bool(),
        ends_per_s: if rng.bool() { rng.f32() * 9.0 } else { 0.0 },
        bytes_per_token: 0.1 + rng.f32() * 5.0,
        kv_tokens: [0.0, 3_000.0, 200_000.0][rng.usize(..3)],
        trust: if rng.f32() < known { rng.f32() } else { 0.0 },
    }
}

fn any_candidate(rng: &mut fastrand::Rng, slot: u32, busy: u32) -> Candidate {
    Candidate {
        slot: ReplicaSlot(slot),
        identity: identity(slot),
        weight: if rng.bool() { 1 } else { rng.u32(1..5) },
        ramp_permille: if rng.u8(..5) > 0 { RAMP_FULL } else { rng.u16(1..RAMP_FULL) },
        in_flight_max: if rng.bool() { u32::MAX } else { busy / 2 },
    }
}

fn any_tuning(rng: &mut fastrand::Rng) -> PredictedTuning {
    PredictedTuning {
        block_bytes: rng.u32(1..512),
        goal: [Goal::FirstToken, Goal::Total][rng.usize(..2)],
        push: [Push::Fit, Push::Fit, Push::Always, Push::NoPending][rng.usize(..4)],
        kappa: rng.f32(),
        crowding: rng.f32() * 0.1,
        session_ms: rng.f32() * 200.0,
        ..PredictedTuning::default()
    }
}

#[test]
fn short_cuts_change_no_choice() {
    let mut rng = fastrand::Rng::with_seed(42);
    let mut chosen = 0;
    for number in 0..STATES {
        let (state, seed) = (State::random(&mut rng), rng.u64(..));
        let policy = state.prepared();
        let choice = state.choice(&policy, &state.loads, seed);
        assert_eq!(choice, state.plain_choice(seed), "state {number}: {state:?}");
        let told = state.choice(&policy, &Told(&state.loads), seed);
        assert_eq!(choice, told, "state {number}, caches told at once");
        chosen += u64::from(choice.is_some());
    }
    // Otherwise the states would prove little.
    assert!(chosen > STATES / 2, "{chosen} of {STATES}");
}

#[test]
fn each_candidate_of_a_large_group_is_drawn_equally_often() {
    let mut rng = fastrand::Rng::with_seed(1);
    let candidates: Vec<_> = (0..300).map(|slot| any_candidate(&mut rng, slot, 2)).collect();
    let sample = Sample::of(&candidates);
    let mut drawn = [0_u64; 300];
    for _ in 0..20_000 {
        sample.draw(rng.u64(..)).for_each(|index| drawn[index] += 1);
    }
    crate::test_world::assert_proportional(&drawn, &[1.0; 300]);
}

#[test]
fn a_candidate_more_leaves_most_of_the_samples_as_they_were() {
    let mut rng = fastrand::Rng::with_seed(1);
    let candidates: Vec<_> = (0..1_000).map(|slot| any_candidate(&mut rng, slot, 2)).collect();
    let (before, after) = (Sample::of(&candidates[1..]), Sample::of(&candidates));
    let (mut kept, mut all) = (0, 0);
    for _ in 0..1_000 {
        let key = rng.u64(..);
        let old: BTreeSet<usize> = before.draw(key).map(|index| index + 1).collect();
        let new: BTreeSet<usize> = after.draw(key).collect();
        (kept, all) = (kept + old.intersection(&new).count(), all + old.len());
    }
    assert!(kept * 10 > all * 9, "{kept} of {all}");
}
