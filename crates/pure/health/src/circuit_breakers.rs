//! Circuit breakers of one replica.

use std::collections::BTreeMap;
use std::time::Instant;

use spillway_types::{ModelName, ModelStanding};

use crate::circuit_breaker::{CircuitBreaker, Counts};
use crate::{CircuitBreakerConfig, MemberSpec};

/// Circuit breakers of the models that clients asked a replica for, up to a limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct CircuitBreakers(BTreeMap<ModelName, CircuitBreaker>);

impl CircuitBreakers {
    /// Counts new requests for a model. Models that the replica does not have are ignored, because
    /// clients may ask for any name.
    pub(crate) fn record(
        &mut self,
        (now, new): (Instant, Counts),
        model: &ModelName,
        (spec, models_max): (&MemberSpec, usize),
        rng: &mut fastrand::Rng,
    ) {
        if !serves(spec, model) || models_max == 0 {
            return;
        }
        if !self.0.contains_key(model) {
            self.make_room(models_max);
        }
        let breaker = self.0.entry(model.clone()).or_insert_with(|| CircuitBreaker::new(now));
        breaker.record(now, new, &spec.health.breaker, rng);
    }

    /// Moves all breakers on to `now`.
    pub(crate) fn advance(&mut self, now: Instant, config: &CircuitBreakerConfig) {
        self.0.values_mut().for_each(|breaker| breaker.advance(now, config));
    }

    /// Counts a time without requests as a good answer for the breakers that are half open.
    pub(crate) fn on_idle(&mut self, now: Instant, config: &CircuitBreakerConfig) {
        self.0.values_mut().for_each(|breaker| breaker.on_idle(now, config));
    }

    /// Forgets the models that the replica no longer has.
    pub(crate) fn retain(&mut self, spec: &MemberSpec) {
        self.0.retain(|model, _| serves(spec, model));
    }

    /// Returns the models whose breaker is open or half open, by name.
    pub(crate) fn standings(&self) -> Vec<(ModelName, ModelStanding)> {
        let standing = |(model, breaker): (&ModelName, &CircuitBreaker)| {
            breaker.standing().map(|standing| (model.clone(), standing))
        };
        self.0.iter().filter_map(standing).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ModelName, &CircuitBreaker)> {
        self.0.iter()
    }

    /// Removes the breaker that was quiet for longest, and a closed one if there is one.
    fn make_room(&mut self, models_max: usize) {
        while self.0.len() >= models_max {
            // Closed breakers go first, because an open one holds requests back.
            let rank =
                |breaker: &CircuitBreaker| (breaker.standing().is_some(), breaker.heard_at());
            let quietest = self.0.iter().min_by_key(|(_, breaker)| rank(breaker));
            let Some(model) = quietest.map(|(model, _)| model.clone()) else { return };
            self.0.remove(&model);
        }
    }
}

fn serves(spec: &MemberSpec, model: &ModelName) -> bool {
    // A replica without a list of models may serve any.
    spec.models.is_empty() || spec.models.contains(model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fleet::{ms, spec, start};

    fn record(
        breakers: &mut CircuitBreakers,
        at_ms: u64,
        model: &str,
        new: Counts,
        spec: &MemberSpec,
    ) {
        let mut rng = fastrand::Rng::with_seed(1);
        breakers.record((start() + ms(at_ms), new), &model.into(), (spec, 3), &mut rng);
    }

    fn names(breakers: &CircuitBreakers) -> Vec<&str> {
        breakers.iter().map(|(model, _)| model.as_str()).collect()
    }

    #[test]
    fn one_model_failing_leaves_the_others_alone() {
        let (mut breakers, spec) = (CircuitBreakers::default(), spec("a"));
        for _ in 0..20 {
            record(&mut breakers, 0, "bad", Counts::FAILED, &spec);
            record(&mut breakers, 0, "good", Counts::ANSWERED, &spec);
        }
        assert_eq!(breakers.standings(), [("bad".into(), ModelStanding::Open)]);
        breakers.advance(start() + ms(5_501), &spec.health.breaker);
        assert_eq!(breakers.standings(), [("bad".into(), ModelStanding::Trial)]);
    }

    #[test]
    fn beyond_the_limit_the_quietest_closed_one_is_forgotten() {
        let (mut breakers, spec) = (CircuitBreakers::default(), spec("a"));
        (0..20).for_each(|_| record(&mut breakers, 0, "open", Counts::FAILED, &spec));
        record(&mut breakers, 1, "old", Counts::ANSWERED, &spec);
        record(&mut breakers, 2, "new", Counts::ANSWERED, &spec);
        record(&mut breakers, 3, "newer", Counts::ANSWERED, &spec);
        assert_eq!(names(&breakers), ["new", "newer", "open"]);
    }

    #[test]
    fn when_all_are_open_the_quietest_of_them_makes_room() {
        let (mut breakers, spec) = (CircuitBreakers::default(), spec("a"));
        for (at_ms, model) in [(0, "a"), (1, "b"), (2, "c")] {
            (0..20).for_each(|_| record(&mut breakers, at_ms, model, Counts::FAILED, &spec));
        }
        record(&mut breakers, 3, "d", Counts::ANSWERED, &spec);
        assert_eq!(names(&breakers), ["b", "c", "d"]);
    }

    #[test]
    fn only_models_of_the_replica_are_kept() {
        let (mut breakers, mut spec) = (CircuitBreakers::default(), spec("a"));
        spec.models = vec!["m".into(), "n".into()];
        for model in ["m", "n", "x"] {
            record(&mut breakers, 0, model, Counts::ANSWERED, &spec);
        }
        assert_eq!(names(&breakers), ["m", "n"]);
        spec.models = vec!["n".into()];
        breakers.retain(&spec);
        assert_eq!(names(&breakers), ["n"]);
    }
}
