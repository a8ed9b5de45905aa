//! Report of the runs, as text.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// Results of one run.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) name: String,
    /// Prompt tokens from caches, of all.
    pub(crate) cached_share: f64,
    /// The busiest replica's work against its region's mean, in the worst region.
    pub(crate) skew: f64,
    /// Requests that another region served, of all.
    pub(crate) elsewhere_share: f64,
    pub(crate) ttft_ms: Vec<f64>,
    pub(crate) requests: usize,
    pub(crate) failed: usize,
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    // Exact, by hand: there are few values, and the buckets of a histogram would round them.
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

pub(crate) fn as_table(shown: &[Shown]) -> String {
    let mut text = String::from(
        "| policy and layout | cached tokens | of one router's | skew | elsewhere | first token p50 | p90 | p99 | requests | failed |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    let one = shown.first().map_or(f64::NAN, |first| first.cached_share);
    for row in shown {
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|share| quantile(&row.ttft_ms, share));
        let _ = writeln!(
            text,
            "| {} | {:.1} % | {:.1} % | {:.2} | {:.1} % | {p50:.0} ms | {p90:.0} ms | {p99:.0} ms | {} | {} |",
            row.name,
            row.cached_share * 100.0,
            row.cached_share / one * 100.0,
            row.skew,
            row.elsewhere_share * 100.0,
            row.requests,
            row.failed,
        );
    }
    text
}

pub(crate) fn as_json(shown: &[Shown]) -> String {
    let rows = shown.iter().map(|row| {
        let ttft_ms = [0.5, 0.9, 0.99].map(|share| quantile(&row.ttft_ms, share));
        json!({
            "name": row.name,
            "cached_share": row.cached_share,
            "skew": row.skew,
            "elsewhere_share": row.elsewhere_share,
            "ttft_ms": ttft_ms,
            "requests": row.requests,
            "failed": row.failed,
        })
    });
    Value::Array(rows.collect()).to_string()
}
