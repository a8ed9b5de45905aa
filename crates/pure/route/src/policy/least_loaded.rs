//! Least loaded: the smallest sum of several measures.

use spillway_types::{Inquiry, Signals};

use super::choose::{Choose, LATENCY_MS_MIN};
use crate::field::{Field, Usable};
use crate::mean::Mean;
use crate::reported::{ReportSums, Reports, in_system};
use crate::{Attempt, Candidate, LeastLoadedWeights, Moment, Reason, Tuning};

/// Least weight of the queue, as a part of the weights of the other terms.
///
/// Latency, GPU and cache use change only from one board to the next. Without a term that changes
/// at once, all requests between two boards would go to one candidate. If the queue's weight is
/// below this part, the requests of this process alone fill the gap.
const LIVE_PART: f64 = 0.25;

/// Weighted sum of terms, each made comparable by its mean in the group:
///
/// - queue: `(queued + running + 1) / weight`, relative to its mean among the candidates;
/// - latency: relative to the mean of the known ones;
/// - GPU and KV-cache use: shares from 0 to 1, which grow with the requests sent since the report.
///   They are not relative to a mean, since 4 % instead of 2 % matter less than 80 % instead of 40
///   %.
///
/// So with weights of 1, a queue or a latency of twice the mean counts as much as a GPU or a cache
/// that is full instead of empty.
#[derive(Debug)]
pub(super) struct LeastLoaded {
    weights: LeastLoadedWeights,
    /// Weight of `(in flight + 1) / weight`, relative to its mean, in addition to the other terms.
    live: f64,
}

impl LeastLoaded {
    pub(super) fn prepare(_candidates: &[Candidate], tuning: &Tuning) -> Self {
        let valid = |weight: f32| if weight.is_finite() { weight.max(0.0) } else { 0.0 };
        let LeastLoadedWeights { queue, gpu, kv, latency } = tuning.least_loaded;
        let [queue, gpu, kv, latency] = [queue, gpu, kv, latency].map(valid);
        let reported = f64::from(gpu) + f64::from(kv) + f64::from(latency);
        // If all weights are 0, the load in flight decides.
        let live = if queue + gpu + kv + latency > 0.0 {
            (reported * LIVE_PART - f64::from(queue)).max(0.0)
        } else {
            1.0
        };
        Self { weights: LeastLoadedWeights { queue, gpu, kv, latency }, live }
    }

    fn score(&self, usable: &Usable, signals: &Signals, usual: &LoadMeans) -> f64 {
        let LeastLoadedWeights { queue, gpu, kv, latency } = self.weights;
        let reported = in_system(signals);
        // At least the requests known to be in flight count, whatever was reported.
        let now = usual.reports.now(usable.known(), reported, signals).max(usable.known());
        // Use of GPU and cache is assumed to grow with the requests since the report.
        let growth = (now + 1.0) / (usual.reports.before(reported) + 1.0);
        let gpu_use = (signals.gpu_use.or(usual.gpu_use) * growth).min(1.0);
        let kv_use = (signals.kv_use.or(usual.kv_use) * growth).min(1.0);
        let latency_ms = signals.latency_ms.or(usual.latency_ms).max(LATENCY_MS_MIN);
        f64::from(queue) * (f64::from(now) + usable.next) / usable.weight as f64 / usual.queue_load
            + f64::from(gpu * gpu_use + kv * kv_use + latency * latency_ms / usual.latency_ms)
            + self.live * usable.load() / usual.own_load
    }
}

impl Choose for LeastLoaded {
    fn choose(
        &self,
        _inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        let usual = LoadMeans::of(field);
        let score = |usable: &Usable| self.score(usable, &field.signals(usable), &usual);
        field.least(moment, score).map(|usable| usable.because(Reason::Lightest))
    }
}

/// Means among the usable candidates.
#[derive(Debug)]
struct LoadMeans {
    reports: Reports,
    latency_ms: f32,
    gpu_use: f32,
    kv_use: f32,
    /// Requests at a candidate plus one, divided by the weight.
    queue_load: f64,
    /// Requests of this process at a candidate plus one, divided by the weight.
    own_load: f64,
}

impl LoadMeans {
    fn of(field: &Field<'_>) -> Self {
        let [mut latency_ms, mut gpu_use, mut kv_use] = [Mean::default(); 3];
        let mut reports = ReportSums::default();
        let [mut count, mut in_flight, mut known, mut weight] = [0.0; 4];
        for usable in field.all_usable() {
            let signals = field.signals(&usable);
            latency_ms.add(signals.latency_ms);
            gpu_use.add(signals.gpu_use);
            kv_use.add(signals.kv_use);
            reports.add(in_system(&signals), &signals);
            count += 1.0;
            in_flight += f64::from(usable.in_flight);
            known += f64::from(usable.known());
            weight += usable.weight as f64;
        }
        let reports = reports.finish();
        let queue = f64::from(reports.mean_now((known / count) as f32)).max(known / count);
        Self {
            reports,
            latency_ms: latency_ms.or(LATENCY_MS_MIN).max(LATENCY_MS_MIN),
            gpu_use: gpu_use.or(0.0),
            kv_use: kv_use.or(0.0),
            queue_load: (queue + 1.0) * count / weight,
            own_load: (in_flight + count) / weight,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spillway_types::Reading;

    use super::*;
    use crate::test_world::{World, any_world, assert_proportional};
    use crate::{Group, Policy};

    const NONE: LeastLoadedWeights =
        LeastLoadedWeights { queue: 0.0, gpu: 0.0, kv: 0.0, latency: 0.0 };

    /// Returns three idle replicas, equal in all reported values.
    fn equals(weights: LeastLoadedWeights) -> World {
        let mut world = World::idle(Policy::LeastLoaded, &[1; 3]);
        let tuning = Tuning { least_loaded: weights, ..Tuning::default() };
        let candidates = world.group.candidates().to_vec();
        world.group = Group::with_tuning(Policy::LeastLoaded, &tuning, candidates);
        for signals in &mut world.loads.signals {
            *signals = Signals {
                latency_ms: fresh(100.0),
                queued: fresh(2.0),
                running: fresh(4.0),
                kv_use: fresh(0.5),
                gpu_use: fresh(0.5),
                ..Signals::UNKNOWN
            };
        }
        world
    }

    fn fresh(value: f32) -> Reading {
        Reading { value, trust: 1.0 }
    }

    #[test]
    fn each_term_decides_where_all_others_are_equal_and_only_if_it_counts() {
        type Worsen = fn(&mut Signals);
        let worsen: [(_, Worsen); 5] = [
            (LeastLoadedWeights { queue: 1.0, ..NONE }, |signals| signals.queued = fresh(3.0)),
            (LeastLoadedWeights { queue: 1.0, ..NONE }, |signals| signals.running = fresh(5.0)),
            (LeastLoadedWeights { gpu: 1.0, ..NONE }, |signals| signals.gpu_use = fresh(0.6)),
            (LeastLoadedWeights { kv: 1.0, ..NONE }, |signals| signals.kv_use = fresh(0.6)),
            (LeastLoadedWeights { latency: 1.0, ..NONE }, |s| s.latency_ms = fresh(110.0)),
        ];
        for (weights, worsen) in worsen {
            for (weights, counts) in
                [(weights, true), (LeastLoadedWeights::default(), true), (NONE, false)]
            {
                let mut world = equals(weights);
                worsen(&mut world.loads.signals[1]);
                let expected = if counts { 0.0 } else { 1.0 };
                assert_proportional(&world.tally(900), &[1.0, expected, 1.0]);
            }
        }
    }

    #[test]
    fn weights_say_how_much_of_one_makes_up_for_another() {
        // A latency twice that of the other, against half of the cache: 0.67 means and 0.5.
        let mut world = equals(LeastLoadedWeights { latency: 1.0, kv: 1.0, ..NONE });
        world.loads.signals[0].latency_ms = fresh(200.0);
        world.loads.signals[1].kv_use = fresh(1.0);
        world.loads.signals[2].kv_use = fresh(1.0);
        assert_eq!(world.tally(10)[0], 0);
        let mut world = equals(LeastLoadedWeights { latency: 1.0, kv: 2.0, ..NONE });
        world.loads.signals[0].latency_ms = fresh(200.0);
        world.loads.signals[1].kv_use = fresh(1.0);
        world.loads.signals[2].kv_use = fresh(1.0);
        assert_eq!(world.tally(10)[0], 10);
    }

    #[test]
    fn a_weight_that_makes_no_sense_leaves_its_term_out() {
        for wrong in [f32::NAN, f32::INFINITY, -1.0] {
            let weights = LeastLoadedWeights { queue: 1.0, gpu: wrong, kv: wrong, latency: wrong };
            let mut world = equals(weights);
            world.loads.in_flight = vec![1, 0, 1];
            world.loads.signals[1].kv_use = fresh(1.0);
            assert_eq!(world.tally(10), [0, 10, 0], "{wrong}");
        }
    }

    #[test]
    fn no_herd_forms_between_two_reports_whatever_counts() {
        for weights in [
            LeastLoadedWeights { queue: 1.0, ..NONE },
            LeastLoadedWeights { gpu: 1.0, ..NONE },
            LeastLoadedWeights { kv: 1.0, ..NONE },
            LeastLoadedWeights { latency: 1.0, ..NONE },
            LeastLoadedWeights { gpu: f32::NAN, kv: -1.0, queue: 0.0, latency: f32::INFINITY },
            LeastLoadedWeights::default(),
        ] {
            let mut world = equals(weights);
            // A little better than the others in every value, all of which are known.
            world.loads.signals[2] = Signals {
                latency_ms: fresh(90.0),
                running: fresh(3.0),
                kv_use: fresh(0.4),
                gpu_use: fresh(0.4),
                ..world.loads.signals[2]
            };
            let served = world.serve(60, 60);
            assert!(served[2] >= 20, "{weights:?}: {served:?}");
            assert!(served[2] <= 30, "{weights:?}: {served:?}");
        }
    }

    #[test]
    fn a_report_that_knows_less_than_this_process_has_in_flight_is_not_believed() {
        let mut world = equals(LeastLoadedWeights { queue: 1.0, ..NONE });
        for signals in &mut world.loads.signals {
            (signals.queued, signals.running) = (fresh(0.0), fresh(0.0));
        }
        world.loads.in_flight = vec![3, 2, 3];
        for signals in &mut world.loads.signals {
            signals.in_flight_at_report = 9;
        }
        assert_eq!(world.tally(10), [0, 10, 0]);
    }

    proptest! {
        #[test]
        fn who_is_not_chosen_is_not_chosen_with_more_to_do_either(
            mut world in any_world(Just(Policy::LeastLoaded)),
            (gpu, kv, queued) in any::<(bool, bool, bool)>(),
            ticket: u64,
            seed: u64,
        ) {
            world.session = None;
            prop_assume!(world.usable().len() > 1);
            for signals in &mut world.loads.signals {
                // All values are known, so no mean replaces one.
                let Signals { latency_ms, gpu_use, kv_use, queued, running, .. } = signals;
                for reading in [latency_ms, gpu_use, kv_use, queued, running] {
                    reading.trust = 1.0;
                }
            }
            world.rng.seed(seed);
            let chosen = world.attempt(ticket).slot;
            let other = world.usable().into_iter().find(|c| c.slot != chosen).unwrap().slot;
            let signals = &mut world.loads.signals[other.index()];
            for (reading, rises) in [(&mut signals.gpu_use, gpu), (&mut signals.kv_use, kv)] {
                reading.value = if rises { reading.value.midpoint(1.0) } else { reading.value };
            }
            world.loads.in_flight[other.index()] += u32::from(queued);
            world.rng.seed(seed);
            prop_assert_ne!(world.attempt(ticket).slot, other);
        }
    }
}
