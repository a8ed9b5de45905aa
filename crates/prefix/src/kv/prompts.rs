//! Prompts that were sent to one replica and whose events are expected.

use std::collections::BTreeMap;

use spillway_types::BlockHashes;

/// Largest number of prompts of one replica that are kept: more than an engine runs at a time.
const PROMPTS_MAX: usize = 4_096;
/// Largest number of blocks of all of them: 64 MiB of prompts.
const BLOCKS_MAX: usize = 1 << 18;
/// Time after the end of a reply in which its last events arrive, in ms.
const SETTLE_MS: u64 = 250;
/// Time after which a prompt without news is settled, in ms: another node sent it, and does not tell
/// of every end.
const QUIET_MS: u64 = 60_000;

/// Numbers of a reply that has ended, or was given up.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Blocks of the reply behind those of the prompt; empty if they are not known.
    pub written: Vec<u64>,
    /// Size of the prompt in bytes; 0 if it is not known.
    pub prompt_bytes: u32,
    /// Tokens of the prompt; `None` if the reply did not say.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the prompt found in the cache; `None` if the reply did not say.
    pub cached_tokens: Option<u64>,
    /// Tokens of the reply.
    pub output_tokens: u64,
    /// True if the reply is whole, so that events of all its blocks are due.
    pub is_whole: bool,
}

/// Time after the last event of another node's prompt after which it is tied as far as events go,
/// in ms.
const PAUSE_MS: u64 = 1_000;

/// Node that sent a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// This node, which will read the reply.
    Own,
    /// Another node of the region, which may not tell of the end.
    Other,
}

/// Prompt that was sent.
#[derive(Clone, Debug)]
pub(super) struct SentPrompt {
    pub(super) chain: BlockHashes,
    /// Newest engine block that was stored with the prompt's id.
    pub(super) leaf: Option<u64>,
    pub(super) told: Option<Told>,
    sender: Sender,
    /// True if engine blocks were stored since the prompt was last tied.
    has_events: bool,
    /// Time of the last news of it, in ms.
    at_ms: u64,
}

/// Prompts by their last block.
#[derive(Debug, Default)]
pub(super) struct Prompts {
    by_tail: BTreeMap<u64, SentPrompt>,
    blocks: usize,
}

impl Prompts {
    /// Notes a prompt. The oldest one makes room for it: what it stored is assumed then, as without
    /// events.
    pub(super) fn sent(&mut self, chain: &BlockHashes, sender: Sender, now_ms: u64) {
        let Some(tail) = chain.as_slice().last().copied() else { return };
        let blocks = chain.as_slice().len();
        if let Some(known) = self.by_tail.get_mut(&tail) {
            (known.at_ms, known.told, known.sender) = (now_ms, None, sender);
            return;
        }
        if self.by_tail.len() >= PROMPTS_MAX || self.blocks + blocks > BLOCKS_MAX {
            let oldest = self.by_tail.iter().min_by_key(|(_, prompt)| prompt.at_ms);
            if let Some(tail) = oldest.map(|(tail, _)| *tail) {
                self.take(tail);
            }
        }
        if self.blocks + blocks <= BLOCKS_MAX {
            self.blocks += blocks;
            let prompt = SentPrompt {
                chain: chain.clone(),
                leaf: None,
                told: None,
                sender,
                has_events: false,
                at_ms: now_ms,
            };
            self.by_tail.insert(tail, prompt);
        }
    }

    /// Returns a prompt by its last block, and notes that there is news of it.
    pub(super) fn news(&mut self, tail: u64, now_ms: u64) -> Option<&mut SentPrompt> {
        let prompt = self.by_tail.get_mut(&tail)?;
        prompt.at_ms = now_ms;
        Some(prompt)
    }

    /// Notes an engine block that was stored for a prompt. Returns true if the prompt is known.
    pub(super) fn stored(&mut self, tail: u64, leaf: u64, now_ms: u64) -> bool {
        let Some(prompt) = self.news(tail, now_ms) else { return false };
        (prompt.leaf, prompt.has_events) = (Some(leaf), true);
        true
    }

    /// Returns the prompts of other nodes whose events have come and pause.
    pub(super) fn paused(&mut self, now_ms: u64) -> Vec<SentPrompt> {
        let is_due = |prompt: &&mut SentPrompt| {
            prompt.has_events
                && prompt.sender == Sender::Other
                && now_ms.saturating_sub(prompt.at_ms) >= PAUSE_MS
        };
        let due = self.by_tail.values_mut().filter(is_due);
        due.map(|prompt| {
            prompt.has_events = false;
            prompt.clone()
        })
        .collect()
    }

    /// Takes a prompt away.
    pub(super) fn take(&mut self, tail: u64) -> Option<SentPrompt> {
        let prompt = self.by_tail.remove(&tail)?;
        self.blocks -= prompt.chain.as_slice().len();
        Some(prompt)
    }

    /// Takes the prompts of which no more events are expected.
    pub(super) fn take_quiet(&mut self, now_ms: u64) -> Vec<SentPrompt> {
        let is_quiet = |prompt: &SentPrompt| {
            let limit_ms = if prompt.told.is_some() { SETTLE_MS } else { QUIET_MS };
            now_ms.saturating_sub(prompt.at_ms) >= limit_ms
        };
        let quiet = self.by_tail.iter().filter(|(_, prompt)| is_quiet(prompt));
        let quiet: Vec<u64> = quiet.map(|(tail, _)| *tail).collect();
        quiet.into_iter().filter_map(|tail| self.take(tail)).collect()
    }

    /// Returns the prompts.
    pub(super) fn iter(&self) -> impl Iterator<Item = &SentPrompt> {
        self.by_tail.values()
    }
}
