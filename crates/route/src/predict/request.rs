//! What a request brings, whatever replica it goes to.

use spillway_types::Inquiry;

use super::cost::sound;
use crate::PredictedTuning;

/// The size of a request, and what it has of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) prompt_bytes: f32,
    pub(super) block_bytes: f32,
    /// Tokens that the reply is expected to have.
    pub(super) output_tokens: f32,
    pub(super) session: Option<u64>,
    /// What is equal for equal beginnings of prompts, else drawn.
    pub(super) key: u64,
    /// Whether it can wait in the node.
    pub(super) can_wait: bool,
}

impl Request {
    pub(super) fn new(
        inquiry: &Inquiry,
        tuning: &PredictedTuning,
        cached_blocks_max: u32,
        rng: &mut fastrand::Rng,
    ) -> Self {
        let chain = inquiry.prefix.as_slice();
        let block_bytes = tuning.block_bytes.max(1) as f32;
        let asked = inquiry.output_tokens_max.unwrap_or(u32::MAX);
        // The first block that nobody has: prompts that share all before it part there.
        let first_new = (cached_blocks_max as usize).min(chain.len().saturating_sub(1));
        Self {
            prompt_bytes: sound(
                (inquiry.prompt_bytes as f32).max(chain.len() as f32 * block_bytes),
            ),
            block_bytes,
            output_tokens: sound(tuning.output_tokens.min(asked) as f32),
            session: inquiry.session,
            key: chain.get(first_new).copied().unwrap_or_else(|| rng.u64(..)),
            can_wait: inquiry.model.is_some(),
        }
    }
}
