//! Requests to the engine, and the reasons for which it rejects them.

use std::fmt;
use std::num::NonZeroU32;

use thiserror::Error;

/// Id of a request within one engine. The caller chooses it; it must be unique among live requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Lengths and content of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineRequest {
    /// Unique among the requests that the engine has not yet finished.
    pub id: RequestId,
    /// Tokens of the prompt, at least 1.
    pub prompt_tokens: u32,
    /// Tokens that the engine will generate. 0 means prefill only, as for an embedding.
    pub output_tokens: u32,
    /// Content hash of each full block of prompt followed by output, first block first. Blocks past
    /// the end of the list are never shared: leave them out where the content is unknown. Plain and
    /// chained hashes both work, because the cache compares whole paths.
    pub blocks: Vec<u64>,
}

impl EngineRequest {
    /// Makes a request whose tokens are known, so that all of its full blocks can be reused.
    #[must_use]
    pub fn from_tokens(
        id: RequestId,
        prompt: &[u32],
        output: &[u32],
        block_tokens: NonZeroU32,
    ) -> Self {
        let mut tokens = Vec::with_capacity(prompt.len() + output.len());
        tokens.extend_from_slice(prompt);
        tokens.extend_from_slice(output);
        Self {
            id,
            prompt_tokens: saturating_len(prompt),
            output_tokens: saturating_len(output),
            blocks: block_hashes(&tokens, block_tokens),
        }
    }
}

/// Returns the content hashes of the full blocks in `tokens`; a partial block at the end has none.
///
/// The hashes have no secret key: prompts of a model engine are not hostile, and every replica must
/// get the same hashes.
#[must_use]
pub fn block_hashes(tokens: &[u32], block_tokens: NonZeroU32) -> Vec<u64> {
    tokens.chunks_exact(block_tokens.get() as usize).map(block_hash).collect()
}

fn block_hash(tokens: &[u32]) -> u64 {
    tokens.iter().fold(0x9E37_79B9_7F4A_7C15, |hash, token| {
        let mixed = (hash ^ u64::from(*token)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ (mixed >> 29)
    })
}

fn saturating_len(tokens: &[u32]) -> u32 {
    u32::try_from(tokens.len()).unwrap_or(u32::MAX)
}

/// Reason for which a request was not accepted. The engine is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RejectedError {
    /// `waiting_max` requests wait already; a retry later or elsewhere makes sense.
    #[error("the request queue is full ({waiting} waiting)")]
    QueueFull {
        /// Number of waiting requests.
        waiting: u32,
    },
    /// Prompt and output together can never fit; no retry helps.
    #[error("{tokens} tokens do not fit into a context of {tokens_max}")]
    TooLong {
        /// Tokens of prompt and output together.
        tokens: u64,
        /// Most tokens that this engine takes.
        tokens_max: u64,
    },
    /// A prompt without tokens has nothing to compute.
    #[error("the prompt is empty")]
    Empty,
    /// A live request has this id already.
    #[error("request id {0} is in use")]
    DuplicateId(RequestId),
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: NonZeroU32 = NonZeroU32::new(4).unwrap();

    #[test]
    fn only_full_blocks_are_hashed() {
        assert_eq!(block_hashes(&[1, 2, 3], FOUR).len(), 0);
        assert_eq!(block_hashes(&[1, 2, 3, 4], FOUR).len(), 1);
        assert_eq!(block_hashes(&[1, 2, 3, 4, 5, 6, 7], FOUR).len(), 1);
    }

    #[test]
    fn a_hash_depends_on_every_token_and_on_their_order() {
        let hash = |tokens: [u32; 4]| block_hashes(&tokens, FOUR)[0];
        let base = hash([1, 2, 3, 4]);
        assert_eq!(base, hash([1, 2, 3, 4]));
        for other in [[9, 2, 3, 4], [1, 9, 3, 4], [1, 2, 9, 4], [1, 2, 3, 9], [2, 1, 3, 4]] {
            assert_ne!(base, hash(other), "{other:?}");
        }
    }

    #[test]
    fn blocks_run_on_from_prompt_to_output() {
        let request = EngineRequest::from_tokens(RequestId(1), &[1, 2, 3], &[4, 5], FOUR);
        assert_eq!((request.prompt_tokens, request.output_tokens), (3, 2));
        assert_eq!(request.blocks, block_hashes(&[1, 2, 3, 4], FOUR));
    }
}
