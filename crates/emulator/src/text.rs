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

/// One answer in so many ends after each token that it may end after.
const END_CHANCE: u64 = 112;

/// What the model says: tokens that begin with a space, as those of real models do, so that a text
/// of them looks like one.
const WORDS: [&[u8; TOKEN_BYTES]; 48] = [
    b" the", b" dam", b" sea", b" way", b" and", b" its", b" but", b" run", b" low", b" mud",
    b" wet", b" dry", b" sky", b" sun", b" fog", b" ice", b" oar", b" bay", b" ebb", b" net",
    b" eel", b" cod", b" row", b" hut", b" log", b" old", b" new", b" two", b" few", b" off",
    b" top", b" end", b" day", b" now", b" who", b" for", b" all", b" man", b" saw", b" her",
    b" him", b" she", b" let", b" may", b" far", b" out", b" yet", b" not",
];

/// What an answer of its own begins with.
const FIRST_WORDS: [&[u8; TOKEN_BYTES]; 8] =
    [b"When", b"Some", b"Over", b"Once", b"Rain", b"This", b"Here", b"Most"];

/// What it ends with, unless it is cut.
const LAST_WORDS: [&[u8; TOKEN_BYTES]; 8] =
    [b" so.", b" it.", b" us.", b" on.", b" me.", b" up.", b" by.", b" in."];

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

    /// The prompt that makes the model go on with the last message.
    pub(crate) fn into_open_prompt(mut self) -> Vec<u32> {
        if self.tokens.last() == Some(&END_OF_MESSAGE) {
            self.tokens.pop();
        }
        self.tokens
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
    /// What the model says to `prompt`. As of a real model that always takes the likeliest token, each
    /// token follows from the text before it and the seed alone: whoever is given the beginning of
    /// an answer as its prompt says the rest.
    pub(crate) fn new(prompt: &[u32], seed: u64, length: Length) -> Self {
        let mut voice = Voice::new(prompt, seed);
        let (most, may_end) = match length {
            Length::Exactly(tokens) => (tokens, false),
            Length::AtMost(most) => (most, true),
        };
        let mut text = String::new();
        let mut tokens = 0;
        let mut finish = Finish::Length;
        while tokens < most {
            if may_end && voice.has_ended {
                finish = Finish::Stop;
                break;
            }
            // An answer that reaches its limit is cut, though it might have ended there.
            let word = voice.next(may_end && tokens + 1 < most);
            text.extend(word.iter().copied().map(char::from));
            tokens += 1;
        }
        Self { text, tokens, finish }
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

/// The model in the middle of a text.
#[derive(Debug)]
struct Voice {
    /// Of all bytes so far.
    hash: u64,
    seed: u64,
    /// How many of its own tokens the text ends with.
    said: u32,
    /// A message begins.
    is_start: bool,
    /// The text ends as its answers do.
    has_ended: bool,
}

impl Voice {
    fn new(prompt: &[u32], seed: u64) -> Self {
        let last = prompt.last().copied();
        let mut voice = Self {
            hash: 0xcbf2_9ce4_8422_2325,
            seed: mixed(seed),
            said: 0,
            is_start: last.is_some_and(|token| is_mark(token) && token != END_OF_MESSAGE),
            has_ended: false,
        };
        for token in prompt {
            voice.hear(&token.to_le_bytes());
        }
        let tail = tail_of(prompt);
        let mut words = tail.rchunks(TOKEN_BYTES).peekable();
        let is_last = |word: &[u8]| LAST_WORDS.iter().any(|last| last.as_slice() == word);
        let ends = words.next_if(|word| is_last(word)).is_some();
        let own = words.take_while(|word| {
            let mut all = WORDS.iter().chain(&FIRST_WORDS);
            all.any(|own| own.as_slice() == *word)
        });
        voice.said = own.take(NATURAL_TOKENS_MAX as usize).map(|_| 1).sum();
        voice.has_ended = ends && voice.said + 1 >= NATURAL_TOKENS_MIN;
        voice
    }

    /// Says a token.
    fn next(&mut self, may_end: bool) -> &'static [u8; TOKEN_BYTES] {
        let dice = mixed(self.hash ^ self.seed);
        let is_due = (dice >> 32).is_multiple_of(END_CHANCE);
        let can_end = may_end && self.said + 1 >= NATURAL_TOKENS_MIN;
        let pick =
            |words: &[&'static [u8; TOKEN_BYTES]]| words[(dice & 0xFFFF) as usize % words.len()];
        let word = if self.is_start {
            pick(&FIRST_WORDS)
        } else if can_end && (is_due || self.said + 1 >= NATURAL_TOKENS_MAX) {
            self.has_ended = true;
            pick(&LAST_WORDS)
        } else {
            pick(&WORDS)
        };
        self.is_start = false;
        self.said += 1;
        self.hear(word);
        word
    }

    /// Bytes of 0 only fill up the last token of a text.
    fn hear(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().filter(|byte| **byte != 0) {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// The last bytes of the text that a prompt ends with, as many as an answer can have.
fn tail_of(prompt: &[u32]) -> Vec<u8> {
    let tokens = prompt.iter().rev().take(NATURAL_TOKENS_MAX as usize + 1);
    let tokens: Vec<u32> = tokens.take_while(|token| !is_mark(**token)).copied().collect();
    let bytes = tokens.iter().rev().flat_map(|token| token.to_le_bytes());
    bytes.filter(|byte| *byte != 0).collect()
}

fn is_mark(token: u32) -> bool {
    token >= START_OF_MESSAGE
}

/// Spreads every bit over all others (the end of SplitMix64).
fn mixed(mut bits: u64) -> u64 {
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
        assert!(answer.text.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b' '));
        let pieces: String = (0..answer.tokens).map(|index| answer.piece(index)).collect();
        assert_eq!(pieces, answer.text);
        assert_eq!(answer.piece(answer.tokens), "");
    }

    #[test]
    fn whoever_is_given_the_beginning_of_an_answer_says_the_rest() {
        for seed in 0..40 {
            let whole = Answer::new(&prompt("hi"), seed, Length::AtMost(300));
            assert_eq!(whole.finish, Finish::Stop);
            for said in 0..=whole.tokens {
                let (before, after) = whole.text.split_at(said as usize * TOKEN_BYTES);
                let mut conversation = Conversation::default();
                conversation.push("user", "hi");
                conversation.push("assistant", before);
                let open = conversation.into_open_prompt();
                let rest = Answer::new(&open, seed, Length::AtMost(300 - said));
                assert_eq!((rest.text.as_str(), rest.finish), (after, Finish::Stop), "{said}");
            }
        }
    }

    #[test]
    fn so_does_a_prompt_that_tokens_do_not_fit() {
        let tokens = |text: &str| {
            let mut tokens = Vec::new();
            tokenize(text, &mut tokens);
            tokens
        };
        let whole = Answer::new(&tokens("Hello"), 3, Length::AtMost(200));
        for said in 1..whole.tokens {
            let (before, after) = whole.text.split_at(said as usize * TOKEN_BYTES);
            let longer = tokens(&format!("Hello{before}"));
            assert_eq!(longer.len(), 2 + said as usize);
            let rest = Answer::new(&longer, 3, Length::AtMost(200 - said));
            assert_eq!((rest.text.as_str(), rest.finish), (after, whole.finish), "{said}");
        }
    }

    #[test]
    fn answers_differ_in_length() {
        let length = |seed| Answer::new(&prompt("x"), seed, Length::AtMost(10_000)).tokens;
        let mut lengths: Vec<u32> = (0..200).map(length).collect();
        lengths.sort_unstable();
        assert!(lengths[0] >= NATURAL_TOKENS_MIN && lengths[199] <= NATURAL_TOKENS_MAX);
        assert!(lengths[20] < 60 && lengths[180] > 180, "{lengths:?}");
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
