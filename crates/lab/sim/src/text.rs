//! Prompts without words: sequences of pieces with a length each.

use std::sync::Arc;

/// Tokens of one cache block of the engines, as in vLLM.
pub const ENGINE_BLOCK_TOKENS: u32 = 16;

/// Engine blocks in one block of the router: 64 tokens are the 256 bytes that the router hashes.
pub(crate) const ENGINE_BLOCKS_PER_BLOCK: usize = 4;

/// Tokens of one block of the router.
pub(crate) const BLOCK_TOKENS: u32 = ENGINE_BLOCK_TOKENS * ENGINE_BLOCKS_PER_BLOCK as u32;

/// Bytes of prompt text for one token.
pub const BYTES_PER_TOKEN: u32 = 4;

/// Sequence of tokens that always occurs as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Id of the content: pieces with one id have the same tokens, as far as both reach.
    pub id: u64,
    /// Length in tokens.
    pub tokens: u32,
}

/// Prompt or reply, as a sequence of pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    pieces: Vec<Piece>,
}

impl Text {
    /// Returns a text of these pieces.
    #[must_use]
    pub fn new(pieces: Vec<Piece>) -> Self {
        Self { pieces }
    }

    /// Returns the text with one more piece at its end.
    #[must_use]
    pub fn with(&self, piece: Piece) -> Self {
        let mut pieces = self.pieces.clone();
        pieces.push(piece);
        Self { pieces }
    }

    /// Returns the pieces.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Returns the length in tokens.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.pieces.iter().map(|piece| piece.tokens).sum()
    }

    /// Returns the chained hashes of the full engine blocks: entry `i` covers the text up to the
    /// end of block `i`.
    #[must_use]
    pub fn engine_chain(&self) -> Vec<u64> {
        let mut chain = Vec::with_capacity((self.tokens() / ENGINE_BLOCK_TOKENS) as usize);
        let mut state = 0x5350_494C_4C57_4159;
        let mut missing = ENGINE_BLOCK_TOKENS;
        for piece in &self.pieces {
            let mut offset = 0;
            while offset < piece.tokens {
                let part = missing.min(piece.tokens - offset);
                // The piece and the offset in it identify the tokens.
                state = mix(mix(state, piece.id), u64::from(offset) << 32 | u64::from(part));
                offset += part;
                missing -= part;
                if missing == 0 {
                    chain.push(state);
                    missing = ENGINE_BLOCK_TOKENS;
                }
            }
        }
        chain
    }
}

/// Returns the router's chain for a chain of engine blocks: the hashes at the ends of the router's
/// own full blocks.
#[must_use]
pub fn router_chain(engine_chain: &[u64]) -> Arc<[u64]> {
    engine_chain
        .iter()
        // The hash of the last engine block in a router's block covers all of them.
        .skip(ENGINE_BLOCKS_PER_BLOCK - 1)
        .step_by(ENGINE_BLOCKS_PER_BLOCK)
        .copied()
        .collect()
}

/// Mixes two numbers into one; good enough to distinguish prompts.
#[must_use]
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut mixed = a.rotate_left(25) ^ b.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pieces: &[(u64, u32)]) -> Text {
        Text::new(pieces.iter().map(|&(id, tokens)| Piece { id, tokens }).collect())
    }

    #[test]
    fn texts_share_the_blocks_before_the_first_difference_and_no_other() {
        let shared = |a: &Text, b: &Text| {
            let (a, b) = (a.engine_chain(), b.engine_chain());
            a.iter().zip(&b).take_while(|(a, b)| a == b).count()
        };
        let base = text(&[(1, 40), (2, 60)]);
        assert_eq!(base.engine_chain().len(), 6);
        assert_eq!(shared(&base, &text(&[(1, 40), (2, 500)])), 6);
        assert_eq!(shared(&base, &text(&[(1, 40), (3, 60)])), 2);
        assert_eq!(shared(&base, &text(&[(9, 40), (2, 60)])), 0);
        // A shift by one token moves all content.
        assert_eq!(shared(&base, &text(&[(1, 41), (2, 60)])), 2);
    }

    #[test]
    fn a_router_block_ends_where_every_fourth_engine_block_ends() {
        let chain = text(&[(1, 64 * 2 + 63)]).engine_chain();
        assert_eq!(chain.len(), 11);
        assert_eq!(*router_chain(&chain), [chain[3], chain[7]]);
    }
}
