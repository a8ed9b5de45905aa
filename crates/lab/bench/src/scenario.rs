//! Scenarios of a comparison: load, backends and target of each.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::{
    arrivals::ArrivalPace,
    backend::BackendAnswer,
    client::BenchReply,
    load::{LoadSpec, Protocol},
};

/// Size in bytes of answers that are not streams.
const REPLY_BYTES: usize = 512;

/// Kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scenario {
    /// 1 KB requests in a closed loop.
    #[value(name = "rps_1k")]
    #[serde(rename = "rps_1k")]
    Rps1k,
    /// 16 KB requests in a closed loop.
    #[value(name = "rps_16k")]
    #[serde(rename = "rps_16k")]
    Rps16k,
    /// 128 KB requests in a closed loop.
    #[value(name = "rps_128k")]
    #[serde(rename = "rps_128k")]
    Rps128k,
    /// 1 KB requests at 500 per second.
    #[value(name = "open_500")]
    #[serde(rename = "open_500")]
    Open500,
    /// Streams with a token every 5 ms.
    #[value(name = "sse_paced")]
    SsePaced,
    /// Streams as fast as the sockets take them.
    #[value(name = "sse_saturated")]
    SseSaturated,
    /// 1 KB requests in a closed loop, all over one HTTP/2 connection.
    #[value(name = "h2_200")]
    #[serde(rename = "h2_200")]
    H2Streams200,
}

/// Unit of CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CpuUnit {
    /// CPU seconds per 10,000 requests.
    Requests10k,
    /// CPU seconds per 1,000,000 tokens.
    Tokens1M,
}

/// Limit that Spillway must keep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BenchTarget {
    /// Largest CPU time per unit, as a multiple of nginx's in the same round.
    CpuRatioMax(f64),
    /// Largest median latency over that without a proxy, in microseconds.
    AddedP50UsMax(f64),
}

impl Scenario {
    /// Describes the scenario in one line.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::Rps1k => "1 KB chat requests, 64 connections, closed loop",
            Self::Rps16k => "16 KB chat requests, 64 connections, closed loop",
            Self::Rps128k => "128 KB chat requests, 64 connections, closed loop",
            Self::Open500 => "1 KB chat requests at 500 per second, latency from the due time",
            Self::SsePaced => "64 streams of 200 tokens, one every 5 ms",
            Self::SseSaturated => "64 streams of 500 tokens, as fast as they go",
            Self::H2Streams200 => "1 KB chat requests, 200 streams of one HTTP/2 connection",
        }
    }

    /// Returns the load with these times.
    pub(crate) fn load(self, warm_up: Duration, window: Duration) -> LoadSpec {
        LoadSpec {
            clients: if self == Self::H2Streams200 { 200 } else { 64 },
            protocol: match self {
                Self::H2Streams200 => Protocol::Http2,
                _ => Protocol::Http1,
            },
            pace: if self == Self::Open500 {
                ArrivalPace::Rate(500.0)
            } else {
                ArrivalPace::Closed
            },
            body_bytes: match self {
                Self::Rps16k => 16 * 1024,
                Self::Rps128k => 128 * 1024,
                _ => 1024,
            },
            reply: match self.answer() {
                BackendAnswer::Json { .. } => BenchReply::Whole,
                BackendAnswer::Stream { tokens, .. } => BenchReply::Stream { tokens: Some(tokens) },
            },
            ramp: match self.answer() {
                BackendAnswer::Json { .. } => Duration::ZERO,
                BackendAnswer::Stream { tokens, interval } => {
                    interval * u32::try_from(tokens).unwrap_or(u32::MAX)
                }
            },
            warm_up,
            window,
        }
    }

    /// Returns the backends' answer.
    pub(crate) fn answer(self) -> BackendAnswer {
        match self {
            Self::SsePaced => {
                BackendAnswer::Stream { tokens: 200, interval: Duration::from_millis(5) }
            }
            Self::SseSaturated => BackendAnswer::Stream { tokens: 500, interval: Duration::ZERO },
            _ => BackendAnswer::Json { bytes: REPLY_BYTES },
        }
    }

    /// Returns the unit of CPU time.
    pub(crate) fn cpu_unit(self) -> CpuUnit {
        match self.answer() {
            BackendAnswer::Json { .. } => CpuUnit::Requests10k,
            BackendAnswer::Stream { .. } => CpuUnit::Tokens1M,
        }
    }

    /// Returns the target; `None` if the figures only inform.
    pub(crate) fn target(self) -> Option<BenchTarget> {
        match self {
            Self::Rps1k => Some(BenchTarget::CpuRatioMax(1.3)),
            Self::Rps128k => Some(BenchTarget::CpuRatioMax(1.0)),
            Self::SsePaced | Self::SseSaturated => Some(BenchTarget::CpuRatioMax(1.2)),
            Self::Open500 => Some(BenchTarget::AddedP50UsMax(250.0)),
            Self::Rps16k | Self::H2Streams200 => None,
        }
    }

    /// Returns true if the backends speak the clients' protocol, so that a run without a proxy is
    /// possible.
    pub(crate) fn has_direct(self) -> bool {
        self != Self::H2Streams200
    }
}

impl CpuUnit {
    /// Returns the unit as a column title.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Requests10k => "CPU s/10k",
            Self::Tokens1M => "CPU s/1M",
        }
    }
}
