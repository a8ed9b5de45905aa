//! Means among the candidates: the stand-in for unknown values of one.

use spillway_types::{Reading, Speed};

use super::cost::sound;
use crate::Snapshot;
use crate::field::{Field, Usable};
use crate::mean::Mean;
use crate::reported::{ReportSums, Reports, in_system};

/// Candidates that are sampled for the means: more change the means little, and cost as much as the
/// decision.
const SAMPLE: usize = 32;

/// Means over the usable candidates. Times are for a candidate of the mean weight.
#[derive(Debug)]
pub(super) struct CandidateMeans {
    pub(super) reports: Reports,
    pub(super) queued: f32,
    pub(super) running: f32,
    pub(super) kv_use: f32,
    pub(super) speed: Speed,
    /// Fewest tokens of context at any candidate.
    pub(super) context_least: f32,
    /// Milliseconds between two ends at a busy candidate; `None` if no rate is known.
    pub(super) turn_ms: Option<f32>,
    /// Mean of the weights that count now.
    weight: f32,
    /// Mean of the weights without slow start.
    base: f32,
    /// Largest ramp of the candidates.
    ramp_permille: u16,
}

impl CandidateMeans {
    /// Returns the means of up to [`SAMPLE`] candidates, evenly spread over the group; of all if
    /// none of the sampled ones is usable.
    pub(super) fn of(field: &Field<'_>) -> Self {
        let step = field.len().div_ceil(SAMPLE).max(1);
        let mut sums = Sums::default();
        sums.add_every(field, step);
        // No sampled candidate is usable, so all are looked at.
        if sums.count == 0.0 && step > 1 {
            sums.add_every(field, 1);
        }
        sums.finish()
    }

    /// Returns the weight of a request at a candidate, as a multiple of its weight at a candidate
    /// of the mean weight.
    #[inline]
    pub(super) fn burden(&self, usable: &Usable) -> f32 {
        let weight = usable.weight as f32;
        if weight == self.weight { 1.0 } else { self.weight / weight }
    }

    /// Returns the extra weight of the work that waits at a candidate in slow start, which should
    /// have less in proportion to its ramp. 0 for candidates with the largest ramp.
    #[inline]
    pub(super) fn lag(&self, usable: &Usable) -> f32 {
        if usable.ramp_permille >= self.ramp_permille {
            return 0.0;
        }
        f32::from(self.ramp_permille) / f32::from(usable.ramp_permille) - 1.0
    }

    /// Returns the assumed duration of everything at a candidate of this weight, as a multiple of
    /// that at a candidate of the mean weight.
    #[inline]
    pub(super) fn pace(&self, base_weight: u32) -> f32 {
        let weight = base_weight as f32;
        if weight == self.base { 1.0 } else { self.base / weight }
    }
}

#[derive(Debug, Default)]
struct Sums {
    reports: ReportSums,
    queued: Mean,
    running: Mean,
    kv_use: Mean,
    speed: SpeedSums,
    context_least: Option<f32>,
    turn: Mean,
    count: f64,
    weight: f64,
    base: f64,
    ramp_permille: u16,
}

/// Sums of the terms of speeds, each weighted by the trust in its speed. Times count by the weight
/// of their candidate.
#[derive(Debug, Default)]
struct SpeedSums {
    trust: f64,
    terms: [f64; TERMS],
}

/// Terms of a speed, in the order of [`SpeedSums::add`].
const TERMS: usize = 7;

impl SpeedSums {
    #[inline]
    fn add(&mut self, speed: &Speed, base: f32) {
        let trust = f64::from(speed.trust.clamp(0.0, 1.0));
        self.trust += trust;
        let terms = [
            reciprocal(sound(speed.floor_ms) * base),
            sound(speed.prefill_ms) * base,
            sound(speed.prefill_ms_per_thousand) * base,
            sound(speed.prefill_per_running),
            reciprocal(sound(speed.decode_ms)),
            sound(speed.step_ms),
            sound(speed.step_ms_per_thousand),
        ];
        for (sum, term) in self.terms.iter_mut().zip(terms) {
            *sum += f64::from(term) * trust;
        }
    }

    /// Returns the mean speed of a candidate of the weight `base`; unknown terms if no speed is
    /// known. Means of floor and decoding are harmonic: one slow replica hardly counts.
    fn finish(&self, base: f32) -> Speed {
        if self.trust <= 0.0 {
            return Speed::UNKNOWN;
        }
        let [floor, prefill, context, per_running, decode, step, price] =
            self.terms.map(|sum| (sum / self.trust) as f32);
        Speed {
            floor_ms: floor.recip() / base,
            prefill_ms: prefill / base,
            prefill_ms_per_thousand: context / base,
            prefill_per_running: per_running,
            decode_ms: decode.recip(),
            step_ms: step,
            step_ms_per_thousand: price,
            ..Speed::UNKNOWN
        }
    }
}

/// Returns the reciprocal of a time, of which less than a microsecond counts as one.
fn reciprocal(ms: f32) -> f32 {
    ms.max(1e-3).recip()
}

impl Sums {
    fn add_every(&mut self, field: &Field<'_>, step: usize) {
        for index in (0..field.len()).step_by(step) {
            if field.was_tried(index) {
                continue;
            }
            let snapshot = field.snapshot(index);
            if let Some(usable) = field.usable_by(index, &snapshot) {
                self.add(&usable, field.base_weight(index), &snapshot);
            }
        }
    }

    fn add(&mut self, usable: &Usable, base_weight: u32, snapshot: &Snapshot) {
        let Snapshot { signals, speed, .. } = snapshot;
        self.reports.add(in_system(signals), signals);
        self.queued.add(signals.queued);
        self.running.add(signals.running);
        self.kv_use.add(signals.kv_use);
        let base = base_weight as f32;
        self.speed.add(speed, base);
        let context = snapshot.context();
        self.context_least = Some(self.context_least.map_or(context, |least| least.min(context)));
        let ends_per_s = sound(speed.ends_per_s);
        if ends_per_s > 0.0 {
            self.turn.add(Reading { value: 1_000.0 / ends_per_s * base, trust: 1.0 });
        }
        self.count += 1.0;
        self.weight += usable.weight as f64;
        self.base += f64::from(base_weight);
        self.ramp_permille = self.ramp_permille.max(usable.ramp_permille);
    }

    fn finish(self) -> CandidateMeans {
        let count = self.count.max(1.0);
        let base = ((self.base / count) as f32).max(1.0);
        let turn = self.turn.or(0.0) / base;
        CandidateMeans {
            reports: self.reports.finish(),
            queued: self.queued.or(0.0),
            running: self.running.or(0.0),
            kv_use: self.kv_use.or(0.0),
            speed: self.speed.finish(base),
            context_least: self.context_least.unwrap_or(0.0),
            turn_ms: (turn > 0.0).then_some(turn),
            weight: ((self.weight / count) as f32).max(1.0),
            base,
            ramp_permille: self.ramp_permille,
        }
    }
}
