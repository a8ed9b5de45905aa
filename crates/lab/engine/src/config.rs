//! Limits of one engine and the cost of its steps.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::profile::{Profile, StepCost};

/// Limits of one engine. [`EngineConfig::from_profile`] gives values that fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineConfig {
    /// Cost of a step on the modelled machine.
    pub cost: StepCost,
    /// Tokens in one KV block. vLLM uses 16; traces with coarser blocks may need 512.
    pub block_tokens: NonZeroU32,
    /// KV blocks in all: memory left after the weights ÷ (bytes a token × `block_tokens`).
    pub kv_blocks: NonZeroU32,
    /// Most tokens computed in one step. With a smaller value, running requests stall less while a
    /// long prompt is prefilled; with a larger one, prompts are prefilled faster.
    pub step_tokens_max: NonZeroU32,
    /// Most requests in the batch at once (vLLM's `max_num_seqs`).
    pub running_max: NonZeroU32,
    /// Most requests that may wait; the next one is rejected. Preempted requests were accepted
    /// before, so they may exceed this limit by at most `running_max`.
    pub waiting_max: u32,
    /// Most tokens of prompt and output together.
    pub context_tokens_max: u32,
    /// Blocks that an admission must leave free while other requests run, so that they can grow
    /// without preempting the newcomer at once. About 1 % of `kv_blocks`.
    pub watermark_blocks: u32,
}

impl EngineConfig {
    /// Returns the limits of the engine that `profile` describes: 16-token blocks, 2048 tokens a
    /// step, 256 requests in the batch, 1024 waiting, 32,768 tokens of context or the whole cache
    /// if that is smaller.
    #[must_use]
    pub fn from_profile(profile: Profile) -> Self {
        let block_tokens = nonzero(16);
        let kv_blocks = nonzero(profile.kv_tokens() / block_tokens);
        Self {
            cost: profile.step_cost(),
            block_tokens,
            kv_blocks,
            step_tokens_max: nonzero(2048),
            running_max: nonzero(256),
            waiting_max: 1024,
            context_tokens_max: 32_768.min(kv_blocks.get() * block_tokens.get()),
            watermark_blocks: kv_blocks.get() / 100,
        }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self::from_profile(Profile::default())
    }
}

/// Returns `value`, or 1 in place of 0. The callers above never pass 0.
fn nonzero(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).unwrap_or(NonZeroU32::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_profile_gives_a_cache_that_holds_one_full_context() {
        for profile in Profile::ALL {
            let config = EngineConfig::from_profile(profile);
            let cache_tokens = config.kv_blocks.get() * config.block_tokens.get();
            assert!(config.context_tokens_max <= cache_tokens, "{profile}");
            assert!(config.watermark_blocks < config.kv_blocks.get(), "{profile}");
        }
    }

    #[test]
    fn the_l4_profile_has_the_published_cache_of_about_40k_tokens() {
        let config = EngineConfig::from_profile(Profile::L4);
        assert_eq!(config.kv_blocks.get() * config.block_tokens.get(), 40_000);
    }
}
