//! Score of a run with faults: the outcome of requests during the faults and afterwards.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::recovery::Windows;
use crate::{Fate, Record, WorldConfig};

/// Fates of requests, as shares of all of them, each 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fates {
    /// Share that got its whole reply.
    pub answered: f64,
    /// Share that was shed and whose retry time was beyond the client's patience.
    pub shed: f64,
    /// Share that got an error, a part of a reply, or nothing in time.
    pub failed: f64,
}

/// Figures of the faults of one run, or the mean of several ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FaultScore {
    /// Fates of the requests that came while the faults lasted.
    pub during: Fates,
    /// Fates of the requests that came later.
    pub after: Fates,
    /// Share of the rejected clients that were served when they retried at the promised time;
    /// `None` if no client retried.
    pub served_again: Option<f64>,
    /// Seconds from the end of the faults until goodput is at least 95 % of its mean before them for
    /// the rest of the run, in steps of 10 s; `None` if that never comes.
    pub recovered_s: Option<f64>,
}

impl FaultScore {
    /// Returns the figures of a world's faults, from the records of its requests and the good ones by
    /// time; `None` if the world has no faults.
    #[must_use]
    pub fn of(records: &[Record], windows: &Windows, world: &WorldConfig) -> Option<Self> {
        let faults = &world.faults;
        let begin_s = faults.iter().map(|fault| fault.begin_s).reduce(f64::min)?;
        let end_s = faults.iter().map(|fault| fault.end_s).reduce(f64::max)?;
        let since = |at_s: f64| at_s - world.warm_up_s;
        Some(Self {
            during: Fates::of(records, begin_s..end_s),
            after: Fates::of(records, end_s..f64::INFINITY),
            served_again: served_again(records),
            recovered_s: windows.regained_s(since(begin_s), since(end_s)),
        })
    }

    /// Returns the mean of scores; a figure that some of them lack is the mean of the others, but a
    /// recovery that did not come once never comes on the mean. `None` if there are no scores.
    #[must_use]
    pub fn mean(scores: &[Self]) -> Option<Self> {
        let mean = |of: &dyn Fn(&Self) -> Option<f64>| {
            let known: Vec<f64> = scores.iter().filter_map(of).collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
        };
        let share = |of: &dyn Fn(&Self) -> f64| mean(&|score| Some(of(score)));
        let fates = |of: fn(&Self) -> Fates| {
            Some(Fates {
                answered: share(&|score| of(score).answered)?,
                shed: share(&|score| of(score).shed)?,
                failed: share(&|score| of(score).failed)?,
            })
        };
        let all_recovered = scores.iter().all(|score| score.recovered_s.is_some());
        Some(Self {
            during: fates(|score| score.during)?,
            after: fates(|score| score.after)?,
            served_again: mean(&|score| score.served_again),
            recovered_s: mean(&|score| score.recovered_s).filter(|_| all_recovered),
        })
    }
}

impl Fates {
    fn of(records: &[Record], seconds: Range<f64>) -> Self {
        let here: Vec<&Record> =
            records.iter().filter(|one| seconds.contains(&one.arrived_s)).collect();
        let share = |fate: Fate| {
            here.iter().filter(|one| one.fate == fate).count() as f64 / here.len().max(1) as f64
        };
        Self {
            answered: share(Fate::Answered),
            shed: share(Fate::Shed),
            // A request that does not end within the run got nothing in time.
            failed: share(Fate::Failed) + share(Fate::Open),
        }
    }
}

fn served_again(records: &[Record]) -> Option<f64> {
    let returns: u32 = records.iter().map(|one| one.returns).sum();
    let is_served = |one: &&Record| one.returns > 0 && one.fate == Fate::Answered;
    let served = records.iter().filter(is_served).count();
    (returns > 0).then(|| served as f64 / f64::from(returns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(arrived_s: f64, fate: Fate, returns: u32) -> Record {
        Record {
            region: 0,
            served_by: None,
            arrived_s,
            first_token_ms: None,
            ended_ms: None,
            prompt_tokens: 1,
            cached_tokens: 0,
            reply_tokens: 1,
            is_forwarded: false,
            fate,
            returns,
            asked_again_ms: 0.0,
        }
    }

    #[test]
    fn requests_count_by_their_fate_while_the_fault_lasts_and_later() {
        let records = [
            record(5.0, Fate::Failed, 0),
            record(10.0, Fate::Answered, 0),
            record(11.0, Fate::Shed, 1),
            record(19.9, Fate::Open, 0),
            record(19.9, Fate::Failed, 0),
            record(20.0, Fate::Answered, 3),
        ];
        let during = Fates::of(&records, 10.0..20.0);
        assert_eq!((during.answered, during.shed, during.failed), (0.25, 0.25, 0.5));
        assert_eq!(Fates::of(&records, 20.0..f64::INFINITY).answered, 1.0);
        // Clients retried four times, and one of them was served.
        assert_eq!(served_again(&records), Some(0.25));
        assert_eq!(served_again(&records[..2]), None);
    }

    #[test]
    fn a_mean_leaves_out_what_is_unknown_and_never_forgets_a_recovery_that_did_not_come() {
        let score = |served_again, recovered_s| FaultScore {
            during: Fates { answered: 0.5, shed: 0.0, failed: 0.5 },
            served_again,
            recovered_s,
            ..FaultScore::default()
        };
        let mean = FaultScore::mean(&[score(Some(1.0), Some(10.0)), score(None, None)]).unwrap();
        assert_eq!((mean.served_again, mean.recovered_s), (Some(1.0), None));
        assert_eq!(mean.during.failed, 0.5);
        let mean = FaultScore::mean(&[score(None, Some(10.0)), score(None, Some(30.0))]).unwrap();
        assert_eq!((mean.served_again, mean.recovered_s), (None, Some(20.0)));
        assert_eq!(FaultScore::mean(&[]), None);
    }
}
