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
}

impl<'b> Quotes<'b> {
    /// Finds the quotes of `json` from `start` on, of which some `known` texts of strings are between
    /// two.
    pub(super) fn new(json: &'b [u8], start: usize, known: &'b [Range<usize>]) -> Self {
        let known = &known[known.partition_point(|text| text.start < start)..];
        let mut quotes = Self { json, start, found: 0, escapes: Escapes::default(), known };
        quotes.look();
        quotes
    }

    /// Returns the offset of the first quote at or behind `from`, or the end of the JSON. `from`
    /// must not decrease from call to call.
    #[inline]
    pub(super) fn next(&mut self, from: usize) -> usize {
        if let [text, known @ ..] = self.known
            && text.start == from
        {
            (self.known, self.start) = (known, text.end);
            // An escape at the end of the last window would escape this quote, which is passed here.
            self.look();
            return text.end;
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
