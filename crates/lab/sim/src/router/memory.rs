//! Memory of a node: caches and speeds.

use std::sync::Arc;

use spillway_prefix::{
    FineIndex, HeatConfig, HeatTracker, HotDelta, HotView, IndexConfig, IndexReader, Matches,
};
use spillway_route::{Beside, LatencyModel, ObservedLatency};
use spillway_types::{Holder, Speed};

use super::config::{Knowledge, RouterConfig};
use super::mirrors::Mirrors;
use super::spillway::identity;
use super::{
    CacheReport, Ended, Forwarded, NodePosition, Replied, Sent, Stage, Written, region_name,
};
use crate::text::BLOCK_TOKENS;

/// Number by which a region is a holder of its own, beside its replicas.
const REGION: usize = usize::MAX;

/// Most remembered blocks of prompts that were forwarded to a region, as in the gateway: the least
/// recently used are forgotten.
const FORWARDED_BLOCKS_MAX: u32 = 8_192;

/// Parts of a node that learn.
#[derive(Debug)]
pub(super) struct Memory {
    index: FineIndex,
    reader: IndexReader,
    holders: Vec<Option<Holder>>,
    /// Other regions, as holders of forwarded prompts; without the own region.
    regions: Vec<Option<Holder>>,
    /// Mirrors of the replicas' caches; `None` without KV events.
    mirrors: Option<Mirrors>,
    learns_replies: bool,
    heat: HeatTracker,
    hot: Arc<HotView>,
    /// Position of each region of the world in `hot`.
    hot_positions: Vec<Option<usize>>,
    models: Vec<LatencyModel>,
    /// Blocks of the present request's prompt at each replica.
    matches: Matches,
    /// Blocks of the present request's prompt in each region of `hot`.
    depths: Vec<u32>,
}

impl Memory {
    pub(super) fn new(config: &RouterConfig, position: &NodePosition) -> Self {
        let (mut index, reader) = FineIndex::new(IndexConfig::default());
        let (region, replicas) = (position.region, position.replicas);
        let holders: Vec<_> =
            (0..replicas).map(|replica| index.holder(identity(region, replica))).collect();
        // Replicas report the size of their caches, so the index need not assume one.
        let cache_blocks = config.speed.kv_tokens as u32 / BLOCK_TOKENS;
        for holder in holders.iter().flatten() {
            index.set_capacity(*holder, cache_blocks);
        }
        let remembers = |other: &usize| config.remembers_forwards && *other != region;
        let regions = (0..position.regions).map(|other| {
            let holder = Some(other)
                .filter(remembers)
                .and_then(|other| index.holder(identity(other, REGION)));
            if let Some(holder) = holder {
                index.set_capacity(holder, FORWARDED_BLOCKS_MAX);
            }
            holder
        });
        let regions = regions.collect();
        let mut model = LatencyModel::new(config.speed);
        model.set_kv_tokens(config.speed.kv_tokens);
        Self {
            index,
            reader,
            holders,
            regions,
            mirrors: (config.knowledge == Knowledge::Events)
                .then(|| Mirrors::new(replicas, cache_blocks)),
            learns_replies: config.learns_replies,
            heat: HeatTracker::new(HeatConfig::default()),
            hot: Arc::default(),
            hot_positions: vec![None; position.regions],
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
        self.hot_positions[region].and_then(|at| self.depths.get(at)).copied().unwrap_or(0)
    }

    /// Returns the leading blocks of the prompt that were forwarded to another region before.
    pub(super) fn forwarded_blocks(&self, region: usize) -> u32 {
        self.regions[region].map_or(0, |holder| self.matches.blocks(holder))
    }

    /// Returns the learned speed of a replica.
    pub(super) fn speed(&self, replica: usize, now_ms: u64) -> Speed {
        self.models[replica].speed(now_ms)
    }

    pub(super) fn sent(&mut self, sent: &Sent<'_>) {
        if let Some(holder) = self.holders[sent.replica] {
            self.index.insert(holder, sent.chain);
        }
        if let Some(mirrors) = &mut self.mirrors {
            mirrors.sent(sent);
        }
        self.heat.note(sent.chain, sent.now_ms);
    }

    pub(super) fn replied(&mut self, replied: &Replied<'_>) {
        if let Some(holder) = self.holders[replied.replica] {
            let cached_blocks = replied.cached_tokens / BLOCK_TOKENS;
            let first_missing = replied.chain.get(cached_blocks as usize);
            let carries = |mirrors: &Mirrors| mirrors.carries(replied.replica, first_missing);
            if self.mirrors.as_ref().is_some_and(carries) {
                // Evicted before the request was read: the engine itself reports which other blocks
                // are gone.
                self.index.take_belief(holder, replied.chain);
            } else {
                // The reply shows how much was really cached; the index only assumed it.
                self.index.correct(holder, replied.chain, cached_blocks);
            }
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

    /// Notes that a replica has written a reply.
    pub(super) fn written(&mut self, written: &Written<'_>) {
        let Some(holder) = self.holders[written.replica].filter(|_| self.learns_replies) else {
            return;
        };
        let is_told = |mirrors: &mut Mirrors| mirrors.written(&mut self.index, holder, written);
        if !self.mirrors.as_mut().is_some_and(is_told) {
            self.index.extend(holder, written.chain, written.prompt_blocks);
        }
    }

    /// Notes news that a replica's engine published of its cache.
    pub(super) fn cache_told(&mut self, report: &CacheReport<'_>) {
        if let Some(mirrors) = &mut self.mirrors {
            mirrors.note(&mut self.index, &self.holders, report);
        }
    }

    /// Notes what became of a request that was forwarded.
    pub(super) fn forwarded(&mut self, forwarded: &Forwarded<'_>) {
        let Some(holder) = self.regions[forwarded.region] else { return };
        match forwarded.stage {
            // The region may refuse it yet.
            Stage::Sent | Stage::Refused => {}
            Stage::Replied { cached_tokens } => {
                self.index.insert(holder, forwarded.chain);
                self.index.correct(holder, forwarded.chain, cached_tokens / BLOCK_TOKENS);
            }
            Stage::Ended { whole } if self.learns_replies => {
                self.index.extend(holder, whole, forwarded.chain.len());
            }
            Stage::Ended { .. } => {}
        }
    }

    pub(super) fn ended(&mut self, ended: &Ended<'_>) {
        self.models[ended.replica].learn_decode(
            ended.tokens as f32,
            ended.span_ms as f32,
            Beside { context_tokens: ended.context_tokens, read_tokens: ended.read_tokens },
        );
    }

    pub(super) fn hot_delta(&mut self, now_ms: u64) -> HotDelta {
        let index = &self.index;
        self.heat.delta(now_ms, |block| index.is_held(block))
    }

    pub(super) fn hot_changed(&mut self, view: &Arc<HotView>) {
        // Regions come to the view with their first block, and may leave it.
        if self.hot.regions() != view.regions() {
            let position = |region| {
                let name = region_name(region);
                view.regions().iter().position(|known| *known == name)
            };
            self.hot_positions = (0..self.hot_positions.len()).map(position).collect();
        }
        self.hot = Arc::clone(view);
    }
}
