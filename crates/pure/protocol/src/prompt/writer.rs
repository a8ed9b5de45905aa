//! Writer that joins a prompt from runs of a body, without copying the long ones.

use std::mem;
use std::ops::Range;

use super::PromptPiece;
use super::blob::is_blob;
use super::quotes::Quotes;
use super::walk::is_space;

/// Longest run in bytes that is gathered. Each call of `take` costs tens of nanoseconds, and JSON
/// with spaces consists of runs of a few bytes.
const RUN_GATHERED_BYTES_MAX: usize = 512;
/// Size of the buffer for gathered runs, on the stack. It is cleared for each prompt.
const GATHERED_BYTES_MAX: usize = 1024;
/// Length in bytes that short runs are copied with: copying a variable length takes longer.
const SHORT_RUN_BYTES: usize = 64;
/// Length in bytes of the parts in which the gap between two strings is searched.
const GAP_BYTES: usize = 64;

/// Writer that passes pieces to `take`.
pub(super) struct Writer<'b, F> {
    pub(super) body: &'b [u8],
    /// Texts of strings of the body whose places are known.
    pub(super) known: &'b [Range<usize>],
    take: F,
    gathered: [u8; GATHERED_BYTES_MAX],
    gathered_bytes: usize,
    /// Part of the body that follows the gathered bytes. It grows while the body has the same bytes
    /// as the prompt.
    run: Range<usize>,
}

impl<'b, F: FnMut(PromptPiece<'_>)> Writer<'b, F> {
    pub(super) fn new(body: &'b [u8], known: &'b [Range<usize>], take: F) -> Self {
        let gathered = [0; GATHERED_BYTES_MAX];
        Self { body, known, take, gathered, gathered_bytes: 0, run: 0..0 }
    }

    /// Writes a byte between two values.
    pub(super) fn mark(&mut self, mark: u8) {
        // The body has the same byte here, so the run goes on without a copy.
        if !self.run.is_empty() && self.body.get(self.run.end) == Some(&mark) {
            self.run.end += 1;
        } else {
            self.text(&[mark]);
        }
    }

    /// Writes some bytes, few enough to be gathered.
    pub(super) fn text(&mut self, text: &[u8]) {
        self.gather_run();
        self.make_room(text.len());
        self.gathered[self.gathered_bytes..][..text.len()].copy_from_slice(text);
        self.gathered_bytes += text.len();
    }

    /// Writes a part of the body as it is.
    pub(super) fn copy(&mut self, range: Range<usize>) {
        // The part follows the run, so both become one.
        if range.start == self.run.end {
            self.run.end = range.end;
        } else {
            self.gather_run();
            self.run = range;
        }
    }

    /// Writes the JSON value at `range` without white space outside of strings. Images and
    /// files in it become blobs.
    pub(super) fn compact(&mut self, range: Range<usize>) {
        if self.body[range.clone()].first() == Some(&b'"') {
            // For a single string, the end is known already.
            return self.string(range);
        }
        let mut quotes = Quotes::new(self.body, range.start, self.known);
        let mut at = range.start;
        while at < range.end {
            let quote = range.end.min(quotes.next(at));
            self.gap(at..quote);
            at = range.end.min(quotes.next(quote + 1) + 1);
            self.string(quote..at);
        }
    }

    fn string(&mut self, range: Range<usize>) {
        if is_blob(self.body, range.clone()) {
            self.flush();
            (self.take)(PromptPiece::Blob(&self.body[range]));
        } else {
            self.copy(range);
        }
    }

    /// Writes the gap between two strings: hardly any bytes, or thousands of numbers.
    fn gap(&mut self, gap: Range<usize>) {
        let body = self.body;
        for start in gap.clone().step_by(GAP_BYTES) {
            let part = start..gap.end.min(start + GAP_BYTES);
            // A fold without early end becomes vector instructions.
            if body[part.clone()].iter().fold(false, |any, byte| any | is_space(*byte)) {
                self.squeeze(&body[part]);
            } else {
                self.copy(part);
            }
        }
    }

    /// Gathers a part of a gap without its spaces.
    fn squeeze(&mut self, part: &[u8]) {
        self.gather_run();
        self.make_room(GAP_BYTES);
        let (words, rest) = part.as_chunks();
        for word in words {
            let (squeezed, length) = squeeze_word(*word);
            self.gathered[self.gathered_bytes..][..word.len()].copy_from_slice(&squeezed);
            self.gathered_bytes += length;
        }
        for byte in rest {
            self.gathered[self.gathered_bytes] = *byte;
            self.gathered_bytes += usize::from(!is_space(*byte));
        }
    }

    /// Passes on the rest. Must be called at the end.
    pub(super) fn finish(mut self) {
        self.flush();
    }

    fn gather_run(&mut self) {
        let end = self.run.end;
        let run = mem::replace(&mut self.run, end..end);
        if run.is_empty() {
            return;
        }
        if run.len() > RUN_GATHERED_BYTES_MAX {
            self.hand_over();
            return (self.take)(PromptPiece::Text(&self.body[run]));
        }
        self.make_room(run.len());
        let room = &mut self.gathered[self.gathered_bytes..];
        let short = self.body[run.start..].first_chunk::<SHORT_RUN_BYTES>();
        match (short, room.first_chunk_mut()) {
            // Bytes behind the run are overwritten by the next one.
            (Some(short), Some(room)) if run.len() <= SHORT_RUN_BYTES => *room = *short,
            _ => room[..run.len()].copy_from_slice(&self.body[run.clone()]),
        }
        self.gathered_bytes += run.len();
    }

    fn make_room(&mut self, bytes: usize) {
        if self.gathered_bytes + bytes > GATHERED_BYTES_MAX {
            self.hand_over();
        }
    }

    fn flush(&mut self) {
        self.gather_run();
        self.hand_over();
    }

    fn hand_over(&mut self) {
        if self.gathered_bytes > 0 {
            (self.take)(PromptPiece::Text(&self.gathered[..self.gathered_bytes]));
            self.gathered_bytes = 0;
        }
    }
}

/// Returns the bytes of `word` that are no spaces, and their number.
fn squeeze_word(word: [u8; 8]) -> ([u8; 8], usize) {
    /// Value that sets the highest bit of a byte that is no space, when added. Outside of strings
    /// all bytes are ASCII, so nothing is carried.
    const ABOVE_SPACE: u64 = u64::from_le_bytes([0x7F - b' '; 8]);
    const HIGHEST: u64 = u64::from_le_bytes([0x80; 8]);
    let mut word = u64::from_le_bytes(word);
    let mut spaces = !word.wrapping_add(ABOVE_SPACE) & HIGHEST;
    let mut length = 8;
    while spaces != 0 {
        // From the last space on, so that the positions of the others stay valid.
        let at = spaces.ilog2() & !7;
        let before = (1 << at) - 1;
        word = (word & before) | (word >> 8 & !before);
        spaces &= before;
        length -= 1;
    }
    (word.to_le_bytes(), length)
}
