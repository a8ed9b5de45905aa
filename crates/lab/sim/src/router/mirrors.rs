//! Mirrors of caches: a node's replicas, as the KV events of their engines show them.

use spillway_prefix::FineIndex;
use spillway_prefix::kv::{KvMirror, ReplyFigures, Sender};
use spillway_types::{BlockHashes, Holder};

use super::request_news::{CacheNews, CacheReport, Sent, Written};
use crate::text::{BLOCK_TOKENS, BYTES_PER_TOKEN};

/// Milliseconds between two looks for prompts whose events are complete, as in the gateway.
const SETTLE_MS: u64 = 100;

/// Index of a node, with a mirror of each replica's engine: the gateway's own code.
#[derive(Debug)]
pub(super) struct Mirrors {
    mirrors: Vec<KvMirror>,
    /// Blocks of each replica's cache.
    cache_blocks: u32,
    settled_ms: u64,
}

impl Mirrors {
    /// Returns mirrors of so many engines of which nothing is known, with so many blocks each.
    pub(super) fn new(replicas: usize, cache_blocks: u32) -> Self {
        let block_bytes = (BLOCK_TOKENS * BYTES_PER_TOKEN) as usize;
        let mirrors = (0..replicas).map(|_| KvMirror::new(block_bytes)).collect();
        Self { mirrors, cache_blocks, settled_ms: 0 }
    }

    /// Notes a prompt that was sent to a replica.
    pub(super) fn sent(&mut self, sent: &Sent<'_>) {
        let sender = if sent.is_own { Sender::Own } else { Sender::Other };
        let chain = BlockHashes::new(sent.chain.to_vec());
        self.mirrors[sent.replica].sent(&chain, sender, sent.now_ms);
    }

    /// Returns true if the events of a replica report that it has this block.
    pub(super) fn carries(&self, replica: usize, block: Option<&u64>) -> bool {
        block.is_some_and(|block| self.mirrors[replica].carries(*block))
    }

    /// Notes the end of a reply. Returns true if the events report what the replica keeps of it.
    pub(super) fn written(
        &mut self,
        index: &mut FineIndex,
        holder: Holder,
        written: &Written<'_>,
    ) -> bool {
        let (prompt, reply) = written.chain.split_at(written.prompt_blocks);
        // Neighbours learn only the blocks.
        let told = if written.is_own {
            ReplyFigures {
                written: reply.to_vec(),
                prompt_bytes: written.prompt_tokens * BYTES_PER_TOKEN,
                prompt_tokens: Some(written.prompt_tokens.into()),
                cached_tokens: Some(written.cached_tokens.into()),
                output_tokens: written.reply_tokens.into(),
                is_whole: true,
            }
        } else {
            ReplyFigures { written: reply.to_vec(), ..ReplyFigures::default() }
        };
        let mirror = &mut self.mirrors[written.replica];
        mirror.replied((index, holder), prompt, told, written.now_ms);
        mirror.is_live()
    }

    /// Adds the news that an engine published.
    pub(super) fn note(
        &mut self,
        index: &mut FineIndex,
        holders: &[Option<Holder>],
        report: &CacheReport<'_>,
    ) {
        let Some(holder) = holders[report.replica] else { return };
        let mirror = &mut self.mirrors[report.replica];
        let was_live = mirror.is_live();
        match report.news {
            CacheNews::Events(events) => {
                events.iter().for_each(|event| mirror.note(index, holder, event, report.now_ms));
            }
            CacheNews::Missed => mirror.miss(),
        }
        if was_live != mirror.is_live() {
            size(index, holder, self.cache_blocks, mirror);
        }
        self.settle(index, holders, report.now_ms);
    }

    fn settle(&mut self, index: &mut FineIndex, holders: &[Option<Holder>], now_ms: u64) {
        if now_ms < self.settled_ms + SETTLE_MS {
            return;
        }
        self.settled_ms = now_ms;
        for (mirror, holder) in self.mirrors.iter_mut().zip(holders) {
            let Some(holder) = *holder else { continue };
            if mirror.settle(index, holder, now_ms) {
                size(index, holder, self.cache_blocks, mirror);
            }
        }
    }
}

/// Sets the index's size of a replica's cache, which depends on the events read so far.
fn size(index: &mut FineIndex, holder: Holder, blocks: u32, mirror: &KvMirror) {
    index.set_capacity(holder, (f64::from(blocks) * mirror.room()) as u32);
}
