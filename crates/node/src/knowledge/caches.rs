//! Which replica has what in its cache: learned here, told by others, corrected by replies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use spillway_prefix::{FineIndex, HeatConfig, HeatTracker, HotDelta, IndexStats, RegionBlocks};
use spillway_proxy::{Replica, Replied};
use spillway_pulse::{Heard, Sharing, SharingCounters};
use spillway_replicas::CacheReport;
use spillway_types::{Holder, NodeName, ReplicaName};

use super::address_book::{AddressBook, Known};
use super::cache_watch::{CacheWatch, Found};

/// Fewer prompt tokens of this node's own say nothing about what a replica's counters should have
/// counted.
const EXPECTED_TOKENS_MIN: f64 = 2_000.0;
/// A cache's size in blocks is told to the index when it is off by this share: bytes of a token are
/// learned reply by reply.
const SIZE_ERROR: f64 = 0.05;
/// Replies that had so many tokens less in the cache than was predicted are told to the other nodes.
/// Half a block is rounding, and engines cache whole blocks of their own.
const SURPRISE_TOKENS: u64 = 128;

/// Which replica has what in its cache.
#[derive(Debug)]
pub(super) struct Caches {
    index: FineIndex,
    /// `None` where no cluster would be told.
    heat: Option<HeatTracker>,
    /// `None` where no other node would be told.
    sharing: Option<Sharing>,
    book: AddressBook,
    replicas: BTreeMap<ReplicaName, Pages>,
    /// Bytes of a block.
    block_bytes: usize,
}

/// What a replica's pages told, against what was expected.
#[derive(Clone, Copy, Debug, Default)]
struct Pages {
    watch: CacheWatch,
    tokens: Option<f64>,
    /// The size in the index.
    blocks: Option<f64>,
    expected: Expected,
    /// Its replies have told what was cached: nothing is left to find out from its pages.
    tells_cached: bool,
}

/// What this node's prompts should have found in a cache since its last report.
#[derive(Clone, Copy, Debug, Default)]
struct Expected {
    prompt_tokens: f64,
    cached_tokens: f64,
}

impl Caches {
    pub(super) fn new(index: FineIndex, block_bytes: usize) -> Self {
        Self {
            index,
            heat: None,
            sharing: None,
            book: AddressBook::default(),
            replicas: BTreeMap::new(),
            block_bytes,
        }
    }

    /// From now on prompts are told to the region's other nodes.
    pub(super) fn share(&mut self, sharing: Sharing) {
        self.sharing = Some(sharing);
    }

    /// From now on it is known which prompts are hot.
    pub(super) fn keep_heat(&mut self, config: HeatConfig) {
        self.heat = Some(HeatTracker::new(config));
    }

    /// These are all replicas there are; comes back with those that are gone for good.
    pub(super) fn reconcile(&mut self, replicas: &[Arc<Replica>], now: Instant) -> Vec<Known> {
        let gone = self.book.reconcile(replicas, &mut self.index, now);
        self.forget(&gone);
        gone
    }

    /// Comes back with those replicas that are gone for good by now.
    pub(super) fn forget_absent(&mut self, now: Instant) -> Vec<Known> {
        let gone = self.book.forget(now);
        self.forget(&gone);
        gone
    }

    /// The replica that the data path means.
    pub(super) fn known(&self, identity: u64) -> Option<&Known> {
        self.book.of_identity(identity)
    }

    /// This node sent a prompt to a replica.
    pub(super) fn sent(&mut self, identity: u64, chain: &[u64], now_ms: u64) {
        let Some(known) = self.book.of_identity(identity) else { return };
        if let Some(holder) = known.holder {
            self.index.insert(holder, chain);
        }
        if let Some(heat) = &mut self.heat {
            heat.note(chain, now_ms);
        }
        if let Some(sharing) = &mut self.sharing {
            sharing.tell_sent(known.id, chain);
        }
    }

    /// What this node sent to a replica was not read there. The region's other nodes are not told:
    /// mostly they have not heard of it either, and replies show them what is missing.
    pub(super) fn unread(&mut self, identity: u64, chain: &[u64]) {
        let known = self.book.of_identity(identity);
        if let Some(holder) = known.and_then(|known| known.holder) {
            self.index.take_back(holder, chain);
        }
    }

    /// A replica replied to this node.
    pub(super) fn replied(&mut self, replied: &Replied) {
        let Some(known) = self.book.of_identity(replied.identity) else { return };
        let pages = self.replicas.entry(known.name.clone()).or_default();
        let Some(cached_tokens) = pages.cached_tokens(replied) else { return };
        let Some(blocks) = cached_blocks(replied, cached_tokens, self.block_bytes) else { return };
        let chain = replied.chain.as_slice();
        if let Some(holder) = known.holder {
            self.index.correct(holder, chain, blocks);
        }
        let predicted = replied.predicted.map_or(0, |predicted| predicted.cached_tokens);
        if let Some(sharing) = &mut self.sharing
            && u64::from(predicted) > cached_tokens.saturating_add(SURPRISE_TOKENS)
        {
            sharing.tell_cached(known.id, chain, blocks);
        }
    }

    /// Another node of the region told something.
    pub(super) fn heard(&mut self, from: &NodeName, datagram: &[u8], now_ms: u64) {
        let Self { index, heat, sharing, book, .. } = self;
        let Some(sharing) = sharing else { return };
        let taken = sharing.handle_datagram(from, datagram, |heard| {
            let holder = |id| book.of_id(id).and_then(|known| known.holder);
            match heard {
                Heard::Sent(id, chain) => {
                    if let Some(holder) = holder(id) {
                        index.insert(holder, chain);
                    }
                    if let Some(heat) = heat {
                        heat.note(chain, now_ms);
                    }
                }
                Heard::Cached(id, chain, blocks) => {
                    if let Some(holder) = holder(id) {
                        index.correct(holder, chain, blocks);
                    }
                }
            }
        });
        if let Err(refusal) = taken {
            tracing::debug!(%from, %refusal, "what a node told of prompts was refused");
        }
    }

    /// A page told of a replica's caches. Comes back with their size, if that is news.
    pub(super) fn reported(&mut self, name: &ReplicaName, report: &CacheReport) -> Option<f64> {
        let pages = self.replicas.entry(name.clone()).or_default();
        let conclusions = pages.watch.record(report);
        pages.tokens = conclusions.tokens.or(pages.tokens);
        if conclusions.is_restarted {
            self.empty(name, "its pages tell of another process");
        } else if let Some(found) = conclusions.found {
            self.compare(name, found);
        }
        conclusions.tokens
    }

    /// A replica that was down is back. Whether its caches are empty is not known, unless its pages
    /// tell: then they will, and if not, they are taken for empty.
    pub(super) fn returned(&mut self, name: &ReplicaName) {
        let tells = self.replicas.get(name).is_some_and(|pages| pages.watch.tells_restarts());
        if !tells {
            self.empty(name, "it was down");
        }
    }

    /// A replica's caches are empty.
    pub(super) fn empty(&mut self, name: &ReplicaName, why: &str) {
        if let Some(pages) = self.replicas.get_mut(name) {
            pages.expected = Expected::default();
            // It may be another program, or have other settings now.
            pages.tells_cached = false;
            pages.watch.count_anew();
        }
        if let Some(holder) = self.holder(name) {
            tracing::info!(replica = %name, why, "its caches are taken to be empty");
            self.index.flush(holder);
        }
    }

    /// Makes the sizes of caches in the index follow from what a token has in bytes.
    pub(super) fn size(&mut self, bytes_per_token: impl Fn(&ReplicaName) -> f32) {
        let block_bytes = self.block_bytes as f64;
        for (name, pages) in &mut self.replicas {
            let Some(tokens) = pages.tokens else { continue };
            let blocks = (tokens * f64::from(bytes_per_token(name)) / block_bytes).max(1.0);
            let is_near = |known: &f64| (blocks - known).abs() <= SIZE_ERROR * known.max(blocks);
            if pages.blocks.as_ref().is_some_and(is_near) {
                continue;
            }
            let holder = self.book.of_name(name).and_then(|known| known.holder);
            if let Some(holder) = holder {
                // `as` saturates.
                self.index.set_capacity(holder, blocks as u32);
                pages.blocks = Some(blocks);
            }
        }
    }

    /// Prompts are hashed with another key from now on: nothing that is known means anything.
    pub(super) fn set_epoch(&mut self, epoch: u64) {
        self.index.clear();
        if let Some(heat) = &mut self.heat {
            heat.clear();
        }
        if let Some(sharing) = &mut self.sharing {
            sharing.set_epoch(wire_epoch(epoch));
        }
    }

    /// What became hot or cold in the region.
    pub(super) fn hot_delta(&mut self, now_ms: u64) -> Option<HotDelta> {
        let Self { heat, index, .. } = self;
        let delta = heat.as_mut()?.delta(now_ms, |block| index.is_held(block));
        (!delta.is_empty()).then_some(delta)
    }

    /// The cluster knows these hot blocks of the region.
    pub(super) fn adopt_heat(&mut self, blocks: Option<&RegionBlocks>) {
        if let Some(heat) = &mut self.heat {
            heat.adopt(blocks);
        }
    }

    /// What is to be told to the region's other nodes, if they are told anything.
    pub(super) fn sharing(&mut self) -> Option<&mut Sharing> {
        self.sharing.as_mut()
    }

    /// Figures for metrics.
    pub(super) fn figures(&self) -> (IndexStats, SharingCounters) {
        let sharing = self.sharing.as_ref().map(Sharing::counters).unwrap_or_default();
        (self.index.stats(), sharing)
    }

    /// Holds what a replica's own counters found against what the index had made expect.
    fn compare(&mut self, name: &ReplicaName, found: Found) {
        let holder = self.holder(name);
        let Some(pages) = self.replicas.get_mut(name) else { return };
        let Expected { prompt_tokens, cached_tokens } = pages.expected;
        if pages.tells_cached || prompt_tokens < EXPECTED_TOKENS_MIN {
            return;
        }
        pages.expected = Expected::default();
        if let Some(holder) = holder {
            // The counters are of all nodes' requests; this node's are taken for typical.
            let expected = cached_tokens / prompt_tokens * found.queries;
            self.index.note_hit_ratio(holder, expected as u64, found.hits as u64);
        }
    }

    fn holder(&self, name: &ReplicaName) -> Option<Holder> {
        self.book.of_name(name)?.holder
    }

    fn forget(&mut self, gone: &[Known]) {
        for known in gone {
            self.replicas.remove(&known.name);
            if let Some(holder) = known.holder {
                self.index.forget_holder(holder);
            }
        }
    }
}

impl Pages {
    /// How many of a prompt's tokens were cached, if the replica tells. vLLM leaves the number out
    /// where it is 0, so that its absence says something once it was there.
    fn cached_tokens(&mut self, replied: &Replied) -> Option<u64> {
        if !replied.is_success {
            return None;
        }
        if replied.cached_tokens.is_some() {
            self.tells_cached = true;
            return replied.cached_tokens;
        }
        if self.tells_cached {
            return replied.prompt_tokens.map(|_| 0);
        }
        self.expected.note(replied);
        None
    }
}

impl Expected {
    fn note(&mut self, replied: &Replied) {
        if let Some(predicted) = replied.predicted {
            self.prompt_tokens += f64::from(predicted.prompt_tokens);
            self.cached_tokens += f64::from(predicted.cached_tokens.min(predicted.prompt_tokens));
        }
    }
}

/// An epoch as it travels: half of it tells neighbours apart.
pub(super) fn wire_epoch(epoch: u64) -> u32 {
    epoch as u32
}

/// How many of a prompt's leading blocks were cached, rounded up: a block that was there in part was
/// there when it counts. `None` if the reply does not tell how long the prompt is.
fn cached_blocks(replied: &Replied, cached_tokens: u64, block_bytes: usize) -> Option<u32> {
    let prompt_tokens = replied.prompt_tokens.filter(|tokens| *tokens > 0)?;
    let share = cached_tokens.min(prompt_tokens) as f64 / prompt_tokens as f64;
    let bytes = share * f64::from(replied.prompt_bytes);
    let blocks = (bytes / block_bytes as f64).ceil();
    // `as` saturates.
    Some((blocks as u32).min(u32::try_from(replied.chain.as_slice().len()).unwrap_or(u32::MAX)))
}
