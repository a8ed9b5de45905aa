//! Score of a crowd: the requests of one run that all want the same thing at once.

use serde::{Deserialize, Serialize};

use crate::{Quantiles, Record, Slo};

/// Figures of a crowd in one run, or the mean of several ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CrowdScore {
    /// Number of requests.
    pub requests: f64,
    /// Requests without a whole reply, or with more time per token than the objective allows.
    pub slow: f64,
    /// Median of the time per token after the first one in milliseconds, of the whole replies.
    pub token_p50_ms: f64,
    /// 95th percentile of the same times.
    pub token_p95_ms: f64,
    /// 95th percentile of the time to first token in milliseconds, with failed requests at the time
    /// that the objective names for them.
    pub p95_ms: f64,
    /// Part of the requests that another region served, 0 to 1.
    pub forwarded_share: f64,
}

impl CrowdScore {
    /// Returns the figures of a crowd; `None` if there are no requests.
    pub(super) fn of(records: &[Record], slo: &Slo) -> Option<Self> {
        if records.is_empty() {
            return None;
        }
        let requests = records.len() as f64;
        let count = |is_so: &dyn Fn(&Record) -> bool| {
            records.iter().filter(|record| is_so(record)).count() as f64
        };
        let is_fast = |record: &Record| {
            record.ended_ms.is_some() && record.token_ms().is_none_or(|ms| ms <= slo.token_ms)
        };
        let token_ms = Quantiles::of(records.iter().filter_map(Record::token_ms).collect());
        let first_ms = |record: &Record| record.first_token_ms.unwrap_or(slo.failed_ms);
        Some(Self {
            requests,
            slow: requests - count(&is_fast),
            token_p50_ms: token_ms.p50,
            token_p95_ms: token_ms.p95,
            p95_ms: Quantiles::of(records.iter().map(first_ms).collect()).p95,
            forwarded_share: count(&|record| record.is_forwarded) / requests,
        })
    }

    /// Returns the mean of scores; `None` if there are none.
    pub(super) fn mean(scores: &[Self]) -> Option<Self> {
        let mean = |of: fn(&Self) -> f64| scores.iter().map(of).sum::<f64>() / scores.len() as f64;
        (!scores.is_empty()).then(|| Self {
            requests: mean(|score| score.requests),
            slow: mean(|score| score.slow),
            token_p50_ms: mean(|score| score.token_p50_ms),
            token_p95_ms: mean(|score| score.token_p95_ms),
            p95_ms: mean(|score| score.p95_ms),
            forwarded_share: mean(|score| score.forwarded_share),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fate;

    fn record(first_token_ms: Option<f64>, ended_ms: Option<f64>, is_forwarded: bool) -> Record {
        Record {
            region: 0,
            served_by: Some(0),
            arrived_s: 65.0,
            first_token_ms,
            ended_ms,
            prompt_tokens: 300,
            cached_tokens: 100,
            reply_tokens: 11,
            is_forwarded,
            fate: Fate::Answered,
            returns: 0,
            asked_again_ms: 0.0,
        }
    }

    #[test]
    fn replies_are_slow_if_tokens_come_late_or_not_at_all() {
        // 60 ms a token are still well, 61 are not.
        let crowd = [
            record(Some(100.0), Some(700.0), false),
            record(Some(100.0), Some(710.0), true),
            record(Some(100.0), None, false),
            record(None, None, false),
        ];
        let score = CrowdScore::of(&crowd, &Slo::A100).unwrap();
        assert_eq!((score.requests, score.slow, score.forwarded_share), (4.0, 3.0, 0.25));
        assert_eq!((score.token_p95_ms, score.p95_ms), (61.0, 60_000.0));
        assert_eq!(CrowdScore::of(&[], &Slo::A100), None);
    }

    #[test]
    fn a_mean_is_over_the_runs_that_had_a_crowd() {
        let [one, two] = [1.0, 3.0].map(|slow| CrowdScore { slow, ..CrowdScore::default() });
        assert_eq!(CrowdScore::mean(&[one, two]).unwrap().slow, 2.0);
        assert_eq!(CrowdScore::mean(&[]), None);
    }
}
