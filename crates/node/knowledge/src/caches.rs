//! Prompts in each replica's cache: learned here, shared by other nodes, corrected by replies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use spillway_gossip::{Sharing, SharingCounters, SiblingNews};
use spillway_prefix::kv::{ReplyFigures, Sender};
use spillway_prefix::{FineIndex, HeatConfig, HeatTracker, HotDelta, IndexStats, RegionBlocks};
use spillway_replicas::{CacheReport, KvNews};
use spillway_types::{Holder, NodeName, ReplicaName};
use spillway_view::{Replica, Replied};

use super::address_book::{AddressBook, KnownAddress};
use super::cache_events::{CacheEvents, figures_of};
use super::cache_pages::{ExpectedHits, Pages};
use super::cache_watch::PrefixCacheCounts;
use super::forwards::Forwards;
use super::kv_followers::Followers;
use super::published::KvFigures;

/// Least number of this node's prompt tokens with which a replica's counters are compared: fewer
/// prove nothing.
const EXPECTED_TOKENS_MIN: f64 = 2_000.0;
/// Relative error of a cache's size in blocks from which on the index gets the new size: the bytes
/// of a token are learned reply by reply.
const SIZE_ERROR: f64 = 0.05;
/// Number of missing tokens, against the prediction, from which on a reply is shared with the other
/// nodes. Half a block is rounding, and engines cache whole blocks of their own.
const SURPRISE_TOKENS: u64 = 128;

/// The prefix index and everything that feeds it.
#[derive(Debug)]
pub(super) struct Caches {
    index: FineIndex,
    /// Tracker of hot prompts; `None` without a cluster to report them to.
    heat: Option<HeatTracker>,
    /// Sharing of prompts; `None` without other nodes to share them with.
    sharing: Option<Sharing>,
    book: AddressBook,
    replicas: BTreeMap<ReplicaName, Pages>,
    /// Size of a block in bytes.
    block_bytes: usize,
    /// Prompts that were forwarded to other regions.
    forwards: Forwards,
    /// Replicas whose engines publish what they store and evict.
    events: CacheEvents,
    /// Buffer for the blocks of a prompt and its reply.
    whole: Vec<u64>,
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
            forwards: Forwards::new(),
            events: CacheEvents::default(),
            whole: Vec::new(),
        }
    }

    /// Begins to share prompts with the region's other nodes.
    pub(super) fn share(&mut self, sharing: Sharing) {
        self.sharing = Some(sharing);
    }

    /// Begins to track hot prompts.
    pub(super) fn keep_heat(&mut self, config: HeatConfig) {
        self.heat = Some(HeatTracker::new(config));
    }

    /// Takes over the list of all replicas. Returns those that are forgotten.
    pub(super) fn reconcile(
        &mut self,
        replicas: &[Arc<Replica>],
        now: Instant,
    ) -> Vec<KnownAddress> {
        let gone = self.book.reconcile(replicas, &mut self.index, now);
        self.forget(&gone);
        gone
    }

    /// Forgets replicas that were absent for too long, and returns them.
    pub(super) fn forget_absent(&mut self, now: Instant) -> Vec<KnownAddress> {
        let gone = self.book.forget(now);
        self.forget(&gone);
        gone
    }

    /// Returns the replica of an identity on the data path.
    pub(super) fn known(&self, identity: u64) -> Option<&KnownAddress> {
        self.book.of_identity(identity)
    }

    /// Notes that this node sent a prompt to a replica.
    pub(super) fn sent(&mut self, identity: u64, chain: &[u64], now_ms: u64) {
        let Some(known) = self.book.of_identity(identity) else { return };
        if let Some(holder) = known.holder {
            self.index.insert(holder, chain);
        }
        self.events.sent(&known.name, chain, Sender::Own, now_ms);
        if let Some(heat) = &mut self.heat {
            heat.note(chain, now_ms);
        }
        if let Some(sharing) = &mut self.sharing {
            sharing.report_sent(known.id, chain);
        }
    }

    /// Takes back a prompt that this node sent to a replica and that was not read there. The
    /// region's other nodes are not informed: mostly they do not know of the prompt either, and
    /// replies show them what is missing.
    pub(super) fn unread(&mut self, identity: u64, chain: &[u64]) {
        let Some(known) = self.book.of_identity(identity) else { return };
        self.events.unread(&known.name, chain);
        if let Some(holder) = known.holder {
            self.index.take_back(holder, chain);
        }
    }

    /// Learns from a replica's reply to this node.
    pub(super) fn replied(&mut self, replied: &Replied, now_ms: u64) {
        self.judge(replied);
        self.extend(replied, now_ms);
    }

    /// Notes that a replica holds the reply that it has written, too.
    fn extend(&mut self, replied: &Replied, now_ms: u64) {
        let (chain, written) = (replied.chain.as_slice(), replied.written.as_slice());
        let Some(known) = self.book.of_identity(replied.identity) else { return };
        let Self { events, index, .. } = self;
        let is_told = events.replied(index, known, chain, (figures_of(replied), now_ms));
        if written.is_empty() {
            return;
        }
        self.whole.clear();
        self.whole.extend(chain.iter().chain(written));
        if let Some(holder) = known.holder.filter(|_| !is_told) {
            index.extend(holder, &self.whole, chain.len());
        }
        if let Some(sharing) = &mut self.sharing {
            let prompt_blocks = u32::try_from(chain.len()).unwrap_or(u32::MAX);
            sharing.report_written(known.id, &self.whole, prompt_blocks);
        }
    }

    /// Compares a reply's count of cached tokens with the index.
    fn judge(&mut self, replied: &Replied) {
        let Some(known) = self.book.of_identity(replied.identity) else { return };
        let pages = self.replicas.entry(known.name.clone()).or_default();
        let Some(cached_tokens) = pages.cached_tokens(replied) else { return };
        let Some(blocks) = cached_blocks(replied, cached_tokens, self.block_bytes) else { return };
        let chain = replied.chain.as_slice();
        if let Some(holder) = known.holder {
            if self.events.carries(&known.name, chain.get(blocks as usize)) {
                // Evicted before the request was read, or a matter of rounding: the events of the
                // engine show what else is gone.
                self.index.take_belief(holder, chain);
            } else {
                self.index.correct(holder, chain, blocks);
            }
        }
        // Only surprises are shared: expected hits are what the other nodes predict, too.
        let predicted = replied.predicted.map_or(0, |predicted| predicted.cached_tokens);
        if let Some(sharing) = &mut self.sharing
            && u64::from(predicted) > cached_tokens.saturating_add(SURPRISE_TOKENS)
        {
            sharing.report_cached(known.id, chain, blocks);
        }
    }

    /// Returns what was forwarded to other regions, and the sharing of it.
    pub(super) fn forwards(&mut self) -> (&mut Forwards, Option<&mut Sharing>) {
        (&mut self.forwards, self.sharing.as_mut())
    }

    /// Handles a datagram of another node of the region.
    pub(super) fn receive(&mut self, from: &NodeName, datagram: &[u8], now_ms: u64) {
        let Self { index, heat, sharing, book, forwards, events, .. } = self;
        let Some(sharing) = sharing else { return };
        let taken = sharing.handle_datagram(from, datagram, |heard| {
            if forwards.receive(&heard) {
                return;
            }
            let known = |id| book.of_id(id).and_then(|known| Some((known, known.holder?)));
            match heard {
                SiblingNews::Sent(id, chain) => {
                    if let Some((known, holder)) = known(id) {
                        index.insert(holder, chain);
                        events.sent(&known.name, chain, Sender::Other, now_ms);
                    }
                    if let Some(heat) = heat {
                        heat.note(chain, now_ms);
                    }
                }
                SiblingNews::Cached(id, chain, blocks) => {
                    if let Some((known, holder)) = known(id)
                        && !events.carries(&known.name, chain.get(blocks as usize))
                    {
                        index.correct(holder, chain, blocks);
                    }
                }
                SiblingNews::Written(id, chain, prompt_blocks) => {
                    if let Some((known, holder)) = known(id) {
                        let (prompt, written) =
                            chain.split_at((prompt_blocks as usize).min(chain.len()));
                        let told =
                            ReplyFigures { written: written.to_vec(), ..ReplyFigures::default() };
                        if !events.replied(index, known, prompt, (told, now_ms)) {
                            index.extend(holder, chain, prompt.len());
                        }
                    }
                }
            }
        });
        if let Err(refusal) = taken {
            tracing::debug!(%from, %refusal, "a node's report about prompts was refused");
        }
    }

    /// Handles a report of a replica's pages on its caches. Returns their size in tokens, if that
    /// is news.
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

    /// Notes that a replica that was down is back. If its pages show restarts, they will show
    /// whether its caches are empty; otherwise the caches are taken to be empty.
    pub(super) fn returned(&mut self, name: &ReplicaName) {
        let tells = self.replicas.get(name).is_some_and(|pages| pages.watch.tells_restarts());
        if !tells {
            self.empty(name, "it was down");
        }
    }

    /// Notes that a replica's caches are empty.
    pub(super) fn empty(&mut self, name: &ReplicaName, why: &str) {
        if let Some(pages) = self.replicas.get_mut(name) {
            pages.expected = ExpectedHits::default();
            // The replica may be another program, or have other settings now.
            pages.tells_cached = false;
            pages.watch.count_anew();
        }
        self.events.empty(name);
        if let Some(holder) = self.holder(name) {
            tracing::info!(replica = %name, why, "its cache is assumed to be empty");
            self.index.flush(holder);
        }
    }

    /// Updates the sizes of caches in the index by the bytes of a token.
    pub(super) fn size(&mut self, bytes_per_token: impl Fn(&ReplicaName) -> f32) {
        let block_bytes = self.block_bytes as f64;
        for (name, pages) in &mut self.replicas {
            let Some(tokens) = pages.tokens else { continue };
            let room = self.events.room(name);
            let blocks = (tokens * f64::from(bytes_per_token(name)) / block_bytes * room).max(1.0);
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

    /// Changes the key that prompts are hashed with, and so forgets all that is known.
    pub(super) fn set_epoch(&mut self, epoch: u64) {
        self.index.clear();
        self.forwards.clear();
        self.events.clear(self.block_bytes);
        if let Some(heat) = &mut self.heat {
            heat.clear();
        }
        if let Some(sharing) = &mut self.sharing {
            sharing.set_epoch(wire_epoch(epoch));
        }
    }

    /// Returns the blocks that became hot or cold in the region; `None` if there are none.
    pub(super) fn hot_delta(&mut self, now_ms: u64) -> Option<HotDelta> {
        let Self { heat, index, .. } = self;
        let delta = heat.as_mut()?.delta(now_ms, |block| index.is_held(block));
        (!delta.is_empty()).then_some(delta)
    }

    /// Takes over the hot blocks of the region that the cluster knows.
    pub(super) fn adopt_heat(&mut self, blocks: Option<&RegionBlocks>) {
        if let Some(heat) = &mut self.heat {
            heat.adopt(blocks);
        }
    }

    /// Returns the sharing with the region's other nodes, if there is any.
    pub(super) fn sharing(&mut self) -> Option<&mut Sharing> {
        self.sharing.as_mut()
    }

    /// Returns figures for metrics.
    pub(super) fn figures(&self) -> (IndexStats, SharingCounters) {
        let sharing = self.sharing.as_ref().map(Sharing::counters).unwrap_or_default();
        (self.index.stats(), sharing)
    }

    /// Takes over the list of replicas whose KV events are read.
    pub(super) fn follow_events(&mut self, ended: &[ReplicaName], followers: &Followers) {
        ended.iter().for_each(|name| self.events.end(name));
        for name in self.book.names().filter(|name| followers.follows(name)) {
            self.events.begin(name, self.block_bytes);
        }
    }

    /// Handles news of a replica's KV events.
    pub(super) fn events(&mut self, name: &ReplicaName, news: KvNews, now_ms: u64) {
        let Some(holder) = self.holder(name) else { return };
        if self.events.note((&mut self.index, holder), name, (news, now_ms)) {
            self.size_anew(name);
        }
    }

    /// Ties KV events to prompts whose replies have ended.
    pub(super) fn settle_events(&mut self, now_ms: u64) {
        for name in self.events.settle(&mut self.index, &self.book, now_ms) {
            self.size_anew(&name);
        }
    }

    /// Returns the figures of KV events.
    pub(super) fn event_figures(&self) -> KvFigures {
        self.events.figures()
    }

    /// Sets the size of a replica's cache in the index again.
    fn size_anew(&mut self, name: &ReplicaName) {
        if let Some(pages) = self.replicas.get_mut(name) {
            pages.blocks = None;
        }
    }

    /// Compares a replica's own counters with the hits that the index had predicted.
    fn compare(&mut self, name: &ReplicaName, found: PrefixCacheCounts) {
        let holder = self.holder(name);
        let Some(pages) = self.replicas.get_mut(name) else { return };
        let ExpectedHits { prompt_tokens, cached_tokens } = pages.expected;
        // Replies that report cached tokens have corrected the index already.
        if pages.tells_cached || self.events.is_live(name) || prompt_tokens < EXPECTED_TOKENS_MIN {
            return;
        }
        pages.expected = ExpectedHits::default();
        if let Some(holder) = holder {
            // The counters are of all nodes' requests; this node's are taken for typical.
            let expected = cached_tokens / prompt_tokens * found.queries;
            self.index.note_hit_ratio(holder, expected as u64, found.hits as u64);
        }
    }

    fn holder(&self, name: &ReplicaName) -> Option<Holder> {
        self.book.of_name(name)?.holder
    }

    fn forget(&mut self, gone: &[KnownAddress]) {
        for known in gone {
            self.replicas.remove(&known.name);
            self.events.end(&known.name);
            if let Some(holder) = known.holder {
                self.index.forget_holder(holder);
            }
        }
    }
}

/// Returns an epoch in the form of datagrams: its lower half distinguishes neighbouring epochs.
pub(super) fn wire_epoch(epoch: u64) -> u32 {
    epoch as u32
}

/// Returns the number of a prompt's leading blocks that were cached, rounded up: a block that was
/// there in part counts as cached. `None` if the reply does not report the length of the prompt.
fn cached_blocks(replied: &Replied, cached_tokens: u64, block_bytes: usize) -> Option<u32> {
    let prompt_tokens = replied.prompt_tokens.filter(|tokens| *tokens > 0)?;
    let share = cached_tokens.min(prompt_tokens) as f64 / prompt_tokens as f64;
    let bytes = share * f64::from(replied.prompt_bytes);
    let blocks = (bytes / block_bytes as f64).ceil();
    // `as` saturates.
    Some((blocks as u32).min(u32::try_from(replied.chain.as_slice().len()).unwrap_or(u32::MAX)))
}
