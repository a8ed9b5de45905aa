//! Replicas of a group that take part, by their standing. If none is open, those that are left
//! serve (panic mode).

use spillway_types::Admission;

use crate::Candidate;

/// Candidates of a group, and the standing that was needed to find some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// Candidates that take part, in the given order.
    pub candidates: Vec<Candidate>,
    /// Standing of the candidates if none was open; `None` if open ones take part.
    pub last_resort: Option<Admission>,
    /// Candidates of the next best standing: for a request that was tried at all of `candidates`.
    pub next: Vec<Candidate>,
}

/// Keeps the candidates of the best standing there is: a replica that looks bad is better than
/// none. Replicas that are draining, or busy by their own report, are never kept.
#[must_use]
pub fn admitted(candidates: Vec<(Candidate, Admission)>) -> Admitted {
    let may_serve =
        |admission: &Admission| *admission == Admission::Open || admission.is_last_resort();
    let standings = || candidates.iter().map(|(_, admission)| *admission).filter(may_serve);
    let Some(best) = standings().min() else { return Admitted::default() };
    let next = standings().filter(|admission| *admission > best).min();
    let of = |standing: Admission| {
        let of = candidates.iter().filter(move |(_, admission)| *admission == standing);
        of.map(|(candidate, _)| *candidate).collect()
    };
    Admitted {
        candidates: of(best),
        last_resort: (best != Admission::Open).then_some(best),
        next: next.map(of).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spillway_types::{RAMP_FULL, ReplicaSlot};

    use super::*;

    /// Standings that may serve, from the best to the worst.
    const TIERS: [Admission; 5] = [
        Admission::Open,
        Admission::Standby,
        Admission::Ejected,
        Admission::Starting,
        Admission::Down,
    ];
    const NEVER: [Admission; 2] = [Admission::Busy, Admission::Draining];

    fn any_members() -> impl Strategy<Value = Vec<(Candidate, Admission)>> {
        let admission = prop::sample::select([&TIERS[..], &NEVER].concat());
        prop::collection::vec(admission, 0..12).prop_map(|admissions| {
            let candidate = |slot| Candidate {
                slot: ReplicaSlot(slot),
                identity: u64::from(slot),
                weight: 1,
                ramp_permille: RAMP_FULL,
                in_flight_max: 1,
            };
            (0..).map(candidate).zip(admissions).collect()
        })
    }

    proptest! {
        #[test]
        fn the_best_tier_takes_part_as_a_whole_and_alone(members in any_members()) {
            let is_there = |tier: &&Admission| members.iter().any(|(_, own)| own == *tier);
            let mut there = TIERS.iter().filter(is_there);
            let (best, second) = (there.next(), there.next());
            let Admitted { candidates, last_resort, next } = admitted(members.clone());
            let of = |tier: Option<&Admission>| -> Vec<Candidate> {
                let of_tier = members.iter().filter(|(_, admission)| Some(admission) == tier);
                of_tier.map(|(candidate, _)| *candidate).collect()
            };
            prop_assert_eq!(candidates, of(best));
            prop_assert_eq!(next, of(second));
            prop_assert_eq!(last_resort, best.copied().filter(|best| *best != Admission::Open));
        }

        #[test]
        fn busy_and_draining_ones_make_no_difference(members in any_members()) {
            let others = members.iter().filter(|(_, admission)| !NEVER.contains(admission));
            prop_assert_eq!(admitted(others.copied().collect()), admitted(members.clone()));
        }
    }
}
