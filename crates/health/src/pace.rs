//! How fast a replica answers, model by model, and whether it is far slower than its peers.

use std::collections::BTreeMap;
use std::time::Duration;

use spillway_types::{ModelName, PoolName};

/// Weight of a new answer. A single slow one moves the mean little, seven in a row make it theirs.
const NEW_PART: f32 = 0.2;

/// Answers until a mean says something.
const ANSWERS_MIN: u32 = 5;

/// Members of a pool with a mean for the same model, itself included, below which nobody can tell
/// who is slow.
const MEMBERS_MIN: usize = 3;

/// A mean below this many milliseconds is slow for nobody: differences are chance.
const SLOW_MS_MIN: f32 = 20.0;

/// Means of a replica's times to first byte, by model. Geometric, since times differ by factors.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paces(BTreeMap<ModelName, Pace>);

#[derive(Clone, Copy, Debug)]
struct Pace {
    log_ms: f32,
    answers: u32,
}

/// What is usual in each pool for each model: the median of its members' means times their weight.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsualPaces(BTreeMap<(PoolName, ModelName), f32>);

impl Paces {
    /// Counts an answer. Of more models than `models_max` the first are kept.
    pub(crate) fn record(&mut self, model: &ModelName, after: Duration, models_max: usize) {
        let log_ms = (after.as_secs_f32() * 1000.0).max(0.1).ln();
        if let Some(pace) = self.0.get_mut(model) {
            pace.answers = pace.answers.saturating_add(1);
            // The first ones count alike.
            let part = NEW_PART.max(1.0 / pace.answers as f32);
            pace.log_ms += (log_ms - pace.log_ms) * part;
        } else if self.0.len() < models_max {
            self.0.insert(model.clone(), Pace { log_ms, answers: 1 });
        }
    }

    /// Forgets all answers: what comes next is to be judged by itself.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }

    /// Models and their means in milliseconds, where there are enough answers.
    pub(crate) fn known(&self) -> impl Iterator<Item = (&ModelName, f32)> {
        let known = self.0.iter().filter(|(_, pace)| pace.answers >= ANSWERS_MIN);
        known.map(|(model, pace)| (model, pace.log_ms.exp()))
    }

    /// Whether a model takes `ratio` times as long here as is usual, its weight considered.
    pub(crate) fn is_slow(
        &self,
        (pool, weight): (&PoolName, u32),
        usual: &UsualPaces,
        ratio: f32,
    ) -> bool {
        ratio > 0.0
            && self.known().any(|(model, mean_ms)| {
                let usual_ms = usual.0.get(&(pool.clone(), model.clone()));
                mean_ms >= SLOW_MS_MIN
                    && usual_ms.is_some_and(|usual| mean_ms * weight as f32 >= ratio * usual)
            })
    }
}

impl UsualPaces {
    /// The medians of members: their pool, weight and means.
    pub(crate) fn of<'a>(members: impl Iterator<Item = (&'a PoolName, u32, &'a Paces)>) -> Self {
        let mut means: BTreeMap<(PoolName, ModelName), Vec<f32>> = BTreeMap::new();
        for (pool, weight, paces) in members {
            for (model, mean_ms) in paces.known() {
                let key = (pool.clone(), model.clone());
                means.entry(key).or_default().push(mean_ms * weight as f32);
            }
        }
        means.retain(|_, means| means.len() >= MEMBERS_MIN);
        let median = |mut means: Vec<f32>| {
            // Of an even number the smaller: half of the members being slow is no reason to
            // take slow for usual.
            let middle = (means.len() - 1) / 2;
            *means.select_nth_unstable_by(middle, f32::total_cmp).1
        };
        Self(means.into_iter().map(|(key, means)| (key, median(means))).collect())
    }
}

/// From when on an answer of one member counts as slow, in milliseconds, by model.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlowAfter(BTreeMap<ModelName, f32>);

impl UsualPaces {
    /// What is slow for a member of this pool and weight.
    pub(crate) fn slow_after(&self, (pool, weight): (&PoolName, u32), ratio: f32) -> SlowAfter {
        let of_pool = self.0.iter().filter(|((of, _), _)| ratio > 0.0 && of == pool);
        let limit = |usual: f32| (ratio * usual / weight as f32).max(SLOW_MS_MIN);
        SlowAfter(of_pool.map(|((_, model), usual)| (model.clone(), limit(*usual))).collect())
    }
}

impl SlowAfter {
    /// This, or the other if this says nothing.
    pub(crate) fn or(self, other: Self) -> Self {
        if self.0.is_empty() { other } else { self }
    }

    /// Whether an answer that took this long is slow.
    pub(crate) fn is_slow(&self, model: Option<&ModelName>, after: Duration) -> bool {
        let limit = model.and_then(|model| self.0.get(model));
        limit.is_some_and(|limit_ms| after.as_secs_f32() * 1000.0 >= *limit_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATIO: f32 = 5.0;

    fn paces(model: &str, times_ms: &[u64]) -> Paces {
        let mut paces = Paces::default();
        for &time_ms in times_ms {
            paces.record(&model.into(), Duration::from_millis(time_ms), 8);
        }
        paces
    }

    /// Which of these members are slow; each has a weight and answers.
    fn slow(members: &[(u32, Paces)]) -> Vec<bool> {
        let pool = PoolName::from("p");
        let usual = UsualPaces::of(members.iter().map(|(weight, paces)| (&pool, *weight, paces)));
        let is_slow =
            |(weight, paces): &(u32, Paces)| paces.is_slow((&pool, *weight), &usual, RATIO);
        members.iter().map(is_slow).collect()
    }

    #[test]
    fn an_answer_is_slow_by_the_median_of_the_pool_and_the_weight() {
        let (pool, other) = (PoolName::from("p"), PoolName::from("q"));
        let peers = [(); 3].map(|()| paces("m", &[100; 5]));
        let usual = UsualPaces::of(peers.iter().map(|paces| (&pool, 2, paces)));
        let slow_from_ms = |pool: &PoolName, weight, ratio| {
            let slow_after = usual.slow_after((pool, weight), ratio);
            let is_slow =
                |ms: &u64| slow_after.is_slow(Some(&"m".into()), Duration::from_millis(*ms));
            (1..5_000).find(is_slow)
        };
        // Rounding may move the limit by a millisecond.
        assert!(slow_from_ms(&pool, 2, RATIO).unwrap().abs_diff(500) <= 1);
        assert!(slow_from_ms(&pool, 1, RATIO).unwrap().abs_diff(1_000) <= 1);
        assert_eq!(slow_from_ms(&pool, 2, 0.0), None, "turned off");
        assert_eq!(slow_from_ms(&other, 2, RATIO), None, "nothing is known");
    }

    #[test]
    fn one_that_takes_ten_times_as_long_is_slow_after_a_handful_of_answers() {
        let well = || (1, paces("m", &[100; 20]));
        let mut changed = vec![100; 20];
        changed.extend([1000; 8]);
        assert_eq!(slow(&[well(), well(), (1, paces("m", &changed))]), [false, false, true]);
        changed.truncate(22);
        assert_eq!(
            slow(&[well(), well(), (1, paces("m", &changed))]),
            [false; 3],
            "two are chance"
        );
    }

    #[test]
    fn one_slow_answer_among_many_is_no_sign() {
        let well = || (1, paces("m", &[100; 20]));
        let unlucky = (1, paces("m", &[100, 100, 100, 100, 100, 100, 5000]));
        assert_eq!(slow(&[well(), well(), unlucky]), [false; 3]);
    }

    #[test]
    fn models_are_compared_with_themselves_only() {
        let small = || (1, paces("small", &[100; 9]));
        let big = || (1, paces("big", &[2000; 9]));
        assert_eq!(slow(&[small(), small(), small(), big(), big(), big()]), [false; 6]);
    }

    #[test]
    fn weaker_hardware_with_less_weight_is_not_slow() {
        let strong = || (8, paces("m", &[100; 9]));
        assert_eq!(slow(&[strong(), strong(), (1, paces("m", &[800; 9]))]), [false; 3]);
        assert_eq!(slow(&[strong(), strong(), (8, paces("m", &[800; 9]))]), [false, false, true]);
    }

    #[test]
    fn of_two_nobody_knows_which_is_the_slow_one() {
        assert_eq!(slow(&[(1, paces("m", &[1; 9])), (1, paces("m", &[900; 9]))]), [false; 2]);
    }

    #[test]
    fn differences_below_what_matters_are_chance() {
        let quick = || (1, paces("m", &[1; 9]));
        assert_eq!(slow(&[quick(), quick(), (1, paces("m", &[15; 9]))]), [false; 3]);
    }

    #[test]
    fn too_few_answers_and_forgotten_ones_say_nothing() {
        let well = || (1, paces("m", &[100; 9]));
        assert_eq!(slow(&[well(), well(), (1, paces("m", &[5000; 4]))]), [false; 3]);
        let mut forgotten = paces("m", &[5000; 9]);
        forgotten.forget();
        assert_eq!(slow(&[well(), well(), (1, forgotten)]), [false; 3]);
    }

    #[test]
    fn a_ratio_of_zero_turns_it_off() {
        let (pool, slow) = (PoolName::from("p"), paces("m", &[5000; 9]));
        let well = paces("m", &[100; 9]);
        let usual =
            UsualPaces::of([&well, &well, &slow].map(|paces| (&pool, 1, paces)).into_iter());
        assert!(slow.is_slow((&pool, 1), &usual, 5.0));
        assert!(!slow.is_slow((&pool, 1), &usual, 0.0));
    }
}
