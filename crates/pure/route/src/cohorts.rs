//! Cohorts of a group: replicas in slow start, and established ones.

use crate::Candidate;

/// Two cohorts of a group: candidates with the largest ramp, and candidates in slow start behind
/// them.
///
/// A policy that compares loads can't give a replica a tenth of its share. With the load divided by
/// a tenth of the weight, the request to be placed counts ten at that replica: it gets nothing
/// until all others have ten requests each, and then every request. So chance decides first between
/// the cohorts, in proportion to their effective weights, and the policy decides within the cohort.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cohorts {
    ramp_max: u16,
    /// Chance of the cohort in slow start, 0 to 1.
    warming: f64,
}

/// The candidates that take part in a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cohort {
    /// All candidates of the group.
    All,
    /// Candidates with at least this ramp.
    Established(u16),
    /// Candidates with a smaller ramp, and a seed for [`Cohort::part`].
    Warming(u16, u64),
}

impl Cohorts {
    /// Returns the cohorts of a group; `None` if all candidates have the same ramp.
    pub(crate) fn of(candidates: &[Candidate]) -> Option<Self> {
        let ramp_max = candidates.iter().map(|candidate| candidate.ramp_permille).max()?;
        let weight = |is_counted: fn(u16, u16) -> bool| -> u64 {
            let counted = candidates.iter().filter(|one| is_counted(one.ramp_permille, ramp_max));
            counted.map(Candidate::effective_weight).sum()
        };
        let warming = weight(|ramp, ramp_max| ramp < ramp_max) as f64 / weight(|_, _| true) as f64;
        (warming > 0.0).then_some(Self { ramp_max, warming })
    }

    /// Draws the cohort that gets the next request.
    pub(crate) fn draw(&self, rng: &mut fastrand::Rng) -> Cohort {
        if rng.f64() < self.warming {
            Cohort::Warming(self.ramp_max, rng.u64(..))
        } else {
            self.established()
        }
    }

    /// Returns the cohort with the largest ramp.
    pub(crate) fn established(&self) -> Cohort {
        Cohort::Established(self.ramp_max)
    }
}

impl Cohort {
    /// Returns true if a candidate with this ramp belongs to the cohort.
    #[inline]
    pub(crate) fn has(self, ramp_permille: u16) -> bool {
        match self {
            Self::All => true,
            Self::Established(ramp_max) => ramp_permille >= ramp_max,
            Self::Warming(ramp_max, _) => ramp_permille < ramp_max,
        }
    }

    /// Returns the part of the request to be placed that counts at the candidate of this index,
    /// above 0 and at most 1.
    ///
    /// In slow start the part is drawn at random for each candidate. So a candidate that has just
    /// begun is the lightest now and then, instead of only after the others have many requests. One
    /// decision gets the same part each time it asks.
    #[inline]
    pub(crate) fn part(self, index: usize) -> f64 {
        match self {
            Self::All | Self::Established(_) => 1.0,
            Self::Warming(_, seed) => {
                1.0 - fastrand::Rng::with_seed(seed.wrapping_add(index as u64)).f64()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use spillway_types::{RAMP_FULL, ReplicaSlot};

    use super::*;

    fn candidates(ramps: &[(u32, u16)]) -> Vec<Candidate> {
        let with = |&(weight, ramp_permille): &(u32, u16)| Candidate {
            slot: ReplicaSlot(0),
            identity: 0,
            weight,
            ramp_permille,
            in_flight_max: u32::MAX,
        };
        ramps.iter().map(with).collect()
    }

    #[test]
    fn there_are_two_cohorts_only_where_ramps_differ() {
        for ramps in [&[][..], &[(1, 300)], &[(3, RAMP_FULL); 4], &[(1, 100), (2, 100)]] {
            assert!(Cohorts::of(&candidates(ramps)).is_none(), "{ramps:?}");
        }
        let cohorts = Cohorts::of(&candidates(&[(1, RAMP_FULL), (2, 500), (1, 250)])).unwrap();
        assert_eq!(cohorts.established(), Cohort::Established(RAMP_FULL));
        assert!((cohorts.warming - 1.25 / 2.25).abs() < 1e-9, "{cohorts:?}");
    }

    #[test]
    fn a_candidate_is_in_one_of_the_two() {
        for ramp in [1, 499, 500, RAMP_FULL] {
            let is_established = Cohort::Established(500).has(ramp);
            assert_eq!(is_established, ramp >= 500);
            assert_ne!(is_established, Cohort::Warming(500, 1).has(ramp));
            assert!(Cohort::All.has(ramp));
        }
    }

    #[test]
    fn parts_are_spread_evenly_and_stay_for_a_decision() {
        assert_eq!([Cohort::All.part(3), Cohort::Established(9).part(3)], [1.0, 1.0]);
        let mut tenths = [0_u64; 10];
        for seed in 0..2_000 {
            for index in 0..10 {
                let part = Cohort::Warming(9, seed).part(index);
                assert!(part > 0.0 && part <= 1.0);
                assert_eq!(part, Cohort::Warming(9, seed).part(index));
                tenths[((part * 10.0).ceil() as usize) - 1] += 1;
            }
        }
        crate::test_world::assert_proportional(&tenths, &[1.0; 10]);
    }
}
