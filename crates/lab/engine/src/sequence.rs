//! Request inside the engine.

use std::time::Duration;

use crate::kv::BlockId;
use crate::request::{EngineRequest, RequestId};

/// A request and its progress.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) id: RequestId,
    pub(crate) prompt_tokens: u32,
    pub(crate) output_tokens: u32,
    /// Content hashes of the request's full blocks, as far as they are known.
    pub(crate) hashes: Vec<u64>,
    /// Virtual time of the submission: no step that began before may contain the request.
    pub(crate) submitted_at: Duration,
    /// KV blocks that the request pins, in order. Empty while it waits.
    pub(crate) blocks: Vec<BlockId>,
    /// Number of `blocks`, counted from the first, that are filed in the cache's tree.
    pub(crate) filed_blocks: usize,
    /// True if requests that were submitted together with this one may share the blocks that the
    /// step under way computes.
    pub(crate) shares_at_once: bool,
    /// Tokens whose KV is in `blocks`.
    pub(crate) computed_tokens: u32,
    /// Tokens that the step under way computes.
    pub(crate) scheduled_tokens: u32,
    /// Tokens generated so far. They survive a preemption; their KV does not.
    pub(crate) generated_tokens: u32,
    /// Prompt tokens found in the cache when the request was first admitted; `None` before that.
    pub(crate) cached_tokens: Option<u32>,
}

impl Sequence {
    pub(crate) fn new(request: EngineRequest, now: Duration) -> Self {
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

    /// Returns the tokens whose KV must exist before the next token can be generated.
    pub(crate) fn context_tokens(&self) -> u32 {
        self.prompt_tokens + self.generated_tokens
    }

    /// Returns the tokens that must still be computed before the next token can be generated.
    pub(crate) fn missing_tokens(&self) -> u32 {
        self.context_tokens() - self.computed_tokens
    }

    /// Returns true if the step under way only adds one token to the request's output.
    pub(crate) fn is_decoding(&self) -> bool {
        self.generated_tokens > 0 && self.missing_tokens() == 1
    }

    /// Returns true if the request has generated all of its tokens.
    pub(crate) fn is_complete(&self) -> bool {
        self.generated_tokens == self.output_tokens
    }
}
