//! Finds the quotes that begin and end the strings of JSON, many bytes at a time.

use memchr::memchr2;

/// Bytes that are looked at together: as many as a word has bits.
const WINDOW_BYTES: usize = 64;
/// A bit for each even place.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// The quotes behind a place outside of all strings, without those that are escaped.
#[derive(Clone, Debug)]
pub(super) struct Quotes<'b> {
    json: &'b [u8],
    /// Where the window starts.
    start: usize,
    /// A bit for each quote in the window, the lowest for its first byte.
    found: u64,
    /// 1 if the last byte of the window escapes the first one behind it, else 0.
    escape: u64,
}

impl<'b> Quotes<'b> {
    /// Those of `json` from `start` on.
    pub(super) fn new(json: &'b [u8], start: usize) -> Self {
        let mut quotes = Self { json, start, found: 0, escape: 0 };
        quotes.look();
        quotes
    }

    /// Where the first quote at or behind `from` stands, or the end of the JSON. `from` never goes
    /// back.
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

    /// Looks further. False at the end.
    fn advance(&mut self) -> bool {
        self.start = self.json.len().min(self.start + WINDOW_BYTES);
        if !self.look() {
            self.search();
        }
        self.start < self.json.len()
    }

    /// Long text without quotes and escapes: a search through all of it is faster than windows are.
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

    /// Reads the window. Whether a quote or a backslash is in it.
    fn look(&mut self) -> bool {
        let rest = self.json.get(self.start..).unwrap_or_default();
        let mut padded = [0; WINDOW_BYTES];
        let window = rest.first_chunk().unwrap_or_else(|| {
            padded[..rest.len()].copy_from_slice(rest);
            &padded
        });
        let quotes = places(window, b'"');
        // Without an end in between it takes a third of the time that `contains` does.
        let has_backslash = window.iter().fold(false, |any, byte| any | (*byte == b'\\'));
        let backslashes = if has_backslash { places(window, b'\\') } else { 0 };
        self.found = quotes & !self.escaped(backslashes);
        quotes | backslashes != 0
    }

    /// The places of the window that are escaped. In a run of backslashes every other one escapes
    /// what follows it, beginning with the first.
    fn escaped(&mut self, backslashes: u64) -> u64 {
        let before = self.escape;
        let backslashes = backslashes & !before;
        let first_ones = backslashes & !(backslashes << 1);
        // To add the first one of a run clears the whole run.
        let odd_runs = backslashes & backslashes.wrapping_add(first_ones & EVEN);
        let even_runs = backslashes & !odd_runs;
        let escaping = (even_runs & EVEN) | (odd_runs & !EVEN);
        self.escape = escaping >> (WINDOW_BYTES - 1);
        (escaping << 1) | before
    }
}

/// A bit for each place in `window` where `byte` stands. Compilers make vector instructions of the
/// first step; there is no safe way to ask for the one that does it all.
fn places(window: &[u8; WINDOW_BYTES], byte: u8) -> u64 {
    /// Brings the lowest bit of each byte together in the highest byte.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let ones = window.map(|other| u8::from(other == byte));
    let mut places = [0; 8];
    for (eight, place) in ones.as_chunks().0.iter().zip(&mut places) {
        *place = (u64::from_le_bytes(*eight).wrapping_mul(GATHER) >> 56) as u8;
    }
    u64::from_le_bytes(places)
}
