//! Group of replicas that serve the same requests, with data that its policy prepared.

use spillway_types::{Inquiry, RAMP_FULL, ReplicaSlot};

use crate::cohorts::{Cohort, Cohorts};
use crate::fair_share::FairShare;
use crate::field::Field;
use crate::policy::{Choose, Policy};
use crate::{Attempt, Candidate, Moment, PredictedTuning, Reason, Tuning};

/// Candidates of one route and model, and the policy that chooses among them.
///
/// Immutable: a view builds it once and many threads read it. Building takes `O(n + turns * log
/// n)`; see [`Policy::WeightedRoundRobin`] for the turns.
#[derive(Debug)]
pub struct Group {
    policy: Policy,
    candidates: Vec<Candidate>,
    cohorts: Option<Cohorts>,
    chooser: Box<dyn Choose>,
    predicted: PredictedTuning,
}

impl Group {
    /// Prepares `policy` for `candidates`, whose slots must differ from each other.
    #[must_use]
    pub fn new(policy: Policy, candidates: Vec<Candidate>) -> Self {
        Self::with_tuning(policy, &Tuning::default(), candidates)
    }

    /// Prepares `policy` with these settings for `candidates`, as [`Group::new`] does with the
    /// defaults.
    #[must_use]
    pub fn with_tuning(policy: Policy, tuning: &Tuning, mut candidates: Vec<Candidate>) -> Self {
        for candidate in &mut candidates {
            // A policy that ignores weights runs on equal ones, and so needs no code of its own.
            candidate.weight = if policy.is_weighted() { candidate.weight.max(1) } else { 1 };
            candidate.ramp_permille = candidate.ramp_permille.clamp(1, RAMP_FULL);
        }
        let chooser = policy.prepare(&candidates, tuning);
        let cohorts = Cohorts::of(&candidates);
        Self { policy, candidates, cohorts, chooser, predicted: tuning.predicted }
    }

    /// Returns the policy of the group.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns the candidates in the given order. Ramps are at least 1; weights are at least 1, or
    /// equal to 1 where the policy ignores weights.
    #[must_use]
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// Returns the cost of reading a prompt to each request that runs at a replica, as a part of the
    /// reading time ([`PredictedTuning::kappa`]); 0 if that is no number.
    #[must_use]
    pub fn kappa(&self) -> f32 {
        let kappa = self.predicted.kappa;
        if kappa.is_finite() { kappa.max(0.0) } else { 0.0 }
    }

    /// Returns the settings of predictions.
    pub(crate) fn predicted(&self) -> &PredictedTuning {
        &self.predicted
    }

    /// Chooses among the usable candidates: the replica of the session if there is one and it has
    /// room, or else the policy's choice. `None` if no candidate is usable, or the policy finds no
    /// room at any.
    pub(crate) fn choose(
        &self,
        inquiry: &Inquiry,
        tried: &[ReplicaSlot],
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        let field = Field::new(&self.candidates, tried, moment.loads);
        // A single candidate needs no comparison.
        if field.len() == 1 {
            return self.choose_only(inquiry, &field, moment);
        }
        // Policies that weigh sessions compare the session's replica themselves.
        let session = inquiry.session.filter(|_| !self.policy.weighs_sessions());
        let kept = session.and_then(|identity| keep_session(identity, &field));
        kept.or_else(|| self.choose_by_cohort(inquiry, &field, moment))
            // The cohort whose turn it is may have no usable candidate: then any will do.
            .or_else(|| self.chooser.choose(inquiry, &field, moment))
    }

    /// Chooses the only candidate if it is usable and, with [`Policy::PredictedLatency`], the
    /// request fits.
    fn choose_only(
        &self,
        inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        // This policy also predicts, and lets a request wait that does not fit.
        let attempt = if self.policy == Policy::PredictedLatency {
            self.chooser.choose(inquiry, field, moment)
        } else {
            field.usable(0).map(|only| only.because(Reason::Only))
        };
        attempt.map(|attempt| Attempt { reason: Reason::Only, ..attempt })
    }

    /// Chooses within the cohort whose turn it is, if some candidates are in slow start and the
    /// policy compares loads. A candidate in slow start that exceeds its fair share is passed over.
    fn choose_by_cohort(
        &self,
        inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        let cohorts = self.cohorts.filter(|_| self.policy.compares_loads(inquiry))?;
        let drawn = cohorts.draw(moment.rng);
        // A candidate in slow start that has its share already leaves the request to an established
        // one.
        if let Cohort::Warming(..) = drawn
            && let Some(attempt) = self.chooser.choose(inquiry, &field.only(drawn), moment)
            && let Some(chosen) = field.usable_that(|candidate| candidate.slot == attempt.slot)
            && FairShare::of(field).has_room(&chosen)
        {
            return Some(Attempt { reason: Reason::WarmingUp, ..attempt });
        }
        self.chooser.choose(inquiry, &field.only(cohorts.established()), moment)
    }
}

/// Returns the replica of the session, unless it carries more than its fair share already.
fn keep_session(identity: u64, field: &Field<'_>) -> Option<Attempt> {
    let usable = field.usable_that(|candidate| candidate.identity == identity)?;
    let has_room = FairShare::of(field).has_room(&usable);
    has_room.then(|| usable.because(Reason::Session))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_world::{World, any_policy, any_world};

    /// Returns true if a session may stay on this replica, by the rule for bounded loads.
    fn has_room(world: &World, candidate: &Candidate) -> bool {
        let usable = world.usable();
        let weight: u64 = usable.iter().map(Candidate::effective_weight).sum();
        let in_flight = |c: &Candidate| u64::from(world.loads.in_flight[c.slot.index()]);
        let all = usable.iter().map(in_flight).sum::<u64>() + 1;
        in_flight(candidate) < (5 * all * candidate.effective_weight()).div_ceil(4 * weight)
    }

    proptest! {
        #[test]
        fn a_session_stays_unless_its_replica_is_unusable_or_has_more_than_its_share(
            mut world in any_world(any_policy()),
            ticket: u64,
        ) {
            prop_assume!(!world.group.policy().weighs_sessions());
            prop_assume!(world.group.candidates().len() > 1 && !world.usable().is_empty());
            let own = world.usable().into_iter().find(|c| Some(c.identity) == world.session);
            let stays = own.filter(|own| has_room(&world, own));
            let mut without = World { session: None, ..world.under(world.group.policy()) };
            let attempt = world.attempt(ticket);
            match stays {
                Some(own) => {
                    prop_assert_eq!((attempt.slot, attempt.reason), (own.slot, Reason::Session));
                }
                None => prop_assert_eq!(attempt, without.attempt(ticket)),
            }
        }
    }

    #[test]
    fn sessions_stay_on_a_replica_that_has_a_fifth_more_than_others() {
        for &policy in Policy::ALL.iter().filter(|policy| !policy.weighs_sessions()) {
            let mut world = World::idle(policy, &[1; 4]);
            world.session = Some(world.group.candidates()[2].identity);
            world.loads.in_flight = vec![9, 10, 11, 10];
            let kept = world.attempt(0);
            assert_eq!((kept.slot, kept.reason), (ReplicaSlot(2), Reason::Session), "{policy}");
            world.loads.in_flight[2] = 15;
            assert_ne!(world.attempt(0).reason, Reason::Session, "{policy}");
        }
    }

    #[test]
    fn a_session_leaves_a_replica_that_has_exactly_its_bound() {
        let mut world = World::idle(Policy::RoundRobin, &[1; 4]);
        world.session = Some(world.group.candidates()[0].identity);
        // The bound is 5, of 16 requests with the next one.
        world.loads.in_flight = vec![5, 5, 5, 0];
        assert_eq!(world.attempt(1).reason, Reason::Turn);
        world.loads.in_flight = vec![4, 5, 5, 1];
        assert_eq!(world.attempt(1).reason, Reason::Session);
    }

    #[test]
    fn a_ramp_out_of_range_is_taken_as_the_nearest_in_range() {
        let candidates = [0, 500, 9_000].map(|ramp_permille| Candidate {
            slot: ReplicaSlot(u32::from(ramp_permille)),
            identity: 0,
            weight: 1,
            ramp_permille,
            in_flight_max: 1,
        });
        let group = Group::new(Policy::Random, candidates.to_vec());
        let ramps: Vec<u16> = group.candidates().iter().map(|c| c.ramp_permille).collect();
        assert_eq!(ramps, [1, 500, RAMP_FULL]);
    }

    #[test]
    fn a_weight_of_zero_counts_as_one() {
        let candidates = [0, 3].map(|weight| Candidate {
            slot: ReplicaSlot(weight),
            identity: 0,
            weight,
            ramp_permille: RAMP_FULL,
            in_flight_max: 1,
        });
        let group = Group::new(Policy::WeightedRoundRobin, candidates.to_vec());
        let weights: Vec<u32> = group.candidates().iter().map(|c| c.weight).collect();
        assert_eq!(weights, [1, 3]);
    }

    #[test]
    fn weights_that_do_not_count_are_equal() {
        let weights = |policy| {
            let world = World::idle(policy, &[7, 2]);
            world.group.candidates().iter().map(|one| one.weight).collect::<Vec<_>>()
        };
        assert_eq!(weights(Policy::LeastConnections), [1, 1]);
        assert_eq!(weights(Policy::WeightedLeastConnections), [7, 2]);
    }

    #[test]
    fn threads_can_share_a_group() {
        fn is_shared<T: Send + Sync>() {}
        is_shared::<Group>();
    }
}
