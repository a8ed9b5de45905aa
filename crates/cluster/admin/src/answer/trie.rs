//! Hot beginnings of prompts, by region.

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use spillway_cluster_state::{HotTrie, RegionBlocks, State};
use spillway_types::RegionName;
use tokio::task::spawn_blocking;

use super::cluster::Cluster;
use super::freshness::Freshness;
use crate::call::AdminCall;
use crate::error::ApiError;
use crate::records;
use crate::reply::{Reply, json};

/// Hot prompts in all regions. Blocks are named by keyed hashes: their text is known nowhere
/// outside of requests.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TrieAnswer {
    /// Freshness of the answer.
    #[serde(flatten)]
    pub(crate) freshness: Freshness,
    /// Number of the key that prompts are hashed with, counted up at each rotation.
    pub(crate) key_epoch: u64,
    /// Hot blocks of all regions; one that is hot in two counts twice.
    pub(crate) blocks: u64,
    /// Bytes that the hot blocks take on each node.
    pub(crate) bytes: u64,
    /// Entries of the log about hot blocks per second, in the last minute, on this node.
    pub(crate) entries_per_s: f64,
    /// Bytes of those entries per second.
    pub(crate) bytes_per_s: f64,
    /// Entries that this node put off since it started, for lack of room in its write budget.
    pub(crate) put_off: u64,
    /// Regions with hot blocks.
    pub(crate) regions: Vec<TrieRegion>,
    /// The hottest blocks, as many as were asked for.
    pub(crate) top: Vec<TrieBlock>,
}

/// Hot blocks of one region.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TrieRegion {
    /// Name of the region.
    pub(crate) region: String,
    /// Number of the region's hot blocks.
    pub(crate) blocks: u64,
    /// Bytes that those blocks take on each node.
    pub(crate) bytes: u64,
}

/// A hot block.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TrieBlock {
    /// Hash of the block, which stands for the prompt up to the block's end, in hexadecimal.
    pub(crate) block: String,
    /// Hash of the block before; null for the first block of a prompt.
    pub(crate) parent: Option<String>,
    /// Position in the prompt; 1 is the first block.
    pub(crate) depth: u16,
    /// Approximate number of requests for the block in its hottest region; older requests count
    /// less.
    pub(crate) heat: f64,
    /// Regions where the block is hot.
    pub(crate) regions: Vec<String>,
}

pub(super) async fn trie(cluster: &Cluster<'_>, call: &AdminCall) -> Result<Reply, ApiError> {
    // The trie is shared, so cloning it holds nothing up.
    let read = cluster.read(call, |state| (state.key_epoch(), state.hot().clone())).await?;
    let freshness = Freshness::of(&read, call.query.consistency);
    let (key_epoch, hot) = read.value;
    let (size, traffic) = (hot.stats(), cluster.control_plane.hints());
    let regions = hot.regions().map(|(name, blocks)| TrieRegion::of(name, blocks));
    let answer = TrieAnswer {
        freshness,
        key_epoch,
        blocks: size.blocks,
        bytes: size.bytes,
        entries_per_s: traffic.entries_per_s,
        bytes_per_s: traffic.bytes_per_s,
        put_off: traffic.put_off,
        regions: regions.collect(),
        top: hottest(hot.clone(), call.query.top).await?,
    };
    Ok(json(StatusCode::OK, &answer))
}

/// Returns the hottest blocks. Scanning all of them takes tens of milliseconds, so it runs on a
/// thread of its own.
async fn hottest(hot: HotTrie, count: usize) -> Result<Vec<TrieBlock>, ApiError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let looking = spawn_blocking(move || {
        let blocks = hot.hottest(count).into_iter().map(|block| TrieBlock {
            block: hexadecimal(block.hash),
            parent: (block.depth > 1).then(|| hexadecimal(block.parent)),
            depth: block.depth,
            // Heat is stored as twice its logarithm to base 2.
            heat: (f64::from(block.heat) / 2.0).exp2(),
            regions: block.regions.iter().map(ToString::to_string).collect(),
        });
        blocks.collect()
    });
    looking.await.map_err(|error| ApiError::internal(error.to_string()))
}

fn hexadecimal(hash: u64) -> String {
    format!("{hash:016x}")
}

/// Returns the size of all hot blocks, as a dry run shows it.
pub(super) fn size(state: &State) -> Value {
    let size = state.hot().stats();
    serde_json::json!({ "blocks": size.blocks, "bytes": size.bytes })
}

/// Returns the size of one region's hot blocks; `None` if there are none.
pub(super) fn size_of(state: &State, region: &RegionName) -> Option<Value> {
    let blocks = state.hot().region(region)?;
    Some(records::json(&TrieRegion::of(region, blocks)))
}

impl TrieRegion {
    fn of(name: &RegionName, blocks: &RegionBlocks) -> Self {
        Self {
            region: name.to_string(),
            blocks: blocks.entries().len() as u64,
            bytes: size_of_val(blocks.entries()) as u64,
        }
    }
}
