//! Replicas that serve the same requests, with whatever their policy needs worked out in advance.

use crate::field::Field;
use crate::policy::{Choose, Policy};
use crate::{Attempt, Candidate, Moment, Reason, Tuning};
use spillway_types::{Inquiry, ReplicaSlot};

/// The candidates of one route and model, and the policy that chooses among them.
///
/// Immutable: a view builds it once and many threads read it. Building takes
/// `O(n + turns * log n)`, see [`Policy::WeightedRoundRobin`] for the turns.
#[derive(Debug)]
pub struct Group {
    policy: Policy,
    candidates: Vec<Candidate>,
    chooser: Box<dyn Choose>,
}

impl Group {
    /// Prepares `policy` for `candidates`, whose slots differ from each other.
    #[must_use]
    pub fn new(policy: Policy, candidates: Vec<Candidate>) -> Self {
        Self::with_tuning(policy, &Tuning::default(), candidates)
    }

    /// Like [`Group::new`], with settings for the policy.
    #[must_use]
    pub fn with_tuning(policy: Policy, _tuning: &Tuning, mut candidates: Vec<Candidate>) -> Self {
        for candidate in &mut candidates {
            candidate.weight = candidate.weight.max(1);
        }
        let chooser = policy.prepare(&candidates);
        Self { policy, candidates, chooser }
    }

    /// The policy it was prepared for.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The candidates in the order they were given, each with a weight of at least 1.
    #[must_use]
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The policy's choice among the usable candidates; `None` if none is usable.
    pub(crate) fn choose(
        &self,
        inquiry: &Inquiry,
        tried: &[ReplicaSlot],
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        let field = Field::new(&self.candidates, tried, moment.loads);
        if field.len() == 1 {
            return field.usable(0).map(|only| only.because(Reason::Only));
        }
        self.chooser.choose(inquiry, &field, moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_of_zero_counts_as_one() {
        let candidates = [0, 3].map(|weight| Candidate {
            slot: ReplicaSlot(weight),
            identity: 0,
            weight,
            ramp_permille: spillway_types::RAMP_FULL,
            in_flight_max: 1,
        });
        let group = Group::new(Policy::WeightedRoundRobin, candidates.to_vec());
        let weights: Vec<u32> = group.candidates().iter().map(|c| c.weight).collect();
        assert_eq!(weights, [1, 3]);
    }

    #[test]
    fn threads_can_share_a_group() {
        fn is_shared<T: Send + Sync>() {}
        is_shared::<Group>();
    }
}
