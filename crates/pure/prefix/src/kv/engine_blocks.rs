//! Blocks of one engine, and the blocks of prompts that each of them carries.

use std::collections::{BTreeMap, BTreeSet};

use spillway_types::StoredBlocks;

use super::token_map::TokenMap;

/// Longest chain of engine blocks that is walked: a million tokens in blocks of 16.
const PATH_MAX: usize = 1 << 16;
/// Tokens by which a block of a prompt may end behind an engine block that carries it: rounding.
const TOKEN_ERROR: f64 = 0.5;
/// Largest number of a prompt's last blocks that are tied to its last engine block, where the engine
/// stored nothing new: then all but a part of an engine block was there before.
const TAIL_MAX: usize = 2;

/// Engine blocks by their hashes, and what they carry.
///
/// A block of a prompt is carried by the engine block that has its last token. Blocks that are
/// carried are closed under prefixes: with a block all go that continue it.
#[derive(Debug, Default)]
pub(super) struct EngineBlocks {
    blocks: BTreeMap<u64, EngineBlock>,
    carried: BTreeMap<u64, Carried>,
    /// (engine block, block of a prompt) of all that is carried.
    by_carrier: BTreeSet<(u64, u64)>,
    /// (block of a prompt, the one behind it) of all that is carried.
    by_before: BTreeSet<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct EngineBlock {
    parent: Option<u64>,
    /// Tokens of the block. For one that is known as a parent alone: of all up to its end, or
    /// `None` as long as that is not known.
    tokens: Option<u32>,
    /// Position in tokens at its end; `None` as long as that is not known.
    end: Option<u64>,
    /// Number of times that the engine has it: two requests can compute the same block at a time.
    copies: u32,
}

#[derive(Clone, Copy, Debug)]
struct Carried {
    engine_block: u64,
    before: Option<u64>,
}

/// Chain of a prompt and its reply, to be tied to engine blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain<'a> {
    pub(super) blocks: &'a [u64],
    pub(super) block_bytes: f64,
    pub(super) map: TokenMap,
    /// Newest engine block of the prompt; `None` if nothing was stored for it.
    pub(super) leaf: Option<u64>,
    /// Position in tokens at the end of `leaf`; `None` if it is not known yet.
    pub(super) end_tokens: Option<u64>,
}

impl EngineBlocks {
    /// Adds blocks that were stored. `counts_copies` is true if blocks that are known already are
    /// further copies.
    pub(super) fn store(&mut self, stored: &StoredBlocks, counts_copies: bool) {
        let mut parent = stored.parent;
        if let Some(parent) = parent {
            let unseen = EngineBlock { parent: None, tokens: None, end: None, copies: 1 };
            self.blocks.entry(parent).or_insert(unseen);
        }
        let before = |blocks: &BTreeMap<u64, EngineBlock>, parent: Option<u64>| match parent {
            Some(parent) => blocks.get(&parent)?.end,
            None => Some(0),
        };
        let mut end = before(&self.blocks, parent);
        for hash in &stored.hashes {
            let tokens = Some(stored.block_tokens);
            end = end.map(|end| end + u64::from(stored.block_tokens));
            match self.blocks.get_mut(hash) {
                Some(known) if counts_copies => known.copies = known.copies.saturating_add(1),
                Some(_) => {}
                None => {
                    self.blocks.insert(*hash, EngineBlock { parent, tokens, end, copies: 1 });
                }
            }
            parent = Some(*hash);
        }
    }

    /// Notes that one copy of a block is gone. Returns the blocks of prompts that go with it, each
    /// behind those that continue it.
    pub(super) fn remove(&mut self, hash: u64) -> Vec<u64> {
        let Some(known) = self.blocks.get_mut(&hash) else { return Vec::new() };
        known.copies -= 1;
        if known.copies > 0 {
            return Vec::new();
        }
        self.blocks.remove(&hash);
        let carried = self.by_carrier.range((hash, 0)..=(hash, u64::MAX));
        let mut left: Vec<u64> = carried.map(|(_, block)| *block).collect();
        let mut gone = Vec::new();
        while let Some(block) = left.pop() {
            if self.drop_carried(block) {
                gone.push(block);
                let behind = self.by_before.range((block, 0)..=(block, u64::MAX));
                left.extend(behind.map(|(_, block)| *block));
            }
        }
        // Each was found before those that continue it.
        gone.reverse();
        gone
    }

    /// Ties a chain to engine blocks. Returns the number of its leading blocks that are carried; an
    /// error with that number if the positions of its engine blocks are not known, so that others may
    /// be there too. A block of which less than half is there is not carried.
    pub(super) fn tie(&mut self, chain: Chain<'_>) -> Result<usize, usize> {
        let known = chain.blocks.iter().take_while(|block| self.carries(**block)).count();
        let last = known.checked_sub(1).and_then(|at| chain.blocks.get(at));
        let last = last.and_then(|block| self.carried.get(block)).map(|it| it.engine_block);
        let leaf = chain.leaf.or(last).ok_or(known)?;
        let end_tokens = chain.end_tokens.filter(|_| chain.leaf.is_some());
        let path = self.path(leaf, last, end_tokens).ok_or(known)?;
        let end = path.last().map_or(0.0, |(_, end)| *end as f64);
        let mut carriers = path.iter().peekable();
        let mut tail_left = if chain.leaf.is_some() { 0 } else { TAIL_MAX };
        for (at, block) in chain.blocks.iter().enumerate().skip(known) {
            let tokens_at = |part: f64| chain.map.tokens_at((at as f64 + part) * chain.block_bytes);
            let last_token = tokens_at(1.0) - TOKEN_ERROR;
            while carriers.next_if(|(_, end)| (*end as f64) < last_token).is_some() {}
            let carrier = match carriers.peek() {
                Some((hash, _)) => *hash,
                // The end of the prompt is part of an engine block that is not full yet.
                None if tokens_at(0.5) <= end => leaf,
                None if tail_left > 0 => {
                    tail_left -= 1;
                    leaf
                }
                None => return Ok(at),
            };
            let before = at.checked_sub(1).map(|before| chain.blocks[before]);
            self.carry(*block, carrier, before);
        }
        Ok(chain.blocks.len())
    }

    /// Returns the first of some engine blocks that is the last full one of so many tokens.
    pub(super) fn leaf_at(&mut self, leaves: &[u64], tokens: u64) -> Option<u64> {
        leaves.iter().copied().find(|leaf| {
            let known = self.blocks.get(leaf);
            let size = known.and_then(|block| block.tokens).map_or(1, u64::from).max(1);
            let path = self.path(*leaf, Some(*leaf), None);
            path.is_some_and(|path| path.last().map(|(_, end)| *end) == Some(tokens / size * size))
        })
    }

    /// Returns true if an engine block carries this block of a prompt.
    pub(super) fn carries(&self, block: u64) -> bool {
        self.carried.contains_key(&block)
    }

    /// Returns the number of engine blocks.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the engine blocks up to `leaf`, each with its end in tokens; those before `from` may be
    /// left out. `None` if these positions are not known.
    fn path(
        &mut self,
        leaf: u64,
        from: Option<u64>,
        end_tokens: Option<u64>,
    ) -> Option<Vec<(u64, u64)>> {
        // With the end of a block those of all before it are known.
        if self.blocks.get(&leaf)?.end.is_none() {
            self.learn_ends(leaf, end_tokens)?;
        }
        let mut path = Vec::new();
        let mut next = Some(leaf);
        while let Some(hash) = next {
            let block = self.blocks.get(&hash)?;
            path.push((hash, block.end?));
            next = block.parent.filter(|_| from != Some(hash));
            if path.len() > PATH_MAX {
                return None;
            }
        }
        path.reverse();
        Some(path)
    }

    /// Learns the ends of the engine blocks up to `leaf`, and with `end_tokens` the position of a first
    /// one that is known as a parent alone. `None` if they can't be known.
    fn learn_ends(&mut self, leaf: u64, end_tokens: Option<u64>) -> Option<()> {
        let mut path = Vec::new();
        let mut next = Some(leaf);
        while let Some(hash) = next {
            let block = self.blocks.get(&hash)?;
            path.push((hash, block.tokens));
            next = block.parent;
            if path.len() > PATH_MAX {
                return None;
            }
        }
        path.reverse();
        if let [(first, tokens @ None), rest @ ..] = &mut path[..] {
            let behind: u64 = rest.iter().map(|(_, tokens)| u64::from(tokens.unwrap_or(0))).sum();
            // The engine has whole blocks alone.
            let size = rest.last().and_then(|(_, tokens)| *tokens).map_or(1, u64::from).max(1);
            let before = (end_tokens? / size * size).checked_sub(behind)?;
            *tokens = u32::try_from(before).ok();
            self.blocks.get_mut(first)?.tokens = *tokens;
        }
        let mut end = 0;
        for (hash, tokens) in path {
            end += u64::from(tokens.unwrap_or(0));
            self.blocks.get_mut(&hash)?.end = Some(end);
        }
        Some(())
    }

    fn carry(&mut self, block: u64, engine_block: u64, before: Option<u64>) {
        // A chain has no block twice, so a repeated one keeps its place.
        if self.carries(block) {
            return;
        }
        self.carried.insert(block, Carried { engine_block, before });
        self.by_carrier.insert((engine_block, block));
        if let Some(before) = before {
            self.by_before.insert((before, block));
        }
    }

    fn drop_carried(&mut self, block: u64) -> bool {
        let Some(Carried { engine_block, before }) = self.carried.remove(&block) else {
            return false;
        };
        self.by_carrier.remove(&(engine_block, block));
        if let Some(before) = before {
            self.by_before.remove(&(before, block));
        }
        true
    }
}
