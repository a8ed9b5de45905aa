//! Conditions under which a cell is run, and the traces that some cells need.

use serde::{Deserialize, Serialize};

use crate::Tenant;

/// Conditions under which a cell is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// Nodes in each region; in one region only, if that one is central.
    pub nodes: usize,
    /// Replicas of each region; `None` for those of the cell.
    pub replicas: Option<Vec<usize>>,
    /// Milliseconds between two looks at a replica.
    pub signals_ms: f64,
    /// Milliseconds until nodes have read the KV events of a step of an engine, if they read them.
    pub kv_events_ms: f64,
    /// Share of the news between nodes that never arrives, 0 to 1.
    pub lost: f64,
    /// Share by which datagrams between nodes take longer at most, by chance.
    pub jitter: f64,
    /// Error of the round-trip times that nodes believe, as a part of them.
    pub rtt_error: f64,
    /// Error of the speeds that nodes learn, as a part of them.
    #[serde(default)]
    pub speed_error: f64,
    /// Region whose nodes serve all clients; `None` if each region has nodes.
    pub central: Option<usize>,
    /// Tenants among whom the sessions are divided; empty if all clients are one tenant.
    #[serde(skip)]
    pub tenants: Vec<Tenant>,
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
