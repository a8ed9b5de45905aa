//! Comparison of a candidate with its baseline.

use std::fmt;

use serde::{Deserialize, Serialize};
use spillway_types::reasons;

use crate::evidence::{self, Share};
use crate::figures::ArmFigures;
use crate::log_histogram::{LogHistogram, buckets_of_factor};

/// Quantile of times that is compared: what the slowest tenth of the requests waits is what users
/// complain of, and twice as slow shows there after as many requests as at the median.
const SLOW_QUANTILE: f64 = 0.9;
/// Quantile of tokens that is compared.
const MIDDLE: f64 = 0.5;

/// Rules by which a candidate is compared with its baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guard {
    margins: Margins,
    /// Natural logarithm of the evidence that one test needs.
    threshold: f64,
}

/// Differences from the baseline that are accepted; `None` does not compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Margins {
    /// Share of failed requests above the baseline's, from 0 to 1: 0.01 accepts 2 % beside 1 %.
    pub failed: Option<f64>,
    /// Time to the first token above the baseline's (p90), as a share of it: 0.2 accepts 120 ms
    /// beside 100 ms.
    pub first_token: Option<f64>,
    /// Time per token above the baseline's (p90), as a share of it.
    pub token_time: Option<f64>,
    /// Tokens of a reply above or below the baseline's (median), as a share of the smaller one.
    pub tokens: Option<f64>,
}

reasons! {
    /// Property by which arms are compared.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum Measure {
        /// Share of failed requests.
        Failed = "failed";
        /// Time to the first token, at the 90th percentile.
        FirstToken = "first_token";
        /// Time per token, at the 90th percentile.
        TokenTime = "token_time";
        /// Tokens of a reply, at the median.
        Tokens = "tokens";
    }
}

/// Comparison of the two arms by one measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// What was compared.
    pub measure: Measure,
    /// The baseline's figure: a share, milliseconds at p90, or tokens at the median. `None` without
    /// requests.
    pub baseline: Option<f64>,
    /// The candidate's figure, likewise.
    pub candidate: Option<f64>,
    /// Evidence against the claim that the candidate is within its margin, as a share of what the
    /// guard needs: from 1 on the candidate is worse. It is logarithmic; values below 0 support
    /// the claim.
    pub evidence: f64,
}

/// Result of a comparison by all measures.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// Nothing speaks against the candidate.
    Good,
    /// The candidate may be worse by this measure. More requests will tell.
    Doubtful(Finding),
    /// The candidate is worse by this measure.
    Worse(Finding),
}

/// Evidence, as a share of what is needed, from which a candidate is doubtful: the chance that a
/// good one ever is lies at the square root of the configured one.
const DOUBT: f64 = 0.5;

/// Error for rules by which nothing can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    /// The chance is not above 0 and below 1.
    #[error("the share of false alarms is not above 0 and below 100 %")]
    FalseAlarms,
    /// A margin is negative or no number.
    #[error("the margin of {0} is negative")]
    Margin(Measure),
}

impl Guard {
    /// Prepares a guard that finds fault with a candidate as good as the baseline in a share of
    /// `false_alarms` of all rollouts of `steps` steps at most.
    ///
    /// # Errors
    ///
    /// Returns an error unless `false_alarms` is above 0 and below 1 and all margins are 0 or more.
    pub fn new(margins: Margins, false_alarms: f64, steps: u32) -> Result<Self, GuardError> {
        if !(false_alarms > 0.0 && false_alarms < 1.0) {
            return Err(GuardError::FalseAlarms);
        }
        let mut tests = 0;
        for (measure, margin) in margins.each() {
            if margin.is_nan() || margin < 0.0 {
                return Err(GuardError::Margin(measure));
            }
            // Tokens are compared in both directions.
            tests += if measure == Measure::Tokens { 2 } else { 1 };
        }
        // Each test of each step gets its part of the chance. The counts begin anew with each step,
        // since shares of traffic that change would mix requests of different hours.
        let parts = f64::from(tests.max(1)) * f64::from(steps.max(1));
        Ok(Self { margins, threshold: (parts / false_alarms).ln() })
    }

    /// Compares by each measure that has a margin.
    #[must_use]
    pub fn findings(&self, baseline: &ArmFigures, candidate: &ArmFigures) -> Vec<Finding> {
        let compare = |(measure, margin)| self.finding(measure, margin, baseline, candidate);
        self.margins.each().map(compare).collect()
    }

    /// Returns what the comparison by all measures comes to.
    #[must_use]
    pub fn judge(&self, baseline: &ArmFigures, candidate: &ArmFigures) -> Judgement {
        let findings = self.findings(baseline, candidate);
        let worst = findings.into_iter().max_by(|a, b| a.evidence.total_cmp(&b.evidence));
        match worst {
            Some(worst) if worst.evidence >= 1.0 => Judgement::Worse(worst),
            Some(worst) if worst.evidence >= DOUBT => Judgement::Doubtful(worst),
            _ => Judgement::Good,
        }
    }

    fn finding(
        &self,
        measure: Measure,
        margin: f64,
        baseline: &ArmFigures,
        candidate: &ArmFigures,
    ) -> Finding {
        let shift = buckets_of_factor(1.0 + margin);
        let (figures, evidence) = match measure {
            Measure::Failed => {
                let (base, other) = (baseline.failures(), candidate.failures());
                let figure = |share: Share| (share.total > 0).then(|| share.value());
                ([figure(base), figure(other)], evidence::against_no_worse(base, other, margin))
            }
            Measure::Tokens => {
                let (base, other) = (&baseline.tokens, &candidate.tokens);
                let more = against_no_more(base, other, MIDDLE, shift);
                let fewer = against_no_more(other, base, MIDDLE, shift);
                ([base, other].map(|it| it.quantile(MIDDLE)), more.max(fewer))
            }
            Measure::FirstToken | Measure::TokenTime => {
                let of = |arm| match measure {
                    Measure::FirstToken => time_to_first(arm),
                    _ => time_per_token(arm),
                };
                let (base, other) = (of(baseline), of(candidate));
                let evidence = against_no_more(base, other, SLOW_QUANTILE, shift);
                ([base, other].map(|it| it.quantile(SLOW_QUANTILE)), evidence)
            }
        };
        let [baseline, candidate] = figures;
        Finding { measure, baseline, candidate, evidence: evidence / self.threshold }
    }
}

fn time_to_first(arm: &ArmFigures) -> &LogHistogram {
    &arm.first_token_ms
}

fn time_per_token(arm: &ArmFigures) -> &LogHistogram {
    &arm.token_ms
}

/// Returns the evidence against the claim that the candidate's quantile is at most `shift` buckets
/// above the baseline's, as a natural logarithm.
///
/// Where the baseline's quantile lies is not known, so the claim is judged for each bucket that it
/// may be in, and the one that fits best counts (Howard and Ramdas, 2022, "Sequential estimation
/// of quantiles", use the same step for one sample). Nothing is assumed about the distributions.
fn against_no_more(
    baseline: &LogHistogram,
    candidate: &LogHistogram,
    quantile: f64,
    shift: u16,
) -> f64 {
    let share = |histogram: &LogHistogram, number: Option<u16>| {
        let hits = number.map_or(0, |number| histogram.up_to(number));
        Share { hits, total: histogram.count() }
    };
    let against = |number: u16| {
        let at_most = share(baseline, number.checked_sub(1)).against_at_most(quantile);
        let at_least = share(baseline, Some(number)).against_at_least(quantile);
        let reached = share(candidate, Some(number.saturating_add(shift)));
        log_mean(at_most, at_least) + reached.against_at_least(quantile)
    };
    // Between these the evidence does not change.
    let of_baseline = baseline.numbers().flat_map(|number| [number, number + 1]);
    let of_candidate = candidate.numbers().map(|number| number.saturating_sub(shift));
    of_baseline.chain(of_candidate).chain([0]).map(against).fold(f64::INFINITY, f64::min)
}

/// Returns the logarithm of the mean of two numbers, from their logarithms. The mean of two
/// martingales is one.
fn log_mean(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    if high == f64::INFINITY {
        return high;
    }
    high + ((low - high).exp() / 2.0 + 0.5).ln()
}

impl Margins {
    /// Returns the measures that are compared.
    fn each(&self) -> impl Iterator<Item = (Measure, f64)> {
        let all = [
            (Measure::Failed, self.failed),
            (Measure::FirstToken, self.first_token),
            (Measure::TokenTime, self.token_time),
            (Measure::Tokens, self.tokens),
        ];
        all.into_iter().filter_map(|(measure, margin)| Some((measure, margin?)))
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "failed requests",
            Self::FirstToken => "time to first token",
            Self::TokenTime => "time per token",
            Self::Tokens => "tokens per reply",
        })
    }
}

#[cfg(test)]
#[path = "guard_test.rs"]
mod guard_test;
