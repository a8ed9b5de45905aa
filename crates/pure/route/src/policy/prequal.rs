//! Prequal: of some drawn candidates with few requests, the one with the lowest latency.

use spillway_types::{Inquiry, Reading, Signals};

use super::choose::{Choose, LATENCY_MS_MIN};
use crate::field::{Field, Usable};
use crate::mean::Mean;
use crate::{Attempt, Candidate, Moment, PrequalTuning, Reason, Tuning};

/// Most candidates that one decision looks at.
const PROBES_MAX: usize = 64;

/// Policy that separates hot and cold candidates among a few drawn ones.
///
/// The paper's clients ask servers by probes and use each answer a few times. Here signals and
/// counts are at hand, so that every request has fresh answers of its own.
#[derive(Debug)]
pub(super) struct Prequal {
    tuning: PrequalTuning,
}

/// Drawn candidate with its load.
#[derive(Clone, Copy, Debug)]
struct Probe {
    usable: Usable,
    /// Requests in flight for its weight, with this one.
    load: f64,
}

impl Prequal {
    pub(super) fn prepare(_candidates: &[Candidate], tuning: &Tuning) -> Self {
        Self { tuning: tuning.prequal }
    }

    /// Draws some candidates: one from each part of the group, all parts shifted by a random
    /// offset, so that all are equally likely and none comes up twice. Empty if none of them is
    /// usable.
    fn probe<'p>(
        &self,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
        places: &'p mut [Option<Probe>; PROBES_MAX],
    ) -> &'p mut [Option<Probe>] {
        let count = usize::from(self.tuning.probes).clamp(1, PROBES_MAX).min(field.len());
        // A random offset makes all candidates equally likely.
        let offset = moment.rng.usize(..field.len());
        let mut found = 0;
        for part in 0..count {
            let begin = part * field.len() / count;
            let end = (part + 1) * field.len() / count;
            let index = (offset + moment.rng.usize(begin..end)) % field.len();
            if let Some(usable) = field.usable(index) {
                places[found] = Some(Probe { usable, load: usable.load() });
                found += 1;
            }
        }
        &mut places[..found]
    }

    /// Returns the load above which a candidate is hot.
    fn bound(&self, probes: &mut [Option<Probe>]) -> f64 {
        let load = |probe: &Option<Probe>| probe.map_or(f64::INFINITY, |probe| probe.load);
        probes.sort_unstable_by(|a, b| load(a).total_cmp(&load(b)));
        let permille = usize::from(self.tuning.cold_permille.min(1_000));
        // At least the lightest one is cold.
        let rank = (probes.len() * permille / 1_000).max(1);
        load(&probes[rank - 1])
    }
}

impl Choose for Prequal {
    fn choose(
        &self,
        _inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        if field.len() == 0 {
            return None;
        }
        let mut places = [None; PROBES_MAX];
        let probes = self.probe(field, moment, &mut places);
        if probes.is_empty() {
            return field.lightest(moment).map(|usable| usable.because(Reason::Substitute));
        }
        let bound = self.bound(probes);
        let usual = ProbeMeans::of(field, probes);
        let mut best: Option<(Usable, f32)> = None;
        let mut equals: u32 = 0;
        for Probe { usable, .. } in probes.iter().flatten().filter(|probe| probe.load <= bound) {
            let latency_ms = usual.latency_ms(usable, &field.signals(usable));
            let least = best.map_or(f32::INFINITY, |(_, least)| least);
            // In one pass, each of several equal candidates is chosen with equal probability.
            equals = if latency_ms == least { equals + 1 } else { 1 };
            if latency_ms < least || (latency_ms == least && moment.rng.u32(..equals) == 0) {
                best = Some((*usable, latency_ms));
            }
        }
        best.map(|(usable, _)| usable.because(Reason::Lightest))
    }
}

/// Means among the drawn candidates.
#[derive(Clone, Copy, Debug)]
struct ProbeMeans {
    latency_ms: f32,
    /// Requests of this process when the latency was measured.
    in_flight: f32,
}

impl ProbeMeans {
    fn of(field: &Field<'_>, probes: &[Option<Probe>]) -> Self {
        let (mut latency_ms, mut in_flight) = (Mean::default(), Mean::default());
        for Probe { usable, .. } in probes.iter().flatten() {
            let signals = field.signals(usable);
            latency_ms.add(signals.latency_ms);
            in_flight.add(in_flight_then(&signals));
        }
        Self { latency_ms: latency_ms.or(LATENCY_MS_MIN), in_flight: in_flight.or(0.0) }
    }

    /// Returns the latency that one more request would see. In the paper a server answers a probe
    /// with the latency of past requests that met the present number in flight; here the latency is
    /// taken to be in proportion to that number.
    fn latency_ms(&self, usable: &Usable, signals: &Signals) -> f32 {
        let before = in_flight_then(signals).or(self.in_flight) + 1.0;
        let growth = (usable.in_flight as f32 + 1.0) / before;
        signals.latency_ms.or(self.latency_ms).max(LATENCY_MS_MIN) * growth
    }
}

/// Returns the requests of this process when the latency was measured, with the trust of the
/// latency.
fn in_flight_then(signals: &Signals) -> Reading {
    Reading { value: signals.in_flight_at_report as f32, trust: signals.latency_ms.trust }
}

#[cfg(test)]
mod tests {
    use spillway_types::{Reading, Signals};

    use crate::Policy;
    use crate::test_world::{World, assert_proportional};

    fn with_latencies(latencies_ms: &[f32]) -> World {
        let mut world = World::idle(Policy::Prequal, &vec![1; latencies_ms.len()]);
        for (signals, &value) in world.loads.signals.iter_mut().zip(latencies_ms) {
            *signals = Signals { latency_ms: Reading { value, trust: 1.0 }, ..Signals::UNKNOWN };
        }
        world
    }

    #[test]
    fn the_fastest_of_those_with_few_requests_is_taken() {
        let mut world = with_latencies(&[10.0, 30.0, 20.0, 40.0]);
        assert_eq!(world.tally(100), [100, 0, 0, 0]);
        // The fastest one is hot now; latency decides among the others.
        world.loads.in_flight = vec![9, 0, 0, 0];
        assert_eq!(world.tally(100), [0, 0, 100, 0]);
    }

    #[test]
    fn latency_is_expected_to_grow_with_requests() {
        let mut world = with_latencies(&[10.0, 30.0, 70.0]);
        for signals in &mut world.loads.signals {
            signals.in_flight_at_report = 1;
        }
        // Four times as many requests as at the report turn 10 ms into 40.
        world.loads.in_flight = vec![7, 1, 8];
        assert_eq!(world.tally(100), [0, 100, 0]);
    }

    #[test]
    fn all_of_a_large_group_are_looked_at_alike() {
        let mut world = World::idle(Policy::Prequal, &[1; 50]);
        assert_proportional(&world.tally(50_000), &[1.0; 50]);
    }

    #[test]
    fn where_none_of_those_drawn_is_usable_any_other_serves() {
        let mut world = World::idle(Policy::Prequal, &[1; 500]);
        world.loads.in_flight.fill(u32::MAX);
        world.loads.in_flight[321] = 3;
        assert_eq!(world.attempt(0).slot.0, 321);
    }
}
