//! Decision about one attempt of a request.

use std::error::Error;
use std::fmt;

use serde::Serialize;
use spillway_types::{Inquiry, ReplicaSlot, continued, reasons};

use crate::{Attempt, Group, Moment};

/// Decides where the next attempt of a request goes.
///
/// Call it again after a failed attempt, with the failed replica added to `tried` and a new ticket.
/// A replica at its limit or in `tried` is never chosen. A request of a session goes to the
/// session's replica, as long as that replica has no more than its fair share of the requests in
/// flight.
///
/// Allocates nothing. Without a session it costs `O(1)` for [`Random`], [`RoundRobin`],
/// [`WeightedRoundRobin`] and [`PowerOfTwo`], unless almost every candidate is unusable. All other
/// policies look at every candidate, `O(n)`: once for the connection counts and the unbounded hash,
/// twice for the bounded hash and for policies that read signals, since the mean has to be known
/// before one candidate can be compared with it. A session costs one pass, and the policy's if it
/// moves. Of more than 256 candidates [`PredictedLatency`] looks at some only, as many however large
/// the group is, unless the request fits at none of these.
///
/// [`Random`]: crate::Policy::Random
/// [`RoundRobin`]: crate::Policy::RoundRobin
/// [`WeightedRoundRobin`]: crate::Policy::WeightedRoundRobin
/// [`PowerOfTwo`]: crate::Policy::PowerOfTwo
/// [`PredictedLatency`]: crate::Policy::PredictedLatency
#[must_use]
pub fn plan(
    inquiry: &Inquiry,
    group: &Group,
    tried: &[ReplicaSlot],
    mut moment: Moment<'_>,
) -> Plan {
    // First: a reply that no client waits for would cost another request's slot.
    if inquiry.deadline.has_passed(moment.now) {
        return Plan::Refuse(PlanError::DeadlinePassed);
    }
    match group.choose(inquiry, tried, &mut moment) {
        Some(attempt) => Plan::Attempt(attempt),
        None => Plan::Refuse(why_nobody(group, tried)),
    }
}

/// Decision about a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Plan {
    /// Send the request to a replica.
    Attempt(Attempt),
    /// Answer that the request can't be served.
    Refuse(PlanError),
}

reasons! {
    /// Reason why no replica was chosen, for the client, logs and metrics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum PlanError {
        /// No replica serves this request.
        NoReplica = "no_replica";
        // One may be free a moment later.
        /// All replicas are at their limit of concurrent requests.
        AllBusy = "all_busy";
        // [`plan`] never returns this, since it does not know those replicas.
        /// All replicas are overloaded and asked for a pause.
        AllResting = "all_resting";
        /// All replicas were tried.
        AllTried = "all_tried";
        /// The deadline has passed.
        DeadlinePassed = "deadline_passed";
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&continued(self.text()))
    }
}

impl Error for PlanError {}

fn why_nobody(group: &Group, tried: &[ReplicaSlot]) -> PlanError {
    if group.candidates().is_empty() {
        PlanError::NoReplica
    } else if group.candidates().iter().all(|candidate| tried.contains(&candidate.slot)) {
        PlanError::AllTried
    } else {
        PlanError::AllBusy
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use spillway_types::Deadline;

    use super::*;
    use crate::test_world::{NOW, World, any_policy, any_world, inquiry};
    use crate::{Candidate, Policy, Reason};

    proptest! {
        #[test]
        fn chooses_a_usable_candidate_whenever_there_is_one(
            mut world in any_world(any_policy()),
            ticket: u64,
        ) {
            let usable = world.usable();
            match world.plan(ticket) {
                Plan::Attempt(attempt) => {
                    prop_assert!(usable.iter().any(|candidate| candidate.slot == attempt.slot));
                }
                Plan::Refuse(refusal) => {
                    prop_assert!(usable.is_empty(), "{refusal} although {usable:?} are usable");
                    let all = world.group.candidates();
                    let is_untried = |candidate: &Candidate| !world.tried.contains(&candidate.slot);
                    let expected = match (all.is_empty(), all.iter().any(is_untried)) {
                        (true, _) => PlanError::NoReplica,
                        (false, true) => PlanError::AllBusy,
                        (false, false) => PlanError::AllTried,
                    };
                    prop_assert_eq!(refusal, expected);
                }
            }
        }

        #[test]
        fn decides_the_same_for_the_same_seed(
            mut world in any_world(any_policy()),
            ticket: u64,
            seed: u64,
        ) {
            let mut plan_from_seed = || {
                world.rng.seed(seed);
                (world.plan(ticket), world.plan(ticket), world.rng.u64(..))
            };
            prop_assert_eq!(plan_from_seed(), plan_from_seed());
        }
    }

    #[test]
    fn an_attempt_per_replica_tries_each_one_once_and_then_refuses() {
        for &policy in Policy::ALL {
            let mut world = World::idle(policy, &[1, 2, 3, 4, 5]);
            for ticket in 0..5 {
                let slot = world.attempt(ticket).slot;
                assert!(!world.tried.contains(&slot), "{policy} chose {slot:?} twice");
                world.tried.push(slot);
            }
            assert_eq!(world.plan(5), Plan::Refuse(PlanError::AllTried), "{policy}");
        }
    }

    #[test]
    fn the_only_free_replica_of_many_is_found() {
        for &policy in Policy::ALL {
            let mut world = World::idle(policy, &[1; 1_000]);
            world.loads.in_flight.fill(u32::MAX);
            world.loads.in_flight[637] = u32::MAX - 1;
            for ticket in 0..20 {
                assert_eq!(world.attempt(ticket).slot, ReplicaSlot(637), "{policy}");
            }
        }
    }

    #[test]
    fn a_request_past_its_deadline_is_refused_before_anything_else() {
        for &policy in Policy::ALL {
            for weights in [&[][..], &[1, 1]] {
                let mut world = World::idle(policy, weights);
                let late = Inquiry { deadline: Deadline::after(*NOW, Duration::ZERO), ..inquiry() };
                let moment =
                    Moment { now: *NOW, loads: &world.loads, ticket: 0, rng: &mut world.rng };
                let plan = plan(&late, &world.group, &[], moment);
                assert_eq!(plan, Plan::Refuse(PlanError::DeadlinePassed), "{policy}");
            }
        }
    }

    #[test]
    fn the_only_replica_of_a_group_is_chosen_for_that_reason() {
        for &policy in Policy::ALL {
            let mut world = World::idle(policy, &[3]);
            let Attempt { slot, reason, prediction } = world.attempt(9);
            assert_eq!((slot, reason), (ReplicaSlot(0), Reason::Only), "{policy}");
            assert_eq!(prediction.is_some(), policy == Policy::PredictedLatency);
        }
    }

    #[test]
    fn a_limit_of_zero_takes_a_replica_out() {
        for &policy in Policy::ALL {
            let candidate = Candidate {
                slot: ReplicaSlot(0),
                identity: 0,
                weight: 1,
                ramp_permille: spillway_types::RAMP_FULL,
                in_flight_max: 0,
            };
            let mut world = World::idle(policy, &[1]);
            world.group = Group::new(policy, vec![candidate]);
            assert_eq!(world.plan(0), Plan::Refuse(PlanError::AllBusy), "{policy}");
        }
    }
}
