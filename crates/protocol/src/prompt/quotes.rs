//! Search for the quotes that begin and end JSON strings, many bytes at a time.

use memchr::memchr2;
use wide::u8x64;

/// Number of bytes that are searched together: one for each bit of a word.
const WINDOW_BYTES: usize = 64;
/// Mask with a bit for each even position.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// Unescaped quotes behind a position outside of all strings.
#[derive(Clone, Debug)]
pub(super) struct Quotes<'b> {
    json: &'b [u8],
    /// Offset of the window.
    start: usize,
    /// Bit set of the quotes in the window; the lowest bit is for its first byte.
    found: u64,
    /// Bit that is 1 if the last byte of the window escapes the first byte behind it, otherwise 0.
    escape: u64,
}

impl<'b> Quotes<'b> {
    /// Finds the quotes of `json` from `start` on.
    pub(super) fn new(json: &'b [u8], start: usize) -> Self {
        let mut quotes = Self { json, start, found: 0, escape: 0 };
        quotes.look();
        quotes
    }

    /// Returns the offset of the first quote at or behind `from`, or the end of the JSON. `from`
    /// must not decrease from call to call.
    #[inline]
    pub(super) fn next(&mut self, from: usize) -> usize {
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
        let mut padded = [0; WINDOW_BYTES];
        let window = rest.first_chunk().unwrap_or_else(|| {
            padded[..rest.len()].copy_from_slice(rest);
            &padded
        });
        let [quotes, backslashes] = [b'"', b'\\'].map(|byte| places(window, byte));
        self.found = quotes & !self.escaped(backslashes);
        quotes | backslashes != 0
    }

    /// Returns the escaped positions of the window. In a run of backslashes, every other one
    /// escapes the byte behind it, beginning with the first.
    fn escaped(&mut self, backslashes: u64) -> u64 {
        let before = self.escape;
        let backslashes = backslashes & !before;
        let first_ones = backslashes & !(backslashes << 1);
        // Adding the first bit of a run clears the whole run, so runs from even and odd positions
        // are told apart.
        let odd_runs = backslashes & backslashes.wrapping_add(first_ones & EVEN);
        let even_runs = backslashes & !odd_runs;
        let escaping = (even_runs & EVEN) | (odd_runs & !EVEN);
        self.escape = escaping >> (WINDOW_BYTES - 1);
        (escaping << 1) | before
    }
}

/// Returns a bit set of the positions of `byte` in `window`.
fn places(window: &[u8; WINDOW_BYTES], byte: u8) -> u64 {
    u8x64::new(*window).simd_eq(u8x64::splat(byte)).to_bitmask()
}
