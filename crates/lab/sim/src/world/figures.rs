//! Results of a run.

use spillway_engine::EngineConfig;

use super::World;
use super::record::{Record, Slo};
use super::request::Request;
use super::stream::StreamRecord;
use crate::Quantiles;

/// Results of a run, over the requests that arrived while it counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Number of requests.
    pub requests: usize,
    /// Requests without a first token in time: shed, refused or given up.
    pub failed: usize,
    /// Seconds that count.
    pub seconds: f64,
    /// Milliseconds to the first token at the client, of the requests that got one.
    pub first_token_ms: Quantiles,
    /// Milliseconds to the first token of each request; infinite for failed ones.
    pub first_tokens_ms: Vec<f64>,
    /// Part of all prompt tokens that was cached, 0 to 1.
    pub cached_share: f64,
    /// Part of all requests that another region served, 0 to 1.
    pub forwarded_share: f64,
    /// Part of all requests that waited in a node, 0 to 1.
    pub waited_share: f64,
    /// Fate of each request, in the order of their arrival.
    pub records: Vec<Record>,
    /// Number of the tenant of each request, in the same order.
    pub tenants: Vec<usize>,
    /// Stream of each request whose reply began, in the same order; empty unless streams are
    /// continued.
    pub streams: Vec<Option<StreamRecord>>,
    /// Results by region.
    pub regions: Vec<RegionFigures>,
}

/// Results of a region's replicas.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegionFigures {
    /// Work of the busiest replica over the mean of all. Work is the time of steps without the
    /// reading of weights.
    pub work_skew: f64,
    /// Requests of the replica that got most, over the mean of all.
    pub request_skew: f64,
    /// Seconds of work of each replica.
    pub work_s: Vec<f64>,
}

impl Figures {
    /// Returns the requests a second whose first token came within so many milliseconds.
    #[must_use]
    pub fn goodput_per_s(&self, within_ms: f64) -> f64 {
        let good = self.first_tokens_ms.iter().filter(|&&ms| ms <= within_ms).count();
        good as f64 / self.seconds.max(1e-9)
    }

    /// Returns the requests a second that met an objective on replicas with this engine.
    #[must_use]
    pub fn goodput_by(&self, slo: &Slo, engine: &EngineConfig) -> f64 {
        let good = self.records.iter().filter(|record| slo.is_good(record, engine)).count();
        good as f64 / self.seconds.max(1e-9)
    }

    /// Returns the 95th percentile of the milliseconds to the first token, of all requests: those
    /// without one count as the objective says.
    #[must_use]
    pub fn p95_ms(&self, slo: &Slo) -> f64 {
        let first_ms = |record: &Record| record.first_token_ms.unwrap_or(slo.failed_ms);
        Quantiles::of(self.records.iter().map(first_ms).collect()).p95
    }

    /// Returns the highest skew of work of all regions.
    #[must_use]
    pub fn work_skew(&self) -> f64 {
        self.regions.iter().map(|region| region.work_skew).fold(0.0, f64::max)
    }

    /// Returns the highest skew of requests of all regions.
    #[must_use]
    pub fn request_skew(&self) -> f64 {
        self.regions.iter().map(|region| region.request_skew).fold(0.0, f64::max)
    }
}

impl World {
    pub(super) fn figures(&self) -> Figures {
        let counted: Vec<&Request> = self.counted().map(|number| &self.requests[number]).collect();
        let begun: Vec<&&Request> =
            counted.iter().filter(|request| request.first_token_ms.is_some()).collect();
        let tokens = |of: fn(&Request) -> u32| {
            begun.iter().map(|request| f64::from(of(request))).sum::<f64>()
        };
        let records = self.records();
        // A request counts at the replica that it went to last.
        let mut served = vec![0.0; self.replicas.len()];
        counted.iter().filter_map(|request| request.replica).for_each(|at| served[at] += 1.0);
        Figures {
            requests: counted.len(),
            failed: counted.len() - begun.len(),
            seconds: self.config.end_s - self.config.warm_up_s,
            first_token_ms: Quantiles::of(
                begun.iter().filter_map(|request| request.first_token_ms).collect(),
            ),
            first_tokens_ms: counted
                .iter()
                .map(|request| request.first_token_ms.unwrap_or(f64::INFINITY))
                .collect(),
            cached_share: tokens(|request| request.cached_tokens)
                / tokens(|request| request.prompt_tokens).max(1.0),
            forwarded_share: records.iter().filter(|record| record.is_forwarded).count() as f64
                / records.len().max(1) as f64,
            waited_share: counted.iter().filter(|request| request.waited).count() as f64
                / counted.len().max(1) as f64,
            records,
            streams: self.stream_records(),
            tenants: counted.iter().map(|one| self.config.tenant_of(one.session)).collect(),
            regions: (0..self.regions.len())
                .map(|region| self.region_figures(region, &served))
                .collect(),
        }
    }

    fn records(&self) -> Vec<Record> {
        self.counted().map(|number| self.record(number)).collect()
    }

    /// Returns the requests of clients that count, by their numbers.
    fn counted(&self) -> impl Iterator<Item = usize> {
        let counts = |number: &usize| {
            let request = &self.requests[*number];
            request.part_of.is_none() && self.counts(request.arrived)
        };
        (0..self.requests.len()).filter(counts)
    }

    fn stream_records(&self) -> Vec<Option<StreamRecord>> {
        if !self.continues_streams() {
            return Vec::new();
        }
        self.counted().map(|number| Some(self.streams.get(&number)?.record)).collect()
    }

    fn record(&self, number: usize) -> Record {
        let request = &self.requests[number];
        let served_by = self.served_by(number);
        let is_central = self.config.central.is_some();
        let is_away = is_central && served_by.is_some_and(|region| region != request.region);
        Record {
            region: request.region,
            served_by,
            arrived_s: request.arrived.since_start().as_secs_f64(),
            first_token_ms: request.first_token_ms,
            ended_ms: request.ended_ms,
            prompt_tokens: request.prompt_tokens,
            cached_tokens: request.cached_tokens,
            reply_tokens: request.reply_tokens,
            is_forwarded: request.inquiry.hop > 0 || is_away,
            fate: request.fate,
            returns: request.returns,
            asked_again_ms: request.asked_again_ms,
        }
    }

    fn region_figures(&self, region: usize, served: &[f64]) -> RegionFigures {
        let range = self.regions[region].replicas.clone();
        let work_s: Vec<f64> =
            self.replicas[range.clone()].iter().map(|one| one.work.as_secs_f64()).collect();
        RegionFigures { work_skew: skew(&work_s), request_skew: skew(&served[range]), work_s }
    }
}

/// Returns the largest over the mean; 1 if the sum is 0.
fn skew(parts: &[f64]) -> f64 {
    let sum: f64 = parts.iter().sum();
    if sum <= 0.0 {
        return 1.0;
    }
    parts.iter().copied().fold(0.0, f64::max) * parts.len() as f64 / sum
}
