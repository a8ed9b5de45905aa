//! Counters of a replica.

use serde::Serialize;
use spillway_engine::Stats;

use crate::ledger::RequestRecord;

/// Counters of a replica. `received` = `finished` + `aborted` + `rejected` + requests in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplicaStats {
    /// Inference requests that arrived; health, metrics and control requests don't count.
    pub received: u64,
    /// Requests that the engine accepted or that were served without it.
    pub started: u64,
    /// Requests whose whole reply was handed to the connection.
    pub finished: u64,
    /// Requests whose client disconnected, or that a crash or cut ended.
    pub aborted: u64,
    /// Requests answered with an error.
    pub rejected: u64,
    /// Requests that carried an `Authorization` header.
    pub authorization_seen: u64,
    /// Requests in the engine's batch now.
    pub running: u32,
    /// Requests that wait in the engine now.
    pub waiting: u32,
    /// The engine's own counters, since its last crash.
    pub engine: EngineStats,
    /// The last requests, oldest first.
    pub last_requests: Vec<RequestRecord>,
}

/// Counters of a replica's engine since its last crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EngineStats {
    /// KV blocks pinned by running requests.
    pub kv_blocks_used: u32,
    /// KV blocks that hold reusable prefixes.
    pub kv_blocks_cached: u32,
    /// KV blocks in total.
    pub kv_blocks_total: u32,
    /// Prompt tokens looked up in the prefix cache.
    pub prefix_cache_queries_tokens: u64,
    /// Prompt tokens found in the prefix cache.
    pub prefix_cache_hits_tokens: u64,
    /// Number of times that a running request lost its KV blocks.
    pub preemptions: u64,
    /// Prompt tokens processed, cached or not.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generation_tokens: u64,
    /// Steps of the engine.
    pub steps: u64,
}

impl From<Stats> for EngineStats {
    fn from(stats: Stats) -> Self {
        Self {
            kv_blocks_used: stats.kv_blocks_used,
            kv_blocks_cached: stats.kv_blocks_cached,
            kv_blocks_total: stats.kv_blocks_total,
            prefix_cache_queries_tokens: stats.prefix_cache_queries_tokens,
            prefix_cache_hits_tokens: stats.prefix_cache_hits_tokens,
            preemptions: stats.preemptions,
            prompt_tokens: stats.prompt_tokens,
            generation_tokens: stats.generation_tokens,
            steps: stats.steps,
        }
    }
}
