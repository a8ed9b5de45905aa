//! KV events of replicas, as the index takes them in.

use std::collections::BTreeMap;

use spillway_prefix::FineIndex;
use spillway_prefix::kv::{KvMirror, KvState, ReplyFigures, Sender};
use spillway_replicas::KvNews;
use spillway_types::{BlockHashes, Holder, ReplicaName};
use spillway_view::Replied;

use super::address_book::{AddressBook, KnownAddress};
use super::published::KvFigures;

/// Largest number of engine blocks that are mirrored for all replicas together: about 150 MB. The
/// mirror of the replica that exceeds it restarts empty.
const ENGINE_BLOCKS_MAX: usize = 1 << 20;

/// Mirrors of the replicas whose KV events are read.
#[derive(Debug, Default)]
pub(super) struct CacheEvents {
    mirrors: BTreeMap<ReplicaName, KvMirror>,
    figures: KvFigures,
}

impl CacheEvents {
    /// Begins to mirror a replica, if it is not mirrored yet.
    pub(super) fn begin(&mut self, name: &ReplicaName, block_bytes: usize) {
        if !self.mirrors.contains_key(name) {
            self.mirrors.insert(name.clone(), KvMirror::new(block_bytes));
        }
    }

    /// Ends the mirror of a replica.
    pub(super) fn end(&mut self, name: &ReplicaName) {
        self.mirrors.remove(name);
    }

    /// Returns true if the events of this replica show what it evicts.
    pub(super) fn is_live(&self, name: &ReplicaName) -> bool {
        self.mirrors.get(name).is_some_and(|mirror| mirror.state() == KvState::Live)
    }

    /// Returns true if this replica has this block according to its events.
    pub(super) fn carries(&self, name: &ReplicaName, block: Option<&u64>) -> bool {
        let mirror = self.mirrors.get(name);
        mirror.zip(block).is_some_and(|(mirror, block)| mirror.carries(*block))
    }

    /// Returns the factor of the cache of a replica in the index.
    pub(super) fn room(&self, name: &ReplicaName) -> f64 {
        self.mirrors.get(name).map_or(1.0, KvMirror::room)
    }

    /// Notes a prompt that a node of this region sent to a replica.
    pub(super) fn sent(&mut self, name: &ReplicaName, chain: &[u64], sender: Sender, now_ms: u64) {
        if let Some(mirror) = self.mirrors.get_mut(name) {
            mirror.sent(&BlockHashes::new(chain.to_vec()), sender, now_ms);
        }
    }

    /// Notes that a replica did not read a prompt.
    pub(super) fn unread(&mut self, name: &ReplicaName, chain: &[u64]) {
        if let Some(mirror) = self.mirrors.get_mut(name) {
            mirror.unread(chain);
        }
    }

    /// Notes the end of a reply to `chain`. Returns true if the events show what the replica keeps
    /// of it, so that nothing has to be assumed.
    pub(super) fn replied(
        &mut self,
        index: &mut FineIndex,
        known: &KnownAddress,
        chain: &[u64],
        (told, now_ms): (ReplyFigures, u64),
    ) -> bool {
        let mirror = self.mirrors.get_mut(&known.name);
        let Some((mirror, holder)) = mirror.zip(known.holder) else { return false };
        mirror.replied((index, holder), chain, told, now_ms);
        mirror.state() == KvState::Live
    }

    /// Forgets the events of a replica, because its caches are empty.
    pub(super) fn empty(&mut self, name: &ReplicaName) {
        if let Some(mirror) = self.mirrors.get_mut(name) {
            mirror.miss();
        }
    }

    /// Forgets everything, because prompts are hashed with another key.
    pub(super) fn clear(&mut self, block_bytes: usize) {
        for mirror in self.mirrors.values_mut() {
            *mirror = KvMirror::new(block_bytes);
        }
    }

    /// Handles news of a replica. Returns true if its events have begun or ceased to show what it
    /// evicts.
    pub(super) fn note(
        &mut self,
        (index, holder): (&mut FineIndex, Holder),
        name: &ReplicaName,
        (news, now_ms): (KvNews, u64),
    ) -> bool {
        let engine_blocks: usize = self.mirrors.values().map(KvMirror::blocks).sum();
        let Some(mirror) = self.mirrors.get_mut(name) else { return false };
        let before = mirror.state();
        match news {
            KvNews::Events(events) => {
                self.figures.events += events.len() as u64;
                events.iter().for_each(|event| mirror.note(index, holder, event, now_ms));
                if engine_blocks > ENGINE_BLOCKS_MAX {
                    self.figures.missed += 1;
                    mirror.miss();
                }
            }
            KvNews::Missed(why) => {
                self.figures.missed += 1;
                tracing::debug!(replica = %name, why, "KV events were missed");
                mirror.miss();
            }
        }
        let after = mirror.state();
        if (before, after) == (KvState::Unproven, KvState::Live) {
            tracing::info!(replica = %name, "its KV events show what it caches");
        }
        (before == KvState::Live) != (after == KvState::Live)
    }

    /// Ties what is due. Returns the replicas whose events ceased to show what they evict.
    pub(super) fn settle(
        &mut self,
        index: &mut FineIndex,
        book: &AddressBook,
        now_ms: u64,
    ) -> Vec<ReplicaName> {
        let mut stale = Vec::new();
        for (name, mirror) in &mut self.mirrors {
            let Some(holder) = book.of_name(name).and_then(|known| known.holder) else { continue };
            if mirror.settle(index, holder, now_ms) {
                tracing::warn!(
                    replica = %name,
                    "its KV events have no ids of requests: its cache is assumed as without them; \
                     the engine is too old, or kv_events_port is that of another"
                );
                stale.push(name.clone());
            }
        }
        stale
    }

    /// Returns figures for metrics.
    pub(super) fn figures(&self) -> KvFigures {
        let live = self.mirrors.values().filter(|mirror| mirror.state() == KvState::Live).count();
        let blocks: usize = self.mirrors.values().map(KvMirror::blocks).sum();
        let replicas = self.mirrors.len() as u64;
        KvFigures { live: live as u64, blocks: blocks as u64, replicas, ..self.figures }
    }
}

/// Returns the numbers of a reply to a request of this node.
pub(super) fn figures_of(replied: &Replied) -> ReplyFigures {
    ReplyFigures {
        written: replied.written.as_slice().to_vec(),
        prompt_bytes: replied.prompt_bytes,
        prompt_tokens: replied.prompt_tokens.filter(|_| replied.is_success),
        cached_tokens: replied.cached_tokens,
        output_tokens: replied.output_tokens,
        is_whole: replied.is_success && replied.end == spillway_types::End::Complete,
    }
}
