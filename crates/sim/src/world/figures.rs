//! What came of a run.

use std::time::Duration;

use serde::Serialize;

use super::World;
use super::request::Request;
use crate::Quantiles;

/// What came of a run, over the requests that arrived while it counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Requests.
    pub requests: usize,
    /// Of these, the ones that got no first token in time: shed, refused or given up.
    pub failed: usize,
    /// Seconds that count.
    pub seconds: f64,
    /// Milliseconds to the first token as clients see it; of those that got one.
    pub first_token_ms: Quantiles,
    /// Milliseconds to the last token.
    pub reply_ms: Quantiles,
    /// Each request's milliseconds to the first token, infinite for those that failed.
    #[serde(skip)]
    pub first_tokens_ms: Vec<f64>,
    /// Prompt tokens that were found in caches, of all.
    pub cached_share: f64,
    /// Requests that other regions served, of all.
    pub forwarded_share: f64,
    /// Requests that waited in a node, of all.
    pub waited_share: f64,
    /// How far the predicted time to the first token was from the seen one, as a part of the seen
    /// one; all 0 where nothing is predicted.
    pub prediction_error: Quantiles,
    /// By region.
    pub regions: Vec<RegionFigures>,
}

/// A region's replicas.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RegionFigures {
    /// What the busiest replica had to compute, over the mean of all: step time beyond the reading
    /// of the weights.
    pub work_skew: f64,
    /// Requests of the replica that got most, over the mean.
    pub request_skew: f64,
    /// Share of time that replicas were computing, on average.
    pub busy_share: f64,
    /// Share of the caches that running requests held, on average.
    pub kv_share: f64,
    /// Seconds of work of each replica.
    pub work_s: Vec<f64>,
}

impl Figures {
    /// Requests a second whose first token came within so many milliseconds.
    #[must_use]
    pub fn goodput_per_s(&self, within_ms: f64) -> f64 {
        let good = self.first_tokens_ms.iter().filter(|&&ms| ms <= within_ms).count();
        good as f64 / self.seconds.max(1e-9)
    }

    /// The highest skew of work of all regions.
    #[must_use]
    pub fn work_skew(&self) -> f64 {
        self.regions.iter().map(|region| region.work_skew).fold(0.0, f64::max)
    }

    /// The highest skew of requests of all regions.
    #[must_use]
    pub fn request_skew(&self) -> f64 {
        self.regions.iter().map(|region| region.request_skew).fold(0.0, f64::max)
    }

    /// Mean share of the caches that running requests held.
    #[must_use]
    pub fn kv_share(&self) -> f64 {
        let held = self.regions.iter().map(|region| region.kv_share).sum::<f64>();
        held / self.regions.len().max(1) as f64
    }

    /// Mean share of time that replicas were computing.
    #[must_use]
    pub fn busy_share(&self) -> f64 {
        let busy = self.regions.iter().map(|region| region.busy_share).sum::<f64>();
        busy / self.regions.len().max(1) as f64
    }
}

impl World {
    pub(super) fn figures(&self) -> Figures {
        let counted: Vec<&Request> =
            self.requests.iter().filter(|request| self.counts(request.arrived)).collect();
        let begun: Vec<&&Request> =
            counted.iter().filter(|request| request.first_token_ms.is_some()).collect();
        let share = |of: &dyn Fn(&Request) -> bool| {
            counted.iter().filter(|request| of(request)).count() as f64
                / counted.len().max(1) as f64
        };
        let tokens = |of: fn(&Request) -> u32| {
            begun.iter().map(|request| f64::from(of(request))).sum::<f64>()
        };
        Figures {
            requests: counted.len(),
            failed: counted.len() - begun.len(),
            seconds: self.config.end_s - self.config.warm_up_s,
            first_token_ms: Quantiles::of(
                begun.iter().filter_map(|request| request.first_token_ms).collect(),
            ),
            reply_ms: Quantiles::of(counted.iter().filter_map(|one| one.ended_ms).collect()),
            first_tokens_ms: counted
                .iter()
                .map(|request| request.first_token_ms.unwrap_or(f64::INFINITY))
                .collect(),
            cached_share: tokens(|request| request.cached_tokens)
                / tokens(|request| request.prompt_tokens).max(1.0),
            forwarded_share: share(&|request| request.inquiry.hop > 0),
            waited_share: share(&|request| request.waited),
            prediction_error: Quantiles::of(
                counted.iter().filter_map(|request| request.prediction_error).collect(),
            ),
            regions: (0..self.regions.len()).map(|region| self.region_figures(region)).collect(),
        }
    }

    fn region_figures(&self, region: usize) -> RegionFigures {
        let range = self.regions[region].replicas.clone();
        let work_s: Vec<f64> =
            self.replicas[range.clone()].iter().map(|one| one.work.as_secs_f64()).collect();
        let served = |replica: usize| {
            let at = |one: &&Request| one.replica == Some(replica) && self.counts(one.arrived);
            self.requests.iter().filter(at).count() as f64
        };
        let requests: Vec<f64> = range.clone().map(served).collect();
        let busy: Duration = self.replicas[range.clone()].iter().map(|one| one.busy).sum();
        let seconds = (self.config.end_s - self.config.warm_up_s) * range.len().max(1) as f64;
        RegionFigures {
            work_skew: skew(&work_s),
            request_skew: skew(&requests),
            busy_share: busy.as_secs_f64() / seconds.max(1e-9),
            kv_share: self.regions[region].kv_use.mean(),
            work_s,
        }
    }
}

/// The largest over the mean; 1 if there is nothing.
fn skew(parts: &[f64]) -> f64 {
    let sum: f64 = parts.iter().sum();
    if sum <= 0.0 {
        return 1.0;
    }
    parts.iter().copied().fold(0.0, f64::max) * parts.len() as f64 / sum
}
