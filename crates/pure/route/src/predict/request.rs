//! Properties of a request that hold for every replica.

use spillway_types::Inquiry;

use super::cost::sound;
use crate::PredictedTuning;

/// Size of a request, and its keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestSize {
    pub(super) prompt_bytes: f32,
    pub(super) block_bytes: f32,
    /// Expected tokens of the reply.
    pub(super) output_tokens: f32,
    /// Expected tokens of a reply in one piece; `None` for a stream.
    pub(super) whole_tokens: Option<f32>,
    pub(super) session: Option<u64>,
    /// Hash of the beginning of the prompt; random for a request without one.
    pub(super) key: u64,
    /// True if the request can wait in the node.
    pub(super) can_wait: bool,
}

impl RequestSize {
    pub(super) fn new(
        inquiry: &Inquiry,
        tuning: &PredictedTuning,
        cached_blocks_max: u32,
        rng: &mut fastrand::Rng,
    ) -> Self {
        let chain = inquiry.prefix.as_slice();
        let block_bytes = tuning.block_bytes.max(1) as f32;
        let asked = inquiry.output_tokens_max.unwrap_or(u32::MAX);
        // A block that no replica has cached: prompts that share the blocks before it differ there.
        // A 32nd further than what is known of, since the index may know of so much less.
        let first_new = (cached_blocks_max + cached_blocks_max / 32) as usize;
        let first_new = first_new.min(chain.len().saturating_sub(1));
        Self {
            prompt_bytes: sound(
                (inquiry.prompt_bytes as f32).max(chain.len() as f32 * block_bytes),
            ),
            block_bytes,
            output_tokens: sound(
                inquiry.output_tokens.unwrap_or(tuning.output_tokens).min(asked) as f32
            ),
            whole_tokens: inquiry.whole_tokens.map(|tokens| sound(tokens as f32)),
            session: inquiry.session,
            key: chain.get(first_new).copied().unwrap_or_else(|| rng.u64(..)),
            can_wait: inquiry.model.is_some(),
        }
    }
}
