//! Tokens and words: how text becomes tokens and what the model "says".
//!
//! A token is up to four bytes of text, and its number is those bytes, so no vocabulary is needed
//! and equal text has equal tokens. Marks between messages use numbers that no UTF-8 text has.

use spillway_engine::{RequestId, block_hashes};

/// Bytes of text in one token.
pub(crate) const TOKEN_BYTES: usize = 4;
/// Ends a message.
const END_OF_MESSAGE: u32 = 0xFFFF_FFFF;
/// Begins a message; the low half tells the role.
const START_OF_MESSAGE: u32 = 0xFFFE_0000;
/// Fewest tokens that the model says by its own choice.
const NATURAL_TOKENS_MIN: u32 = 32;
/// Most tokens that it says by its own choice.
const NATURAL_TOKENS_MAX: u32 = 256;

/// Words of one to nine letters, so that a text looks like one.
const WORDS: [&str; 48] = [
    "the", "a", "of", "water", "river", "flows", "over", "dam", "when", "gate", "opens", "and",
    "every", "stream", "finds", "its", "way", "to", "sea", "through", "quiet", "valleys", "some",
    "rain", "falls", "early", "others", "late", "but", "level", "stays", "where", "people", "keep",
    "watch", "upon", "wall", "by", "night", "light", "moves", "slowly", "across", "surface",
    "until", "morning", "comes", "again",
];

/// Appends the tokens of `text`.
pub(crate) fn tokenize(text: &str, tokens: &mut Vec<u32>) {
    tokens.extend(text.as_bytes().chunks(TOKEN_BYTES).map(|chunk| {
        let mut bytes = [0; TOKEN_BYTES];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u32::from_le_bytes(bytes)
    }));
}

/// The tokens of a conversation, built message by message. What the model answers is appended as
/// the same tokens that it was generated as, so the next turn finds it in the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conversation {
    tokens: Vec<u32>,
}

impl Conversation {
    /// Appends a whole message.
    pub(crate) fn push(&mut self, role: &str, text: &str) {
        self.tokens.push(start_of(role));
        tokenize(text, &mut self.tokens);
        self.tokens.push(END_OF_MESSAGE);
    }

    /// The prompt that makes the model answer now.
    pub(crate) fn into_prompt(mut self) -> Vec<u32> {
        self.tokens.push(start_of("assistant"));
        self.tokens
    }

    /// The conversation after `prompt` was answered with `answer`.
    pub(crate) fn answered(mut prompt: Vec<u32>, answer: &str) -> Self {
        tokenize(answer, &mut prompt);
        prompt.push(END_OF_MESSAGE);
        Self { tokens: prompt }
    }
}

/// How long an answer may or must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// As long as the model likes, but at most so many tokens.
    AtMost(u32),
    /// Exactly so many tokens: the model is told to ignore its end.
    Exactly(u32),
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// The model had said it all.
    Stop,
    /// It reached the limit.
    Length,
}

impl Finish {
    /// OpenAI's and vLLM's word for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// An answer, all of it known before the first token is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// ASCII, `4 × tokens` bytes.
    pub(crate) text: String,
    pub(crate) tokens: u32,
    pub(crate) finish: Finish,
}

impl Answer {
    /// What the model says to `prompt`: a function of prompt, seed and length alone.
    pub(crate) fn new(prompt: &[u32], seed: u64, length: Length) -> Self {
        let mut rng = fastrand::Rng::with_seed(hash_tokens(prompt) ^ seed);
        let natural = rng.u32(NATURAL_TOKENS_MIN..=NATURAL_TOKENS_MAX);
        let (tokens, finish) = match length {
            Length::Exactly(tokens) => (tokens, Finish::Length),
            Length::AtMost(most) if natural <= most => (natural, Finish::Stop),
            Length::AtMost(most) => (most, Finish::Length),
        };
        Self { text: words(&mut rng, tokens as usize * TOKEN_BYTES, finish), tokens, finish }
    }

    /// The text of token `index`; empty past the end.
    pub(crate) fn piece(&self, index: u32) -> &str {
        let start = index as usize * TOKEN_BYTES;
        self.text.get(start..start + TOKEN_BYTES).unwrap_or("")
    }

    /// Its tokens.
    pub(crate) fn to_tokens(&self) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(self.tokens as usize);
        tokenize(&self.text, &mut tokens);
        tokens
    }
}

/// One number for a sequence of tokens.
pub(crate) fn hash_tokens(tokens: &[u32]) -> u64 {
    let length = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
    let whole = std::num::NonZeroU32::new(length).unwrap_or(std::num::NonZeroU32::MIN);
    block_hashes(tokens, whole).first().copied().unwrap_or(0)
}

/// An id that looks random but follows from `instance` and `request`.
pub(crate) fn opaque_id(prefix: &str, instance: u64, request: RequestId) -> String {
    let mut rng = fastrand::Rng::with_seed(instance ^ request.0.rotate_left(32));
    format!("{prefix}{:016x}{:016x}", rng.u64(..), rng.u64(..))
}

fn words(rng: &mut fastrand::Rng, bytes: usize, finish: Finish) -> String {
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(WORDS[rng.usize(..WORDS.len())]);
    }
    text.truncate(bytes);
    if finish == Finish::Stop && text.pop().is_some() {
        text.push('.');
    }
    text
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

    fn prompt(text: &str) -> Vec<u32> {
        let mut conversation = Conversation::default();
        conversation.push("user", text);
        conversation.into_prompt()
    }

    #[test]
    fn a_token_is_four_bytes_and_the_rest_counts_as_one() {
        for (text, expected) in [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("héé", 2)] {
            let mut tokens = Vec::new();
            tokenize(text, &mut tokens);
            assert_eq!(tokens.len(), expected, "{text}");
        }
    }

    #[test]
    fn the_same_prompt_and_seed_give_the_same_answer_and_another_gives_another() {
        let answer = |text, seed| Answer::new(&prompt(text), seed, Length::Exactly(50)).text;
        assert_eq!(answer("hello", 1), answer("hello", 1));
        assert_ne!(answer("hello", 1), answer("hello", 2));
        assert_ne!(answer("hello", 1), answer("hullo", 1));
    }

    #[test]
    fn an_answer_is_ascii_words_of_exactly_its_tokens() {
        let answer = Answer::new(&prompt("x"), 7, Length::Exactly(100));
        assert_eq!(answer.text.len(), 400);
        assert!(answer.text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b' '));
        let pieces: String = (0..answer.tokens).map(|index| answer.piece(index)).collect();
        assert_eq!(pieces, answer.text);
        assert_eq!(answer.piece(answer.tokens), "");
    }

    #[test]
    fn a_limit_cuts_the_answer_and_says_so() {
        let natural = Answer::new(&prompt("x"), 7, Length::AtMost(10_000));
        assert_eq!(natural.finish, Finish::Stop);
        assert!((NATURAL_TOKENS_MIN..=NATURAL_TOKENS_MAX).contains(&natural.tokens));
        assert!(natural.text.ends_with('.'));
        let cut = Answer::new(&prompt("x"), 7, Length::AtMost(5));
        assert_eq!((cut.tokens, cut.finish), (5, Finish::Length));
        assert_eq!(cut.text, natural.text[..20]);
    }

    #[test]
    fn the_next_turn_starts_with_the_tokens_of_this_turn_and_its_answer() {
        let first = prompt("what is a dam?");
        let answer = Answer::new(&first, 0, Length::AtMost(64));
        let mut cached = first.clone();
        cached.extend(answer.to_tokens());

        let mut second = Conversation::default();
        second.push("user", "what is a dam?");
        second.push("assistant", &answer.text);
        second.push("user", "why?");
        assert!(second.tokens.starts_with(&cached));

        let mut stored = Conversation::answered(first, &answer.text);
        stored.push("user", "why?");
        assert_eq!(stored, second);
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
}
