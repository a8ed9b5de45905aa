//! A request inside the engine.

use std::time::Duration;

use crate::kv::BlockId;
use crate::request::{Request, RequestId};

/// A request and how far it has come.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) id: RequestId,
    pub(crate) prompt_tokens: u32,
    pub(crate) output_tokens: u32,
    /// Content hashes of its full blocks, as far as they are known.
    pub(crate) hashes: Vec<u64>,
    /// When it was submitted: no step that began before may contain it.
    pub(crate) submitted_at: Duration,
    /// The KV blocks that it pins, in order. Empty while it waits.
    pub(crate) blocks: Vec<BlockId>,
    /// How many of `blocks`, counted from the first, are filed in the cache's tree.
    pub(crate) filed_blocks: usize,
    /// Whether requests that were submitted together with it may share the blocks that the step
    /// under way computes.
    pub(crate) shares_at_once: bool,
    /// Tokens whose KV is in `blocks`.
    pub(crate) computed_tokens: u32,
    /// Tokens that the step under way computes.
    pub(crate) scheduled_tokens: u32,
    /// Tokens generated so far. They survive a preemption, their KV does not.
    pub(crate) generated_tokens: u32,
    /// Prompt tokens found in the cache when it was first admitted; `None` before that.
    pub(crate) cached_tokens: Option<u32>,
}

impl Sequence {
    pub(crate) fn new(request: Request, now: Duration) -> Self {
        Self {
            id: request.id,
            prompt_tokens: request.prompt_tokens,
            output_tokens: request.output_tokens,
            hashes: request.blocks,
            submitted_at: now,
            blocks: Vec::new(),
            filed_blocks: 0,
            shares_at_once: false,
            computed_tokens: 0,
            scheduled_tokens: 0,
            generated_tokens: 0,
            cached_tokens: None,
        }
    }

    /// Tokens whose KV must exist before the next token can be generated.
    pub(crate) fn context_tokens(&self) -> u32 {
        self.prompt_tokens + self.generated_tokens
    }

    /// Tokens that still need computing before the next token can be generated.
    pub(crate) fn missing_tokens(&self) -> u32 {
        self.context_tokens() - self.computed_tokens
    }

    /// Whether the step under way only extends it by one token.
    pub(crate) fn is_decoding(&self) -> bool {
        self.generated_tokens > 0 && self.missing_tokens() == 1
    }

    /// Whether it has generated all of its tokens.
    pub(crate) fn is_complete(&self) -> bool {
        self.generated_tokens == self.output_tokens
    }
}
