//! Token bucket: a draw among the candidates with a token left.

use spillway_types::{Inquiry, Reading};

use super::choose::Choose;
use crate::field::{Field, Usable};
use crate::mean::Mean;
use crate::{Attempt, Candidate, Moment, Reason, Tuning};

/// Policy that takes a token from the bucket of a drawn candidate. The draw is in proportion to
/// tokens and weight: with the fullest bucket instead, a candidate would get all requests after
/// some idle time.
///
/// If all buckets are empty it takes the lightest candidate rather than the one with the least
/// debt: candidates that get equally many requests have equal debts, however unequal their queues
/// are.
#[derive(Debug)]
pub(super) struct TokenBucket;

impl TokenBucket {
    pub(super) fn prepare(_candidates: &[Candidate], _tuning: &Tuning) -> Self {
        Self
    }
}

impl Choose for TokenBucket {
    fn choose(
        &self,
        _inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        let mut tokens = Mean::default();
        for usable in field.all_usable() {
            tokens.add(level(field, &usable));
        }
        let usual = tokens.or(0.0);
        let weigh = |usable: &Usable| {
            let tokens = level(field, usable).or(usual);
            // A part of a token is no request.
            if tokens >= 1.0 { f64::from(tokens) * usable.weight as f64 } else { 0.0 }
        };
        if let Some(drawn) = field.draw_of_all(moment.rng, weigh) {
            return Some(drawn.because(Reason::Drawn));
        }
        field.lightest(moment).map(|usable| usable.because(Reason::Lightest))
    }
}

/// Returns the tokens left of those there were when the signals were collected. Unknown if there
/// was neither a token nor ever a request, as is the case before there are signals.
fn level(field: &Field<'_>, usable: &Usable) -> Reading {
    let signals = field.signals(usable);
    if signals.bucket_tokens == 0.0 && signals.started_at == 0 {
        return Reading::UNKNOWN;
    }
    let taken = field.started(usable).saturating_sub(signals.started_at);
    Reading { value: signals.bucket_tokens - taken as f32, trust: 1.0 }
}

#[cfg(test)]
mod tests {
    use crate::test_world::{World, assert_proportional};
    use crate::{Policy, Reason};
    use spillway_types::Signals;

    /// Returns replicas with these weights and so many tokens when the signals were collected.
    fn with_tokens(replicas: &[(u32, f32)]) -> World {
        let weights: Vec<u32> = replicas.iter().map(|(weight, _)| *weight).collect();
        let mut world = World::idle(Policy::TokenBucket, &weights);
        for (index, &(_, bucket_tokens)) in replicas.iter().enumerate() {
            world.loads.signals[index] =
                Signals { bucket_tokens, started_at: 100, ..Signals::UNKNOWN };
            world.loads.started[index] = 100;
        }
        world
    }

    #[test]
    fn chances_are_tokens_times_weight_of_those_with_a_token_left() {
        let mut world = with_tokens(&[(1, 8.0), (2, 3.0), (9, 0.9), (1, 1.0), (9, -4.0)]);
        assert_proportional(&world.tally(30_000), &[8.0, 6.0, 0.0, 1.0, 0.0]);
        assert_eq!(world.attempt(0).reason, Reason::Drawn);
    }

    #[test]
    fn what_was_sent_since_took_tokens() {
        let mut world = with_tokens(&[(1, 10.0), (1, 5.0)]);
        world.loads.started[0] += 8;
        assert_proportional(&world.tally(30_000), &[2.0, 5.0]);
        world.loads.started[1] += 5;
        assert_eq!(world.tally(100), [100, 0]);
    }

    #[test]
    fn all_tokens_are_taken_before_the_load_decides() {
        let mut world = with_tokens(&[(1, 12.0), (1, 5.0), (1, 3.0)]);
        assert_eq!(world.serve(20, 20), [12, 5, 3]);
        let attempt = world.attempt(0);
        assert_eq!(attempt.reason, Reason::Lightest, "no bucket has a token");
    }

    #[test]
    fn with_empty_buckets_the_lightest_is_taken_and_none_is_left_out() {
        let mut world = with_tokens(&[(1, -900.0), (1, 0.0), (2, 0.5)]);
        assert_eq!(world.serve(400, 400), [100, 100, 200]);
    }

    #[test]
    fn a_replica_without_a_bucket_has_the_mean_of_the_others() {
        let mut world = with_tokens(&[(1, 8.0), (1, 2.0), (1, 0.0)]);
        world.loads.signals[2] = Signals::UNKNOWN;
        world.loads.started[2] = 5_000;
        assert_proportional(&world.tally(30_000), &[8.0, 2.0, 5.0]);
    }

    #[test]
    fn a_counter_that_began_anew_owes_nothing() {
        let mut world = with_tokens(&[(1, 5.0), (1, 5.0)]);
        world.loads.started[0] = 0;
        assert_proportional(&world.tally(30_000), &[1.0, 1.0]);
        assert_eq!(world.attempt(0).reason, Reason::Drawn);
    }
}
