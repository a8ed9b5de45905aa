//! The demo's summary.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::demo::load::Tally;
use crate::demo::table::{milliseconds, percent};
use crate::demo::world::World;

/// What came of the load.
#[derive(Debug)]
pub(crate) struct Report {
    requests: u64,
    failures: u64,
    seconds: f64,
    first_byte_p50_ms: f64,
    first_byte_p95_ms: f64,
    finished_by_replica: Vec<u64>,
    tokens_out: u64,
    cached_percent: f64,
}

impl Report {
    pub(crate) fn new(world: &World, tally: &Tally, passed: Duration) -> Self {
        let stats: Vec<_> = world.emulator.replicas().iter().map(|r| r.stats()).collect();
        let sum = |pick: fn(&spillway_emulator::ReplicaStats) -> u64| stats.iter().map(pick).sum();
        let cached: u64 = sum(|stats| stats.engine.prefix_cache_hits_tokens);
        let asked: u64 = sum(|stats| stats.engine.prefix_cache_queries_tokens);
        Self {
            requests: tally.requests.load(Ordering::Relaxed),
            failures: tally.failures.load(Ordering::Relaxed),
            seconds: passed.as_secs_f64(),
            first_byte_p50_ms: milliseconds(tally.first_byte_at(0.5)),
            first_byte_p95_ms: milliseconds(tally.first_byte_at(0.95)),
            finished_by_replica: stats.iter().map(|stats| stats.finished).collect(),
            tokens_out: sum(|stats| stats.engine.generation_tokens),
            cached_percent: percent(cached, asked),
        }
    }

    pub(crate) fn text(&self) -> String {
        format!(
            "\n{} requests in {:.1} s ({:.0}/s), {} failed, {} tokens generated.\n\
             Time to first token: p50 {:.0} ms, p95 {:.0} ms. Prompt tokens served from caches: {:.0} %.\n\
             Requests by replica: {:?}",
            self.requests,
            self.seconds,
            self.requests as f64 / self.seconds,
            self.failures,
            self.tokens_out,
            self.first_byte_p50_ms,
            self.first_byte_p95_ms,
            self.cached_percent,
            self.finished_by_replica,
        )
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        json!({
            "requests": self.requests,
            "failures": self.failures,
            "seconds": self.seconds,
            "first_token_p50_ms": self.first_byte_p50_ms,
            "first_token_p95_ms": self.first_byte_p95_ms,
            "finished_by_replica": self.finished_by_replica,
            "tokens_out": self.tokens_out,
            "cached_percent": self.cached_percent,
        })
    }

    /// # Errors
    /// If the demo did not show what it is for.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(self.requests > 0, "no request succeeded");
        ensure!(self.failures == 0, "{} requests failed", self.failures);
        Ok(())
    }
}
