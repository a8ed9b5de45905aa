//! Conditions under which a cell is run, and the traces that some cells need.

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::Tenant;

/// Conditions under which a cell is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Args)]
#[serde(default)]
pub struct Conditions {
    /// Gateway nodes in each region; in one region only, if that one is central.
    #[arg(long = "region-nodes", default_value_t = 1, value_name = "N")]
    pub nodes: usize,
    /// Replicas of each region, such as 4,4,4; as the cell says if not given.
    #[arg(long = "region-replicas", value_delimiter = ',', value_name = "N,N,..")]
    pub replicas: Option<Vec<usize>>,
    /// Milliseconds between two looks at a replica, by which its signals are late.
    #[arg(long, default_value_t = 100.0, value_name = "MS", value_parser = positive)]
    pub signals_ms: f64,
    /// Milliseconds until nodes have read the KV events of a step of an engine, for routers that read
    /// them.
    #[arg(long, default_value_t = 10.0, value_name = "MS", value_parser = positive)]
    pub kv_events_ms: f64,
    /// Share of news between nodes and between regions that is lost, 0 to 1.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE", value_parser = share)]
    pub lost: f64,
    /// Share by which gossip between nodes takes longer at most, by chance.
    #[arg(long, default_value_t = 0.2, value_name = "SHARE", value_parser = positive)]
    pub jitter: f64,
    /// Error of the round-trip times that nodes believe: with 0.3, they are off by a factor between
    /// 1/1.3 and 1.3.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE", value_parser = positive)]
    pub rtt_error: f64,
    /// Error of the speeds of replicas that Spillway learns: with 0.3, they are off by a factor
    /// between 1/1.3 and 1.3.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE", value_parser = positive)]
    pub speed_error: f64,
    /// Region whose nodes serve all clients; `None` if each region has nodes.
    #[arg(skip)]
    pub central: Option<usize>,
    /// Tenants among whom the sessions are divided; empty if all clients are one tenant.
    #[arg(skip)]
    #[serde(skip)]
    pub tenants: Vec<Tenant>,
}

fn positive(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if value >= 0.0 { Ok(value) } else { Err("can't be negative".to_owned()) }
}

fn share(text: &str) -> Result<f64, String> {
    positive(text).and_then(|value| {
        if value <= 1.0 { Ok(value) } else { Err("is a share, 0 to 1".to_owned()) }
    })
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            nodes: 1,
            replicas: None,
            signals_ms: 100.0,
            kv_events_ms: 10.0,
            lost: 0.0,
            jitter: 0.2,
            rtt_error: 0.0,
            speed_error: 0.0,
            central: None,
            tenants: Vec::new(),
        }
    }
}

/// Texts of the recorded traces, which are not part of this project.
#[derive(Clone, Debug, Default)]
pub struct Traces {
    pub(super) mooncake: Option<String>,
    pub(super) azure_code: Option<String>,
}

impl Traces {
    /// Name of the conversation trace of Mooncake (<https://github.com/kvcache-ai/Mooncake>).
    pub const MOONCAKE: &'static str = "mooncake_conversation.jsonl";

    /// Name of the code trace of Azure, of 2023 (<https://github.com/Azure/AzurePublicDataset>).
    pub const AZURE_CODE: &'static str = "azure_llm_2023_code.csv";

    /// Returns the traces that `read` finds by their file names.
    #[must_use]
    pub fn new(read: impl Fn(&str) -> Option<String>) -> Self {
        Self { mooncake: read(Self::MOONCAKE), azure_code: read(Self::AZURE_CODE) }
    }
}
