//! Prompts that were sent to one replica and whose events are expected.

use std::collections::BTreeMap;

use spillway_types::BlockHashes;

/// Largest number of prompts of one replica that are kept: more than an engine runs at a time.
const PROMPTS_MAX: usize = 4_096;
/// Largest number of blocks of all of them: 64 MiB of prompts.
const BLOCKS_MAX: usize = 1 << 18;
/// Largest number of ways in which requests with one prompt go on that are kept.
const LEAVES_MAX: usize = 16;
/// Time after the end of a reply in which its last events arrive, in ms.
const SETTLE_MS: u64 = 250;
/// Time after which a prompt without news is settled, in ms: another node sent it, and does not
/// report every end.
const QUIET_MS: u64 = 60_000;

/// Numbers of a reply that has ended, or was given up.
#[derive(Clone, Debug, Default)]
pub struct ReplyFigures {
    /// Blocks of the reply behind those of the prompt; empty if they are not known.
    pub written: Vec<u64>,
    /// Size of the prompt in bytes; 0 if it is not known.
    pub prompt_bytes: u32,
    /// Tokens of the prompt; `None` if the reply did not report them.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the prompt found in the cache; `None` if the reply did not report them.
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
    /// Another node of the region, which may not report the end.
    Other,
}

/// Prompt that was sent, in one request or in several: prompts that differ in less than a block have
/// the same chain, and so the same id.
#[derive(Clone, Debug)]
pub(super) struct SentPrompt {
    pub(super) chain: BlockHashes,
    /// Newest engine blocks that were stored with the prompt's id: one for each way in which its
    /// requests went on.
    pub(super) leaves: Vec<u64>,
    /// Number of requests with it since it is known.
    pub(super) requests: u32,
    /// Number of requests whose end is not known.
    under_way: u32,
    /// Replies that have ended and are not settled, with the time of their end in ms.
    ended: Vec<(ReplyFigures, u64)>,
    sender: Sender,
    /// True if engine blocks were stored since the prompt was last tied.
    has_events: bool,
    /// Time of the last news of it, in ms.
    at_ms: u64,
}

impl SentPrompt {
    fn store(&mut self, parent: Option<u64>, leaf: u64) {
        if self.leaves.contains(&leaf) {
            return;
        }
        match self.leaves.iter_mut().find(|known| Some(**known) == parent) {
            Some(known) => *known = leaf,
            None => self.leaves.push(leaf),
        }
        if self.leaves.len() > LEAVES_MAX {
            self.leaves.remove(0);
        }
    }
}

/// Prompt of which no more events are expected: of one of its requests, or of all.
#[derive(Debug)]
pub(super) struct QuietPrompt {
    pub(super) prompt: SentPrompt,
    /// Numbers of the reply; `None` if its end is not known.
    pub(super) figures: Option<ReplyFigures>,
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
            (known.at_ms, known.sender) = (now_ms, sender);
            known.requests = known.requests.saturating_add(1);
            known.under_way = known.under_way.saturating_add(1);
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
                leaves: Vec::new(),
                requests: 1,
                under_way: 1,
                ended: Vec::new(),
                sender,
                has_events: false,
                at_ms: now_ms,
            };
            self.by_tail.insert(tail, prompt);
        }
    }

    /// Notes the end of a reply. Returns its prompt, if that is known.
    pub(super) fn ended(
        &mut self,
        tail: u64,
        figures: &ReplyFigures,
        now_ms: u64,
    ) -> Option<&SentPrompt> {
        let prompt = self.by_tail.get_mut(&tail)?;
        prompt.at_ms = now_ms;
        prompt.under_way = prompt.under_way.saturating_sub(1);
        prompt.ended.push((figures.clone(), now_ms));
        Some(prompt)
    }

    /// Notes that a request was not read.
    pub(super) fn unread(&mut self, tail: u64) {
        let Some(prompt) = self.by_tail.get_mut(&tail) else { return };
        prompt.under_way = prompt.under_way.saturating_sub(1);
        if prompt.under_way == 0 && prompt.ended.is_empty() {
            self.take(tail);
        }
    }

    /// Notes engine blocks that were stored for a prompt, up to `leaf`. Returns true if the prompt is
    /// known.
    pub(super) fn stored(
        &mut self,
        tail: u64,
        parent: Option<u64>,
        leaf: u64,
        now_ms: u64,
    ) -> bool {
        let Some(prompt) = self.by_tail.get_mut(&tail) else { return false };
        prompt.store(parent, leaf);
        (prompt.at_ms, prompt.has_events) = (now_ms, true);
        true
    }

    /// Forgets a way in which a request went on, because the request is settled.
    pub(super) fn forget_leaf(&mut self, tail: u64, leaf: u64) {
        if let Some(prompt) = self.by_tail.get_mut(&tail) {
            prompt.leaves.retain(|known| *known != leaf);
        }
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

    fn take(&mut self, tail: u64) -> Option<SentPrompt> {
        let prompt = self.by_tail.remove(&tail)?;
        self.blocks -= prompt.chain.as_slice().len();
        Some(prompt)
    }

    /// Takes the requests of which no more events are expected, with their prompts. A prompt goes with
    /// its last request.
    pub(super) fn take_quiet(&mut self, now_ms: u64) -> Vec<QuietPrompt> {
        let is_past = |at_ms: u64, limit_ms: u64| now_ms.saturating_sub(at_ms) >= limit_ms;
        let mut quiet = Vec::new();
        let mut gone = Vec::new();
        for (tail, prompt) in &mut self.by_tail {
            while let Some((_, at_ms)) = prompt.ended.first()
                && is_past(*at_ms, SETTLE_MS)
            {
                let (figures, _) = prompt.ended.remove(0);
                quiet.push(QuietPrompt { prompt: prompt.clone(), figures: Some(figures) });
            }
            if prompt.ended.is_empty() && prompt.under_way == 0 {
                gone.push(*tail);
            } else if is_past(prompt.at_ms, QUIET_MS) {
                quiet.push(QuietPrompt { prompt: prompt.clone(), figures: None });
                gone.push(*tail);
            }
        }
        for tail in gone {
            self.take(tail);
        }
        quiet
    }

    /// Returns the prompts.
    pub(super) fn iter(&self) -> impl Iterator<Item = &SentPrompt> {
        self.by_tail.values()
    }
}
