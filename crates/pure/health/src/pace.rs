//! Outlier detection by speed: a replica's pace for each model, and whether it is far slower than
//! its peers.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use spillway_types::{ModelName, PoolName, Worked, WorkedPart};

/// Weight of a new answer in a mean. A single slow answer moves the mean little; after seven, they
/// make up most of it.
const NEW_PART: f32 = 0.2;

/// Fewest answers for a known mean.
const ANSWERS_MIN: u32 = 5;

/// Fewest members of a pool with a mean for the same model, the replica itself included, that allow
/// a comparison.
const MEMBERS_MIN: usize = 3;

/// Mean in milliseconds below which no replica is slow: there, differences are chance.
const SLOW_MS_MIN: f32 = 20.0;

/// Key of measures that can be compared: the model, and the part of its replies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Like {
    model: ModelName,
    part: WorkedPart,
}

/// Parts of replies that are measured for each model.
const PARTS: usize = 3;

/// Means of a replica's times and of the work done in them. The means are geometric,
/// because times differ by factors.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paces(BTreeMap<Like, Pace>);

#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    log_ms: f32,
    log_steps: f32,
    answers: u32,
}

/// Usual pace in each pool for comparable answers: the median of the members' mean times for one
/// step, times their weight.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsualPaces(BTreeMap<(PoolName, Like), f32>);

impl Paces {
    /// Counts an answer. Beyond `models_max` models, new ones are ignored.
    pub(crate) fn record(&mut self, model: &ModelName, worked: Worked, models_max: usize) {
        let like = Like { model: model.clone(), part: worked.part };
        let kept = self.0.len();
        let pace = match self.0.entry(like) {
            Entry::Occupied(kept) => kept.into_mut(),
            Entry::Vacant(free) if kept < models_max.saturating_mul(PARTS) => {
                free.insert(Pace::default())
            }
            Entry::Vacant(_) => return,
        };
        pace.record(worked);
    }

    /// Forgets all answers, so that the next ones are judged alone.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }

    /// Returns the means that have enough answers.
    fn known(&self) -> impl Iterator<Item = (&Like, Pace)> {
        let known = self.0.iter().filter(|(_, pace)| pace.answers >= ANSWERS_MIN);
        known.map(|(like, pace)| (like, *pace))
    }

    /// Returns true if comparable answers take at least `ratio` times as long as is usual in the
    /// pool, in proportion to weight and work. A `ratio` of 0 turns the comparison off.
    pub(crate) fn is_slow(
        &self,
        pool: &PoolName,
        weight: u32,
        usual: &UsualPaces,
        ratio: f32,
    ) -> bool {
        ratio > 0.0
            && self.known().any(|(like, pace)| {
                let usual_ms = usual.0.get(&(pool.clone(), like.clone()));
                pace.ms() >= SLOW_MS_MIN
                    && usual_ms.is_some_and(|usual| pace.step_ms() * weight as f32 >= ratio * usual)
            })
    }
}

impl Pace {
    fn record(&mut self, worked: Worked) {
        self.answers = self.answers.saturating_add(1);
        // The first answers have equal weight, until each new one would have less than `NEW_PART`.
        let part = NEW_PART.max(1.0 / self.answers as f32);
        self.log_ms += (milliseconds(worked).ln() - self.log_ms) * part;
        self.log_steps += (steps(worked).ln() - self.log_steps) * part;
    }

    fn ms(self) -> f32 {
        self.log_ms.exp()
    }

    /// Returns the milliseconds for one step.
    fn step_ms(self) -> f32 {
        (self.log_ms - self.log_steps).exp()
    }
}

fn milliseconds(worked: Worked) -> f32 {
    // The logarithm of 0 would spoil the mean.
    (worked.after.as_secs_f32() * 1000.0).max(0.1)
}

fn steps(worked: Worked) -> f32 {
    // A missing or wrong count counts as one step.
    if worked.steps.is_finite() { worked.steps.max(1.0) } else { 1.0 }
}

impl UsualPaces {
    /// Computes the medians of members, given by their pool, weight and means.
    pub(crate) fn of<'a>(members: impl Iterator<Item = (&'a PoolName, u32, &'a Paces)>) -> Self {
        let mut means: BTreeMap<(PoolName, Like), Vec<f32>> = BTreeMap::new();
        for (pool, weight, paces) in members {
            for (like, pace) in paces.known() {
                let key = (pool.clone(), like.clone());
                means.entry(key).or_default().push(pace.step_ms() * weight as f32);
            }
        }
        means.retain(|_, means| means.len() >= MEMBERS_MIN);
        let median = |mut means: Vec<f32>| {
            // Of an even number, the smaller of the two middle values: if half of the members are
            // slow, slow is still not usual.
            let middle = (means.len() - 1) / 2;
            *means.select_nth_unstable_by(middle, f32::total_cmp).1
        };
        Self(means.into_iter().map(|(key, means)| (key, median(means))).collect())
    }
}

/// Limits from which on an answer of one member counts as slow, in milliseconds for one step.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlowAfter(BTreeMap<Like, f32>);

/// Judgement of a measure by the limits of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pacing {
    /// The measure proves that the replica is not slow, or there is no limit for it.
    Good,
    /// The measure proves nothing: it measures no speed, or the tokens that follow are still to be
    /// judged.
    Unproved,
    /// The measure is slow.
    Slow,
}

impl UsualPaces {
    /// Returns the limits for a member of this pool and weight.
    pub(crate) fn slow_after(&self, pool: &PoolName, weight: u32, ratio: f32) -> SlowAfter {
        let of_pool = self.0.iter().filter(|((of, _), _)| ratio > 0.0 && of == pool);
        let limit = |usual: f32| ratio * usual / weight as f32;
        SlowAfter(of_pool.map(|((_, like), usual)| (like.clone(), limit(*usual))).collect())
    }
}

impl SlowAfter {
    /// Returns `self`, or `other` if `self` has no limits.
    pub(crate) fn or(self, other: Self) -> Self {
        if self.0.is_empty() { other } else { self }
    }

    /// Judges an answer. Without a limit for the model, every answer is good. The first token of a
    /// stream proves nothing where the next ones have a limit: they are measured at its end.
    pub(crate) fn judge(&self, model: Option<&ModelName>, worked: Option<Worked>) -> Pacing {
        let limit_of = |part: WorkedPart| {
            let mut of_model = self.0.iter().filter(|(like, _)| Some(&like.model) == model);
            of_model.find(|(like, _)| like.part == part).map(|(_, limit_ms)| *limit_ms)
        };
        let Some(worked) = worked else {
            let is_limited = self.0.keys().any(|like| Some(&like.model) == model);
            return if is_limited { Pacing::Unproved } else { Pacing::Good };
        };
        let took_ms = milliseconds(worked);
        let is_slow = limit_of(worked.part)
            .is_some_and(|limit_ms| took_ms >= SLOW_MS_MIN && took_ms / steps(worked) >= limit_ms);
        let is_first = worked.part == WorkedPart::FirstToken;
        match is_slow {
            true => Pacing::Slow,
            false if is_first && limit_of(WorkedPart::NextTokens).is_some() => Pacing::Unproved,
            false => Pacing::Good,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const RATIO: f32 = 5.0;

    fn paces(model: &str, times_ms: &[u64]) -> Paces {
        let mut paces = Paces::default();
        for &time_ms in times_ms {
            paces.record(&model.into(), stream(time_ms), 8);
        }
        paces
    }

    fn stream(time_ms: u64) -> Worked {
        Worked { after: Duration::from_millis(time_ms), steps: 1.0, part: WorkedPart::FirstToken }
    }

    /// Makes answers in one piece, from their times and tokens.
    fn whole(answers: &[(u64, f32)]) -> Paces {
        let mut paces = Paces::default();
        for &(time_ms, steps) in answers {
            let worked = Worked { steps, part: WorkedPart::Whole, ..stream(time_ms) };
            paces.record(&"m".into(), worked, 8);
        }
        paces
    }

    /// Returns true for each member that is slow; each member has a weight and answers.
    fn slow(members: &[(u32, Paces)]) -> Vec<bool> {
        let pool = PoolName::from("p");
        let usual = UsualPaces::of(members.iter().map(|(weight, paces)| (&pool, *weight, paces)));
        let is_slow = |(weight, paces): &(u32, Paces)| paces.is_slow(&pool, *weight, &usual, RATIO);
        members.iter().map(is_slow).collect()
    }

    #[test]
    fn an_answer_is_slow_by_the_median_of_the_pool_and_the_weight() {
        let (pool, other) = (PoolName::from("p"), PoolName::from("q"));
        let peers = [(); 3].map(|()| paces("m", &[100; 5]));
        let usual = UsualPaces::of(peers.iter().map(|paces| (&pool, 2, paces)));
        let slow_from_ms = |pool: &PoolName, weight, ratio| {
            let slow_after = usual.slow_after(pool, weight, ratio);
            let judged = |ms: u64| slow_after.judge(Some(&"m".into()), Some(stream(ms)));
            let is_good = |ms: u64| judged(ms) == Pacing::Good;
            (1..5_000).find(|ms| !is_good(*ms))
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
    fn answers_in_one_piece_are_not_compared_with_the_first_words_of_streams() {
        let streaming = || (1, paces("m", &[50; 9]));
        let replying = whole(&[(3_000, 4.0); 9]);
        assert_eq!(slow(&[streaming(), streaming(), streaming(), (1, replying)]), [false; 4]);
    }

    #[test]
    fn who_has_more_to_do_is_not_slow() {
        let short = || (1, whole(&[(150, 12.0); 9]));
        assert_eq!(slow(&[short(), short(), (1, whole(&[(6_000, 500.0); 9]))]), [false; 3]);
        assert_eq!(
            slow(&[short(), short(), (1, whole(&[(6_000, 50.0); 9]))]),
            [false, false, true]
        );
    }

    #[test]
    fn nobody_is_known_to_be_slow_by_an_answer_that_says_nothing() {
        let peers = [(); 3].map(|()| paces("m", &[100; 5]));
        let pool = PoolName::from("p");
        let usual = UsualPaces::of(peers.iter().map(|paces| (&pool, 1, paces)));
        let slow_after = usual.slow_after(&pool, 1, RATIO);
        let judge = |model: &str, worked| slow_after.judge(Some(&model.into()), worked);
        assert_eq!(judge("m", None), Pacing::Unproved, "nor does it pass a trial");
        assert_eq!(judge("other", None), Pacing::Good);
        assert_eq!(slow_after.judge(None, None), Pacing::Good);
        let short = Worked { steps: 1.0, part: WorkedPart::Whole, ..stream(9_000) };
        assert_eq!(judge("m", Some(short)), Pacing::Good, "nothing is known of these");
        let long = Worked { steps: 90.0, ..stream(9_000) };
        assert_eq!(judge("m", Some(long)), Pacing::Good);
        assert_eq!(judge("m", Some(stream(19))), Pacing::Good);
        assert_eq!(judge("m", Some(stream(9_000))), Pacing::Slow);
    }

    #[test]
    fn a_stream_is_judged_by_the_tokens_behind_the_first_where_those_have_a_limit() {
        let pool = PoolName::from("p");
        let next = |ms_each: u64| Worked {
            steps: 50.0,
            part: WorkedPart::NextTokens,
            ..stream(50 * ms_each)
        };
        let peers = [(); 3].map(|()| {
            let mut peer = paces("m", &[100; 5]);
            (0..5).for_each(|_| peer.record(&"m".into(), next(20), 8));
            peer
        });
        let usual = UsualPaces::of(peers.iter().map(|paces| (&pool, 1, paces)));
        let slow_after = usual.slow_after(&pool, 1, RATIO);
        let judge = |worked| slow_after.judge(Some(&"m".into()), Some(worked));
        assert_eq!(judge(stream(100)), Pacing::Unproved, "the first token alone");
        assert_eq!(judge(next(20)), Pacing::Good);
        assert_eq!(judge(next(160)), Pacing::Slow);
        assert_eq!(judge(stream(900)), Pacing::Slow);
    }

    #[test]
    fn no_more_models_than_the_limit_are_known() {
        let mut many = Paces::default();
        for model in 0..100 {
            let model = ModelName::from(format!("model-{model}"));
            (0..5).for_each(|_| many.record(&model, stream(9), 8));
        }
        assert_eq!(many.known().count(), 8 * PARTS);
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
        assert!(slow.is_slow(&pool, 1, &usual, 5.0));
        assert!(!slow.is_slow(&pool, 1, &usual, 0.0));
    }
}
