//! Needs of a plan beside replicas: processor time, memory and bandwidth of the gateways.

use std::fmt::Write;

use spillway_sim::Sizing;

use super::check::{Check, WORK};

/// Processor time in microseconds of a request of 16 KB, and of a relayed token: more than in
/// docs/measured/peers.md, since machines differ.
const REQUEST_US: f64 = 79.0;
const TOKEN_US: f64 = 20.6;
/// Additional processor time in microseconds, at both nodes together, for a request to another
/// region: docs/measured/links.md.
const FORWARDED_US: f64 = 337.0;
/// Seconds per token of a reply.
const TOKEN_S: f64 = 0.14;
/// Bytes of a prompt token, and of a streamed token's event.
const PROMPT_TOKEN_BYTES: f64 = 4.0;
const EVENT_BYTES: f64 = 200.0;
/// Bytes of a stream, its connections included: docs/measured/scale.md.
const STREAM_BYTES: f64 = 37_900.0;

/// Returns a table of the needs of each region's gateways at their highest load.
pub(super) fn table(sizing: &Sizing, checks: &[Check]) -> String {
    let hour = sizing.curve.busiest_h(&sizing.regions);
    let demands = sizing.curve.demands_per_s(&sizing.regions, hour);
    let forwarded = |check: &Check| check.demand_per_s * check.figures.forwarded_share;
    let spilled_per_s =
        checks.iter().filter(|check| check.must_meet).map(forwarded).fold(0.0, f64::max);
    let mut text = format!(
        "**Gateways** of a region while it stands in for the one that asks most, with {spilled_per_s:.1} requests/s spilled:\n\n\
         | region | requests/s | cores | open streams | their memory |\n|---|--:|--:|--:|--:|\n"
    );
    for (at, region) in sizing.regions.iter().enumerate() {
        let lost = (0..demands.len()).filter(|lost| sizing.stand_ins[*lost] == at);
        let more = lost.map(|lost| demands[lost]).fold(0.0, f64::max);
        let rate = (demands[at] + more).max(region.peak_per_s);
        let request_us = REQUEST_US + WORK.reply_tokens * TOKEN_US;
        let cores = (rate * request_us + spilled_per_s * FORWARDED_US) / 1e6;
        let streams = rate * WORK.reply_tokens * TOKEN_S;
        let _infallible = writeln!(
            text,
            "| {} | {rate:.1} | {cores:.2} | {streams:.0} | {:.1} MB |",
            region.name,
            streams * STREAM_BYTES / 1e6
        );
    }
    let bytes = WORK.prompt_tokens * PROMPT_TOKEN_BYTES + WORK.reply_tokens * EVENT_BYTES;
    let _infallible = writeln!(
        text,
        "\n**Between regions**: {bytes:.0} bytes a spilled request, {:.2} Mbit/s.",
        spilled_per_s * bytes * 8.0 / 1e6
    );
    text
}
