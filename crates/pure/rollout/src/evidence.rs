//! Evidence against a claim about a share, valid at any time one looks.
//!
//! Of `total` trials `hits` had some property. The claim is that each has it with probability `p`.
//! The evidence is the likelihood of the trials when `p` is drawn from a beta distribution, over
//! their likelihood under the claim. While the claim is true that ratio is a martingale with mean
//! 1, so the chance that it *ever* exceeds `1/a` is at most `a` (Ville's inequality). That is what
//! lets a guard look after every request; a test of a fixed size repeated every second would find
//! a fault sooner or later where there is none. The mixture is Robbins' (1970); Howard, Ramdas,
//! McAuliffe and Sekhon (2021, "Time-uniform, nonparametric, nonasymptotic confidence sequences")
//! compare it with others. It depends on the two counts alone, so counts of many nodes are added
//! first and judged once.

use libm::lgamma;

/// Both parameters of the beta distribution (Jeffreys' prior). It gives weight to shares near 0,
/// where failures are.
const PRIOR: f64 = 0.5;

/// Trials and how many of them had the property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Trials with the property; at most `total`.
    pub(crate) hits: u64,
    /// All trials.
    pub(crate) total: u64,
}

impl Share {
    /// Returns the share of trials with the property, from 0 to 1; 0 without trials.
    pub(crate) fn value(self) -> f64 {
        if self.total == 0 { 0.0 } else { ratio(self.hits, self.total) }
    }

    /// Returns the evidence against the claim that the property has probability `p`, as a natural
    /// logarithm.
    pub(crate) fn against(self, p: f64) -> f64 {
        let (hits, misses) = (to_f64(self.hits), to_f64(self.total - self.hits));
        let mixture = ln_beta(PRIOR + hits, PRIOR + misses) - ln_beta(PRIOR, PRIOR);
        mixture - log_likelihood(hits, misses, p)
    }

    /// Returns the evidence against the claim that the property has probability `p` or more.
    pub(crate) fn against_at_least(self, p: f64) -> f64 {
        // The claim holds if one of its probabilities does; the likeliest is the hardest to refute.
        self.against(self.value().max(p))
    }

    /// Returns the evidence against the claim that the property has probability `p` or less.
    pub(crate) fn against_at_most(self, p: f64) -> f64 {
        self.against(self.value().min(p))
    }
}

/// Returns the evidence against the claim that the candidate's share exceeds the baseline's by
/// `margin` at most, as a natural logarithm.
///
/// The two may be counted in any order and at any speed. The result is the evidence against the
/// pair of probabilities that fits best among those that the claim allows.
pub(crate) fn against_no_worse(baseline: Share, candidate: Share, margin: f64) -> f64 {
    let joint = |p: f64| baseline.against(p) + candidate.against_at_most(p + margin);
    // `joint` is convex in `p`: the sum of two convex functions.
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..SEARCH_STEPS {
        let (left, right) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if joint(left) <= joint(right) {
            high = right;
        } else {
            low = left;
        }
    }
    joint(f64::midpoint(low, high))
}

/// Steps of the ternary search: each leaves two thirds, so these leave a billionth.
const SEARCH_STEPS: usize = 52;

fn log_likelihood(hits: f64, misses: f64, p: f64) -> f64 {
    // 0 * ln 0 is 0 here: what never happened says nothing against a probability of 0.
    let term = |count: f64, p: f64| if count == 0.0 { 0.0 } else { count * p.max(0.0).ln() };
    term(hits, p) + term(misses, 1.0 - p)
}

fn ln_beta(a: f64, b: f64) -> f64 {
    lgamma(a) + lgamma(b) - lgamma(a + b)
}

#[expect(clippy::cast_precision_loss, reason = "counts of requests are far below 2^53")]
pub(crate) fn to_f64(count: u64) -> f64 {
    count as f64
}

fn ratio(part: u64, whole: u64) -> f64 {
    to_f64(part) / to_f64(whole)
}

#[cfg(test)]
#[path = "evidence_test.rs"]
mod evidence_test;
