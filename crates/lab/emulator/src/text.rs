//! Tokens of text, and conversations made of them.
//!
//! A token is up to four bytes of text, and its number is those bytes. No vocabulary is needed, and
//! equal texts have equal tokens. Marks between messages use numbers that no UTF-8 text has.

use spillway_engine::{RequestId, block_hashes};

/// Bytes of text in one token.
pub(crate) const TOKEN_BYTES: usize = 4;
/// Token that ends a message.
const END_OF_MESSAGE: u32 = 0xFFFF_FFFF;
/// Token that begins a message; the low half encodes the role.
const START_OF_MESSAGE: u32 = 0xFFFE_0000;
/// Bits that tokens of images and sounds may have, so that none of them is a mark.
const MEDIA_BITS: u64 = 0x7FFF_FFFF;

/// Appends the tokens of `text`.
pub(crate) fn tokenize(text: &str, tokens: &mut Vec<u32>) {
    tokens.extend(text.as_bytes().chunks(TOKEN_BYTES).map(|chunk| {
        let mut bytes = [0; TOKEN_BYTES];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u32::from_le_bytes(bytes)
    }));
}

/// Returns the number of tokens.
pub(crate) fn token_count(tokens: &[u32]) -> u32 {
    u32::try_from(tokens.len()).unwrap_or(u32::MAX)
}

/// Returns the tokens of one text.
pub(crate) fn tokens_of(text: &str) -> Vec<u32> {
    let mut tokens = Vec::new();
    tokenize(text, &mut tokens);
    tokens
}

/// Returns the text of tokens, without marks. Bytes that are not UTF-8 are replaced.
pub(crate) fn detokenize(tokens: &[u32]) -> String {
    let words = tokens.iter().filter(|token| !is_mark(**token));
    // Zero bytes only fill up the last token of a text.
    let bytes = words.flat_map(|token| token.to_le_bytes()).filter(|byte| *byte != 0);
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}

/// Part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TextContent {
    /// Text.
    Text(String),
    /// Image, sound or other file: `tokens` tokens in the prompt, which depend on `hash`.
    Media { hash: u64, tokens: u32 },
}

/// Tokens of a conversation, built message by message. The model's answer is appended as the tokens
/// it was generated as, so that the next turn finds it in the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conversation {
    pub(crate) tokens: Vec<u32>,
}

impl Conversation {
    /// Appends a complete message.
    pub(crate) fn push(&mut self, role: &str, text: &str) {
        self.push_parts(role, &[TextContent::Text(text.to_owned())]);
    }

    /// Appends a complete message of several parts. Neighbouring texts are joined.
    pub(crate) fn push_parts(&mut self, role: &str, parts: &[TextContent]) {
        self.tokens.push(start_of(role));
        let mut text = String::new();
        for part in parts {
            match part {
                TextContent::Text(more) => text.push_str(more),
                TextContent::Media { hash, tokens } => {
                    tokenize(&std::mem::take(&mut text), &mut self.tokens);
                    let place = |at: u32| {
                        let bits = mixed(hash ^ u64::from(at)) & MEDIA_BITS;
                        u32::try_from(bits).unwrap_or_default()
                    };
                    self.tokens.extend((0..*tokens).map(place));
                }
            }
        }
        tokenize(&text, &mut self.tokens);
        self.tokens.push(END_OF_MESSAGE);
    }

    /// Appends the beginning of a message.
    pub(crate) fn push_open(&mut self, role: &str, tokens: &[u32]) {
        self.tokens.push(start_of(role));
        self.tokens.extend(tokens);
    }

    /// Returns the tokens as they are.
    pub(crate) fn into_tokens(self) -> Vec<u32> {
        self.tokens
    }

    /// Returns the prompt that makes the model continue the last message.
    pub(crate) fn into_open_prompt(mut self) -> Vec<u32> {
        // Without its end the last message stays open.
        if self.tokens.last() == Some(&END_OF_MESSAGE) {
            self.tokens.pop();
        }
        self.tokens
    }

    /// Returns the prompt that makes the model answer now.
    pub(crate) fn into_prompt(mut self) -> Vec<u32> {
        self.tokens.push(start_of("assistant"));
        self.tokens
    }

    /// Returns the conversation after the model answered `prompt` with `answer`.
    pub(crate) fn answered(mut prompt: Vec<u32>, answer: &str) -> Self {
        tokenize(answer, &mut prompt);
        prompt.push(END_OF_MESSAGE);
        Self { tokens: prompt }
    }
}

/// Returns a hash of a sequence of tokens.
pub(crate) fn hash_tokens(tokens: &[u32]) -> u64 {
    let length = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
    let whole = std::num::NonZeroU32::new(length).unwrap_or(std::num::NonZeroU32::MIN);
    // One block of all tokens has one hash.
    block_hashes(tokens, whole).first().copied().unwrap_or(0)
}

/// Returns an id that looks random but depends only on `instance` and `request`.
pub(crate) fn opaque_id(prefix: &str, instance: u64, request: RequestId) -> String {
    let mut rng = fastrand::Rng::with_seed(instance ^ request.0.rotate_left(32));
    format!("{prefix}{:016x}{:016x}", rng.u64(..), rng.u64(..))
}

/// Returns the index after the last mark; `None` if there is no mark.
pub(crate) fn after_last_mark(tokens: &[u32]) -> Option<usize> {
    tokens.iter().rposition(|token| is_mark(*token)).map(|at| at + 1)
}

/// Returns true if a token marks the border between messages.
pub(crate) fn is_mark(token: u32) -> bool {
    token >= START_OF_MESSAGE
}

/// Returns true if a token begins a message.
pub(crate) fn is_start(token: u32) -> bool {
    is_mark(token) && token != END_OF_MESSAGE
}

/// Mixes every bit into all others (the finalizer of SplitMix64).
pub(crate) fn mixed(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

fn start_of(role: &str) -> u32 {
    let mut tokens = Vec::new();
    tokenize(role, &mut tokens);
    let [low, high, ..] = hash_tokens(&tokens).to_le_bytes();
    START_OF_MESSAGE | u32::from(u16::from_le_bytes([low, high]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_four_bytes_and_the_rest_counts_as_one() {
        for (text, expected) in [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("héé", 2)] {
            let mut tokens = Vec::new();
            tokenize(text, &mut tokens);
            assert_eq!(tokens.len(), expected, "{text}");
        }
    }

    #[test]
    fn roles_are_part_of_the_prompt() {
        let with_role = |role| {
            let mut conversation = Conversation::default();
            conversation.push(role, "hi");
            conversation.into_prompt()
        };
        assert_ne!(with_role("user"), with_role("system"));
    }

    #[test]
    fn ids_differ_between_requests_and_between_instances() {
        let first = opaque_id("chatcmpl-", 1, RequestId(1));
        assert!(first.starts_with("chatcmpl-"));
        assert_ne!(first, opaque_id("chatcmpl-", 1, RequestId(2)));
        assert_ne!(first, opaque_id("chatcmpl-", 2, RequestId(1)));
    }

    #[test]
    fn text_comes_back_out_of_its_tokens() {
        for text in ["", "hello", "größer als 4 Bytes"] {
            assert_eq!(detokenize(&tokens_of(text)), text);
        }
        let mut conversation = Conversation::default();
        conversation.push("user", "hi");
        assert_eq!(detokenize(&conversation.into_prompt()), "hi");
    }

    #[test]
    fn images_take_places_of_their_own_between_texts() {
        let text = |text: &str| TextContent::Text(text.to_owned());
        let of = |parts: &[TextContent]| {
            let mut conversation = Conversation::default();
            conversation.push_parts("user", parts);
            conversation.tokens
        };
        let image = |hash| TextContent::Media { hash, tokens: 100 };
        let with = of(&[text("hell"), text("o"), image(1), text("hi")]);
        assert_eq!(with.len(), 1 + 2 + 100 + 1 + 1);
        assert_eq!(with, of(&[text("hello"), image(1), text("hi")]));
        assert_ne!(with, of(&[text("hello"), image(2), text("hi")]));
        assert!(with[1..with.len() - 1].iter().all(|token| !is_mark(*token)));
    }
}
