//! Memory of a node: caches and speeds.

use std::sync::Arc;

use spillway_prefix::{
    FineIndex, HeatConfig, HeatTracker, HotDelta, HotView, IndexConfig, IndexReader, Matches,
};
use spillway_route::{LatencyModel, ObservedLatency};
use spillway_types::{Holder, Speed};

use super::spillway::{RouterConfig, identity};
use super::{Ended, Replied, Sent, region_name};
use crate::text::{ENGINE_BLOCK_TOKENS, ENGINE_BLOCKS_PER_BLOCK};

/// Tokens of one of the router's blocks.
pub(super) const BLOCK_TOKENS: u32 = ENGINE_BLOCK_TOKENS * ENGINE_BLOCKS_PER_BLOCK as u32;

/// Parts of a node that learn.
#[derive(Debug)]
pub(super) struct Memory {
    index: FineIndex,
    reader: IndexReader,
    holders: Vec<Option<Holder>>,
    heat: HeatTracker,
    hot: Arc<HotView>,
    models: Vec<LatencyModel>,
    /// Blocks of the present request's prompt at each replica.
    matches: Matches,
    /// Blocks of the present request's prompt in each region of `hot`.
    depths: Vec<u32>,
}

impl Memory {
    pub(super) fn new(config: &RouterConfig, region: usize, replicas: usize) -> Self {
        let (mut index, reader) = FineIndex::new(IndexConfig::default());
        let holders: Vec<_> =
            (0..replicas).map(|replica| index.holder(identity(region, replica))).collect();
        for holder in holders.iter().flatten() {
            // Replicas report the size of their caches, so the index need not assume one.
            index.set_capacity(*holder, config.speed.kv_tokens as u32 / BLOCK_TOKENS);
        }
        let mut model = LatencyModel::new(config.speed);
        model.set_kv_tokens(config.speed.kv_tokens);
        Self {
            index,
            reader,
            holders,
            heat: HeatTracker::new(HeatConfig::default()),
            hot: Arc::default(),
            models: vec![model; replicas],
            matches: Matches::new(),
            depths: Vec::new(),
        }
    }

    /// Looks up a prompt, for the calls that follow.
    pub(super) fn look_up(&mut self, chain: &[u64]) {
        self.reader.lookup(chain, &mut self.matches);
        self.depths.resize(self.hot.regions().len(), 0);
        self.hot.lookup(chain, &mut self.depths);
    }

    /// Returns the leading blocks of the prompt that a replica is expected to hold.
    pub(super) fn blocks(&self, replica: usize) -> u32 {
        self.holders[replica].map_or(0, |holder| self.matches.blocks(holder))
    }

    /// Returns the leading blocks of the prompt that another region is expected to hold.
    pub(super) fn hot_blocks(&self, region: usize) -> u32 {
        let name = region_name(region);
        let at = self.hot.regions().iter().position(|known| *known == name);
        at.and_then(|at| self.depths.get(at)).copied().unwrap_or(0)
    }

    /// Returns the learned speed of a replica.
    pub(super) fn speed(&self, replica: usize, now_ms: u64) -> Speed {
        self.models[replica].speed(now_ms)
    }

    pub(super) fn sent(&mut self, sent: &Sent<'_>) {
        if let Some(holder) = self.holders[sent.replica] {
            self.index.insert(holder, sent.chain);
        }
        self.heat.note(sent.chain, sent.now_ms);
    }

    pub(super) fn replied(&mut self, replied: &Replied<'_>) {
        if let Some(holder) = self.holders[replied.replica] {
            // The reply tells what really was cached; the index only assumed it.
            self.index.correct(holder, replied.chain, replied.cached_tokens / BLOCK_TOKENS);
        }
        let prediction = replied.prediction.unwrap_or_default();
        let seen = ObservedLatency {
            prompt_tokens: replied.prompt_tokens as f32,
            cached_tokens: replied.cached_tokens as f32,
            ..ObservedLatency::of(&prediction, replied.first_token_ms as f32)
        };
        let model = &mut self.models[replied.replica];
        model.learn(&seen, replied.now_ms);
        model.learn_text(replied.prompt_bytes as f32, replied.prompt_tokens as f32);
    }

    pub(super) fn ended(&mut self, ended: &Ended) {
        self.models[ended.replica].learn_decode(ended.tokens as f32, ended.span_ms as f32);
    }

    pub(super) fn hot_delta(&mut self, now_ms: u64) -> HotDelta {
        let index = &self.index;
        self.heat.delta(now_ms, |block| index.is_held(block))
    }

    pub(super) fn hot_changed(&mut self, view: &Arc<HotView>) {
        self.hot = Arc::clone(view);
    }
}
