//! Score of one run.

use serde::{Deserialize, Serialize};

use super::crowd_score::CrowdScore;
use super::fault_score::FaultScore;
use super::recovery::Windows;
use crate::{BYTES_PER_TOKEN, Figures, Quantiles, Record, Slo, WorldConfig};

/// Score of one run, or the mean of several ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Requests a second within the objective.
    pub goodput_per_s: f64,
    /// Requests a second within the objective if it counts from the last attempt of a client that
    /// retried at the promised time.
    #[serde(default)]
    pub useful_per_s: f64,
    /// Median of the time to first token in milliseconds, with failed requests at the time that the
    /// objective names for them.
    pub p50_ms: f64,
    /// 95th percentile of the same times.
    pub p95_ms: f64,
    /// Median of the time per token after the first one in milliseconds, of the requests with a whole
    /// reply of several tokens.
    #[serde(default)]
    pub token_p50_ms: f64,
    /// 95th percentile of the same times.
    #[serde(default)]
    pub token_p95_ms: f64,
    /// Part of all prompt tokens that was cached, 0 to 1.
    pub cached_share: f64,
    /// Part of all requests that another region served, 0 to 1.
    pub forwarded_share: f64,
    /// Bytes a second of prompts and replies that crossed from one region to another.
    pub egress_bytes_per_s: f64,
    /// Number of requests.
    pub requests: f64,
    /// Requests without a first token in time.
    pub failed: f64,
    /// Number of replicas in the world.
    pub gpus: f64,
    /// Good requests by time; empty in a mean.
    pub windows: Windows,
    /// Figures of the faults; `None` if nothing broke.
    #[serde(default)]
    pub faults: Option<FaultScore>,
    /// Figures of a crowd; `None` if there was none.
    #[serde(default)]
    pub crowd: Option<CrowdScore>,
}

impl Score {
    /// Returns the score of a run of a world by an objective. It is read from the records of the
    /// figures alone, which may be a part of them.
    #[must_use]
    pub fn of(figures: &Figures, slo: &Slo, world: &WorldConfig) -> Self {
        let records = &figures.records;
        let mut times: Vec<f64> =
            records.iter().map(|one| one.first_token_ms.unwrap_or(slo.failed_ms)).collect();
        times.sort_unstable_by(f64::total_cmp);
        let median = times.get(times.len() / 2).copied();
        let good = records.iter().filter(|record| slo.is_good(record, &world.engine));
        let begun = || records.iter().filter(|record| record.first_token_ms.is_some());
        let tokens = |of: fn(&Record) -> u32| begun().map(|one| f64::from(of(one))).sum::<f64>();
        let requests = records.len() as f64;
        let forwarded = records.iter().filter(|record| record.is_forwarded).count() as f64;
        let bytes: f64 = records.iter().map(|one| egress_bytes(one, world.central)).sum();
        let token_ms = Quantiles::of(records.iter().filter_map(Record::token_ms).collect());
        let windows = Windows::of(good.map(|record| record.arrived_s - world.warm_up_s));
        Self {
            goodput_per_s: figures.goodput_by(slo, &world.engine),
            useful_per_s: records
                .iter()
                .filter(|one| slo.is_good(&one.as_asked_last(), &world.engine))
                .count() as f64
                / figures.seconds.max(1e-9),
            p50_ms: median.unwrap_or(slo.failed_ms),
            p95_ms: figures.p95_ms(slo),
            token_p50_ms: token_ms.p50,
            token_p95_ms: token_ms.p95,
            cached_share: tokens(|one| one.cached_tokens)
                / tokens(|one| one.prompt_tokens).max(1.0),
            forwarded_share: forwarded / requests.max(1.0),
            egress_bytes_per_s: bytes / figures.seconds.max(1e-9),
            requests,
            failed: requests - begun().count() as f64,
            gpus: world.regions.iter().map(|region| region.replicas).sum::<usize>() as f64,
            faults: FaultScore::of(records, &windows, world),
            crowd: None,
            windows,
        }
    }

    /// Returns this score with the figures of a crowd of these requests; unchanged if there are none.
    #[must_use]
    pub fn with_crowd(self, crowd: &[Record], slo: &Slo) -> Self {
        Self { crowd: CrowdScore::of(crowd, slo), ..self }
    }

    /// Returns the mean of scores, without windows; all 0 if there are none.
    #[must_use]
    pub fn mean(scores: &[&Self]) -> Self {
        let mean = |of: fn(&Self) -> f64| {
            scores.iter().map(|score| of(score)).sum::<f64>() / scores.len().max(1) as f64
        };
        let crowds: Vec<CrowdScore> = scores.iter().filter_map(|score| score.crowd).collect();
        let faults: Vec<FaultScore> = scores.iter().filter_map(|score| score.faults).collect();
        Self {
            goodput_per_s: mean(|score| score.goodput_per_s),
            useful_per_s: mean(|score| score.useful_per_s),
            p50_ms: mean(|score| score.p50_ms),
            p95_ms: mean(|score| score.p95_ms),
            token_p50_ms: mean(|score| score.token_p50_ms),
            token_p95_ms: mean(|score| score.token_p95_ms),
            cached_share: mean(|score| score.cached_share),
            forwarded_share: mean(|score| score.forwarded_share),
            egress_bytes_per_s: mean(|score| score.egress_bytes_per_s),
            requests: mean(|score| score.requests),
            failed: mean(|score| score.failed),
            gpus: mean(|score| score.gpus),
            windows: Windows::default(),
            faults: FaultScore::mean(&faults),
            crowd: CrowdScore::mean(&crowds),
        }
    }
}

/// Returns the bytes of a request that crossed from one region to another. With a central router a
/// request crosses to reach the router, and again from there to a replica in another region.
fn egress_bytes(record: &Record, central: Option<usize>) -> f64 {
    let Some(served_by) = record.served_by else { return 0.0 };
    let router = central.unwrap_or(record.region);
    let ways = u32::from(record.region != router) + u32::from(router != served_by);
    let tokens = record.prompt_tokens + record.reply_tokens;
    f64::from(ways) * f64::from(tokens) * f64::from(BYTES_PER_TOKEN)
}

#[cfg(test)]
mod score_test;
