//! Search for the quotes that begin and end JSON strings, many bytes at a time.

use std::ops::Range;

use memchr::memchr2;

use crate::window::{Escapes, WINDOW_BYTES, Window};

/// Unescaped quotes behind a position outside of all strings.
#[derive(Clone, Debug)]
pub(super) struct Quotes<'b> {
    json: &'b [u8],
    /// Offset of the window.
    start: usize,
    /// Bit set of the quotes in the window; the lowest bit is for its first byte.
    found: u64,
    escapes: Escapes,
    /// Texts of strings whose ends are known, in order.
    known: &'b [Range<usize>],
    /// Offset of the first of them; the largest number if there is none.
    known_at: usize,
}

impl<'b> Quotes<'b> {
    /// Finds the quotes of `json` from `start` on, of which some `known` texts of strings are between
    /// two.
    pub(super) fn new(json: &'b [u8], start: usize, known: &'b [Range<usize>]) -> Self {
        let known = &known[known.partition_point(|text| text.start < start)..];
        let (found, escapes) = (0, Escapes::default());
        let mut quotes = Self { json, start, found, escapes, known, known_at: first_of(known) };
        quotes.look();
        quotes
    }

    /// Returns the offset of the first quote at or behind `from`, or the end of the JSON. `from`
    /// must not decrease from call to call.
    #[inline]
    pub(super) fn next(&mut self, from: usize) -> usize {
        if from == self.known_at {
            return self.pass_known();
        }
        loop {
            let passed = from.saturating_sub(self.start);
            let left = if passed < WINDOW_BYTES { self.found >> passed << passed } else { 0 };
            if left != 0 {
                return self.start + left.trailing_zeros() as usize;
            }
            if !self.advance() {
                return self.json.len();
            }
        }
    }

    /// Moves the window to the end of the first text that is known, and returns its offset.
    #[cold]
    fn pass_known(&mut self) -> usize {
        let [text, known @ ..] = self.known else { return self.json.len() };
        (self.known, self.known_at, self.start) = (known, first_of(known), text.end);
        // An escape at the end of the last window would escape this quote, which is passed here.
        self.look();
        text.end
    }

    /// Moves the window forward. Returns false at the end.
    fn advance(&mut self) -> bool {
        self.start = self.json.len().min(self.start + WINDOW_BYTES);
        if !self.look() {
            self.search();
        }
        self.start < self.json.len()
    }

    /// Skips long text without quotes and escapes: one search through all of it is faster than
    /// windows.
    fn search(&mut self) {
        let rest = self.json.get(self.start + WINDOW_BYTES..).unwrap_or_default();
        match memchr2(b'"', b'\\', rest) {
            Some(found) => {
                self.start += WINDOW_BYTES + found;
                self.look();
            }
            None => self.start = self.json.len(),
        }
    }

    /// Reads the window. Returns true if it has a quote or a backslash.
    fn look(&mut self) -> bool {
        let rest = self.json.get(self.start..).unwrap_or_default();
        let window = Window::new(rest);
        let [quotes, backslashes] = [b'"', b'\\'].map(|byte| window.places(byte));
        self.found = quotes & !self.escapes.escaped(backslashes);
        quotes | backslashes != 0
    }
}

/// Returns the offset of the first text; the largest number if there is none.
fn first_of(texts: &[Range<usize>]) -> usize {
    texts.first().map_or(usize::MAX, |text| text.start)
}
