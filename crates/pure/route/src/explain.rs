//! Explained decisions: a plan with the weight of each candidate.

use serde::Serialize;
use spillway_types::{Inquiry, ReplicaSlot, reasons};

use crate::field::Field;
use crate::predict::{Cost, Fit, Weigher};
use crate::{Group, Moment, Plan, Snapshot, plan};

/// Decides as [`plan()`] does, with the same moment and random numbers, and returns the predicted
/// cost of each candidate as well.
///
/// The terms are those of [`Policy::PredictedLatency`], whatever the group's policy is: for other
/// policies they show the cost of following their rule. If loads change between the decision and
/// the explanation, the terms are those of a moment later. Allocates one entry a candidate, so it
/// is for operators and not for every request.
///
/// [`Policy::PredictedLatency`]: crate::Policy::PredictedLatency
#[must_use]
pub fn plan_explained(
    inquiry: &Inquiry,
    group: &Group,
    tried: &[ReplicaSlot],
    moment: Moment<'_>,
) -> (Plan, Vec<Weighed>) {
    // The policy may draw a key for a request without a prompt: the terms have to be of that key.
    let mut rng = moment.rng.clone();
    let loads = moment.loads;
    let decided = plan(inquiry, group, tried, moment);
    let chosen = match &decided {
        Plan::Attempt(attempt) => Some(attempt.slot),
        Plan::Refuse(_) => None,
    };
    // Replicas tried before are weighed as well, but do not count in the comparison.
    let field = Field::new(group.candidates(), &[], loads);
    let untried = Field::new(group.candidates(), tried, loads);
    let weigher = Weigher::new(group.predicted(), inquiry, &untried, &mut rng);
    let weighed = (0..field.len())
        .map(|index| weigh(&field, &weigher, index, &field.snapshot(index), (tried, chosen)));
    (decided, weighed.collect())
}

/// Weight of one candidate in a decision.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Weighed {
    /// Slot of the candidate.
    pub slot: ReplicaSlot,
    /// Predicted cost of serving the request there.
    pub cost: Cost,
    /// Sum of all terms of the cost, in milliseconds.
    pub total_ms: f32,
    /// The same with the wait counted for each request that runs there: decides among candidates that
    /// hold as much of the prompt as each other.
    pub contended_ms: f32,
    /// Room for the request at the candidate.
    pub fit: Fit,
    /// Tokens of the prompt, by the usual bytes per token at the replica.
    pub prompt_tokens: u32,
    /// Tokens of the prompt that are expected in the replica's cache.
    pub cached_tokens: u32,
    /// Requests of this process in flight there.
    pub in_flight: u32,
    /// Requests that run there by now, as far as known.
    pub running: f32,
    /// Requests that wait there by now, as far as known.
    pub queued: f32,
    /// Trust in the learned speed of the replica, 0 to 1.
    pub trust: f32,
    /// Reason against the candidate; `None` for the chosen one.
    pub obstacle: Option<Obstacle>,
}

reasons! {
    /// Reason why a request does not go to a candidate.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Obstacle {
        /// The replica was tried before.
        Tried = "tried";
        /// The replica is at its limit of concurrent requests.
        Busy = "busy";
        /// The replica's KV cache or queue is predicted to have no room.
        Full = "full";
        /// The request is larger than the replica's KV cache.
        TooLarge = "too_large";
        // Such a replica is no candidate, so [`plan_explained`] never returns this.
        /// The replica is overloaded and asked for a pause.
        Resting = "resting";
        /// Another candidate was preferred.
        NotChosen = "not_chosen";
    }
}

fn weigh(
    field: &Field<'_>,
    weigher: &Weigher,
    index: usize,
    snapshot: &Snapshot,
    (tried, chosen): (&[ReplicaSlot], Option<ReplicaSlot>),
) -> Weighed {
    let usable = field.usable_by(index, snapshot);
    // A busy candidate is weighed as if it were usable, for the explanation.
    let looked_at =
        usable.unwrap_or_else(|| field.as_usable(index, snapshot.in_flight, snapshot.elsewhere));
    let weight = weigher.weigh(field, &looked_at, snapshot);
    let obstacle = if chosen == Some(looked_at.slot) {
        None
    } else if tried.contains(&looked_at.slot) {
        Some(Obstacle::Tried)
    } else if usable.is_none() {
        Some(Obstacle::Busy)
    } else {
        Some(match weight.fit {
            Fit::Fits => Obstacle::NotChosen,
            Fit::Full => Obstacle::Full,
            Fit::TooLarge => Obstacle::TooLarge,
        })
    };
    Weighed {
        slot: looked_at.slot,
        cost: weight.cost,
        total_ms: weight.cost.total_ms(),
        contended_ms: weight.contended_ms(),
        fit: weight.fit,
        prompt_tokens: weight.prediction.prompt_tokens,
        cached_tokens: weight.prediction.cached_tokens,
        in_flight: snapshot.in_flight,
        running: weight.prediction.running,
        queued: weight.queued,
        trust: snapshot.speed.trust,
        obstacle,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_world::{NOW, World, any_policy, any_prompted};
    use crate::{Policy, Reason};

    /// Returns the explained decision with this seed.
    fn explain(world: &World, seed: u64) -> (Plan, Vec<Weighed>) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let moment = Moment { now: *NOW, loads: &world.loads, ticket: 3, rng: &mut rng };
        plan_explained(&world.inquiry(), &world.group, &world.tried, moment)
    }

    proptest! {
        #[test]
        fn it_decides_as_the_plan_does_and_shows_every_candidate(
            mut world in any_prompted(any_policy()),
            seed: u64,
        ) {
            let (decided, weighed) = explain(&world, seed);
            world.rng.seed(seed);
            prop_assert_eq!(decided, world.plan(3));
            let slots: Vec<_> = weighed.iter().map(|one| one.slot).collect();
            let all: Vec<_> = world.group.candidates().iter().map(|one| one.slot).collect();
            prop_assert_eq!(slots, all);
            let chosen: Vec<_> =
                weighed.iter().filter(|one| one.obstacle.is_none()).map(|one| one.slot).collect();
            match decided {
                Plan::Attempt(attempt) => prop_assert_eq!(chosen, [attempt.slot]),
                Plan::Refuse(_) => prop_assert!(chosen.is_empty()),
            }
            for one in &weighed {
                prop_assert!(one.total_ms.is_finite(), "{one:?}");
                prop_assert!(one.cached_tokens <= one.prompt_tokens);
                let is_tried = world.tried.contains(&one.slot);
                prop_assert_eq!(one.obstacle == Some(Obstacle::Tried), is_tried);
            }
            prop_assert!(serde_json::to_string(&weighed).is_ok());
        }

        #[test]
        fn who_predicts_takes_the_least_contended_of_those_like_the_cheapest(
            world in any_prompted(Just(Policy::PredictedLatency)),
            seed: u64,
        ) {
            let world = World { tried: Vec::new(), ..world.all_warm() };
            let (decided, weighed) = explain(&world, seed);
            let Plan::Attempt(attempt) = decided else { return Ok(()) };
            prop_assume!(attempt.reason == Reason::Soonest);
            let chosen = weighed.iter().find(|one| one.slot == attempt.slot).unwrap();
            let is_cached = 2 * chosen.cached_tokens >= chosen.prompt_tokens;
            if chosen.fit == Fit::Full {
                prop_assert!(is_cached, "{chosen:?}");
            } else if chosen.fit != Fit::Fits {
                prop_assert!(weighed.iter().all(|one| one.fit != Fit::Fits
                    || one.obstacle == Some(Obstacle::Busy)));
                return Ok(());
            }
            let could = |one: &&Weighed| {
                one.fit == Fit::Fits && one.obstacle.is_none_or(|it| it == Obstacle::NotChosen)
            };
            let cheapest =
                weighed.iter().filter(could).min_by(|a, b| a.total_ms.total_cmp(&b.total_ms));
            if chosen.fit == Fit::Full {
                prop_assert!(cheapest.is_none_or(|one| chosen.total_ms <= one.total_ms));
                return Ok(());
            }
            // About as much of the prompt as the cheapest has, and the least contention of those.
            let blocks = |one: &Weighed| world.loads.cached_blocks[one.slot.index()];
            let slack = world.inquiry().prefix.as_slice().len() as u32 / 20;
            prop_assert!(blocks(chosen) + slack >= blocks(cheapest.unwrap()), "{cheapest:?}");
            for other in weighed.iter().filter(could).filter(|one| blocks(one) >= blocks(chosen)) {
                prop_assert!(chosen.contended_ms <= other.contended_ms, "{other:?}");
            }
        }
    }

    #[test]
    fn each_obstacle_is_told() {
        let mut world = World::idle(Policy::LeastConnections, &[1; 4]);
        world.tried = vec![ReplicaSlot(0)];
        world.loads.in_flight = vec![0, u32::MAX, 2, 1];
        let (_, weighed) = explain(&world, 1);
        let obstacles = [0, 1, 2, 3].map(|index: usize| weighed[index].obstacle);
        let expected =
            [Some(Obstacle::Tried), Some(Obstacle::Busy), Some(Obstacle::NotChosen), None];
        assert_eq!(obstacles, expected);
    }
}
