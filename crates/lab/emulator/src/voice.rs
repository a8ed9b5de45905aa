//! Free text of the model, when no form is prescribed.

use crate::text::{TOKEN_BYTES, is_mark, is_start, mixed};

/// Smallest number of tokens of a free answer.
pub(crate) const NATURAL_TOKENS_MIN: u32 = 32;
/// Largest number of tokens of a free answer.
pub(crate) const NATURAL_TOKENS_MAX: u32 = 256;

/// Inverse of the chance that an answer ends after a token that may be its last.
const END_CHANCE: u64 = 112;

/// Words of the model. They begin with a space, like the tokens of real models, so that they form a
/// readable text.
pub(crate) const WORDS: [&[u8; TOKEN_BYTES]; 48] = [
    b" the", b" dam", b" sea", b" way", b" and", b" its", b" but", b" run", b" low", b" mud",
    b" wet", b" dry", b" sky", b" sun", b" fog", b" ice", b" oar", b" bay", b" ebb", b" net",
    b" eel", b" cod", b" row", b" hut", b" log", b" old", b" new", b" two", b" few", b" off",
    b" top", b" end", b" day", b" now", b" who", b" for", b" all", b" man", b" saw", b" her",
    b" him", b" she", b" let", b" may", b" far", b" out", b" yet", b" not",
];

/// First words of answers.
const FIRST_WORDS: [&[u8; TOKEN_BYTES]; 8] =
    [b"When", b"Some", b"Over", b"Once", b"Rain", b"This", b"Here", b"Most"];

/// Last words of answers that are not cut.
const LAST_WORDS: [&[u8; TOKEN_BYTES]; 8] =
    [b" so.", b" it.", b" us.", b" on.", b" me.", b" up.", b" by.", b" in."];

/// Model in the middle of a text.
#[derive(Debug)]
pub(crate) struct Voice {
    /// Hash of all bytes so far.
    hash: u64,
    seed: u64,
    /// Number of the model's own tokens at the end of the text.
    said: u32,
    /// True if a message begins here.
    is_start: bool,
    /// True if the text ends like an answer of the model.
    pub(crate) has_ended: bool,
}

impl Voice {
    /// Creates the model's state after `prompt`.
    pub(crate) fn new(prompt: &[u32], seed: u64) -> Self {
        let last = prompt.last().copied();
        let mut voice = Self {
            hash: 0xcbf2_9ce4_8422_2325,
            seed: mixed(seed),
            said: 0,
            is_start: last.is_some_and(is_start),
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
        // Only an answer of full length has ended; a shorter text merely looks like it.
        voice.has_ended = ends && voice.said + 1 >= NATURAL_TOKENS_MIN;
        voice
    }

    /// Returns the next token.
    pub(crate) fn next(&mut self, may_end: bool) -> &'static [u8; TOKEN_BYTES] {
        let dice = mixed(self.hash ^ self.seed);
        let is_due = (dice >> 32).is_multiple_of(END_CHANCE);
        // Counted from the beginning of the text, so that a continued answer is as long as a whole
        // one.
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

    /// Adds bytes to the hash. Zero bytes are skipped: they only fill up the last token of a text.
    fn hear(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().filter(|byte| **byte != 0) {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Returns the last bytes of the text that a prompt ends with, at most as many as an answer can
/// have.
fn tail_of(prompt: &[u32]) -> Vec<u8> {
    let tokens = prompt.iter().rev().take(NATURAL_TOKENS_MAX as usize + 1);
    let tokens: Vec<u32> = tokens.take_while(|token| !is_mark(**token)).copied().collect();
    let bytes = tokens.iter().rev().flat_map(|token| token.to_le_bytes());
    bytes.filter(|byte| *byte != 0).collect()
}
