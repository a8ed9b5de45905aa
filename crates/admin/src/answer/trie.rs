//! Which beginnings of prompts are hot, and where.

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use spillway_control::{HotTrie, RegionBlocks, State};
use spillway_types::RegionName;
use tokio::task::spawn_blocking;

use super::{Cluster, Freshness};
use crate::call::Call;
use crate::error::ApiError;
use crate::records;
use crate::reply::{Reply, json};

/// What is known of prompts in all regions. Blocks are named by keyed hashes: what they stand for
/// is known nowhere outside of requests.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TrieAnswer {
    /// How fresh it is.
    #[serde(flatten)]
    pub(crate) freshness: Freshness,
    /// Counts the keys with which prompts were hashed.
    pub(crate) key_epoch: u64,
    /// Hot blocks of all regions; one that is hot in two counts twice.
    pub(crate) blocks: u64,
    /// Bytes that they take on each node.
    pub(crate) bytes: u64,
    /// Entries of the log about them a second, in the last minute, on this node.
    pub(crate) entries_per_s: f64,
    /// Their bytes a second.
    pub(crate) bytes_per_s: f64,
    /// Entries that this node put off since it started, for want of room in its write budget.
    pub(crate) put_off: u64,
    /// Regions with hot blocks.
    pub(crate) regions: Vec<TrieRegion>,
    /// The hottest blocks, as many as were asked for.
    pub(crate) top: Vec<TrieBlock>,
}

/// What is hot in one region.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TrieRegion {
    /// The region.
    pub(crate) region: String,
    /// Its hot blocks.
    pub(crate) blocks: u64,
    /// Bytes that they take on each node.
    pub(crate) bytes: u64,
}

/// A hot block.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TrieBlock {
    /// Its hash, which stands for the prompt up to its end, in hexadecimal.
    pub(crate) block: String,
    /// Its place in the prompt; 1 is the first block.
    pub(crate) depth: u16,
    /// About how many requests asked for it where it is hottest; older ones count less.
    pub(crate) heat: f64,
    /// Where it is hot.
    pub(crate) regions: Vec<String>,
}

pub(super) async fn trie(cluster: &Cluster<'_>, call: &Call) -> Result<Reply, ApiError> {
    // The trie is shared, so that nothing is held up while it is looked at.
    let read = cluster.read(call, |state| (state.key_epoch(), state.hot().clone())).await?;
    let freshness = Freshness::of(&read, call.query.consistency);
    let (key_epoch, hot) = read.value;
    let (size, traffic) = (hot.stats(), cluster.agreement.hints());
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

/// The hottest blocks. All of them are looked at, which takes tens of milliseconds: nothing else
/// waits for that.
async fn hottest(hot: HotTrie, count: usize) -> Result<Vec<TrieBlock>, ApiError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let looking = spawn_blocking(move || {
        let blocks = hot.hottest(count).into_iter().map(|block| TrieBlock {
            block: format!("{:016x}", block.hash),
            depth: block.depth,
            heat: (f64::from(block.heat) / 2.0).exp2(),
            regions: block.regions.iter().map(ToString::to_string).collect(),
        });
        blocks.collect()
    });
    looking.await.map_err(|error| ApiError::internal(error.to_string()))
}

/// All that is hot, as a dry run shows it.
pub(super) fn size(state: &State) -> Value {
    let size = state.hot().stats();
    serde_json::json!({ "blocks": size.blocks, "bytes": size.bytes })
}

/// What is hot in one region, if anything is.
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
