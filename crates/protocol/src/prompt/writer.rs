//! Puts a prompt together from runs of a body, without copying the long ones.

use std::mem;
use std::ops::Range;

use super::PromptPiece;
use super::quotes::Quotes;
use super::walk::{is_blob, is_space};

/// Runs up to this length are gathered: what takes them costs tens of nanoseconds a call, and JSON
/// with spaces in it is cut into runs of a few bytes.
const RUN_GATHERED_BYTES_MAX: usize = 512;
/// Several such runs. It lies on the stack, and is cleared for each prompt.
const GATHERED_BYTES_MAX: usize = 1024;
/// Short runs are copied as if they had this length: to copy any length takes longer.
const SHORT_RUN_BYTES: usize = 64;
/// What stands between two strings is looked through in parts of this length.
const GAP_BYTES: usize = 64;

/// Hands pieces to `take`.
pub(super) struct Writer<'b, F> {
    body: &'b [u8],
    take: F,
    gathered: [u8; GATHERED_BYTES_MAX],
    gathered_bytes: usize,
    /// What comes behind that, as it stands in the body. It grows while the body goes on as the
    /// prompt does.
    run: Range<usize>,
}

impl<'b, F: FnMut(PromptPiece<'_>)> Writer<'b, F> {
    pub(super) fn new(body: &'b [u8], take: F) -> Self {
        Self { body, take, gathered: [0; GATHERED_BYTES_MAX], gathered_bytes: 0, run: 0..0 }
    }

    /// A byte between two values.
    pub(super) fn mark(&mut self, mark: u8) {
        if !self.run.is_empty() && self.body.get(self.run.end) == Some(&mark) {
            self.run.end += 1;
        } else {
            self.text(&[mark]);
        }
    }

    /// Some bytes, few enough to be gathered.
    pub(super) fn text(&mut self, text: &[u8]) {
        self.gather_run();
        self.make_room(text.len());
        self.gathered[self.gathered_bytes..][..text.len()].copy_from_slice(text);
        self.gathered_bytes += text.len();
    }

    /// A part of the body as it is.
    pub(super) fn copy(&mut self, range: Range<usize>) {
        if range.start == self.run.end {
            self.run.end = range.end;
        } else {
            self.gather_run();
            self.run = range;
        }
    }

    /// The JSON value at `range` without the white space outside its strings; data URLs in it are
    /// blobs.
    pub(super) fn compact(&mut self, range: Range<usize>) {
        if self.body[range.clone()].first() == Some(&b'"') {
            // A string alone, whose end is known already.
            return self.string(range);
        }
        let mut quotes = Quotes::new(self.body, range.start);
        let mut at = range.start;
        while at < range.end {
            let quote = range.end.min(quotes.next(at));
            self.gap(at..quote);
            at = range.end.min(quotes.next(quote + 1) + 1);
            self.string(quote..at);
        }
    }

    fn string(&mut self, range: Range<usize>) {
        if is_blob(&self.body[range.clone()]) {
            self.flush();
            (self.take)(PromptPiece::Blob(&self.body[range]));
        } else {
            self.copy(range);
        }
    }

    /// What stands between two strings: hardly anything, or thousands of numbers.
    fn gap(&mut self, gap: Range<usize>) {
        let body = self.body;
        for start in gap.clone().step_by(GAP_BYTES) {
            let part = start..gap.end.min(start + GAP_BYTES);
            // To the end in any case, as then it takes vector instructions.
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

    /// To be called at the end.
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

/// The bytes of `word` that are no spaces, and how many they are.
fn squeeze_word(word: [u8; 8]) -> ([u8; 8], usize) {
    /// Added to a byte that is no space, it sets the highest bit. Outside of strings all bytes are
    /// ASCII, so nothing is carried.
    const ABOVE_SPACE: u64 = u64::from_le_bytes([0x7F - b' '; 8]);
    const HIGHEST: u64 = u64::from_le_bytes([0x80; 8]);
    let mut word = u64::from_le_bytes(word);
    let mut spaces = !word.wrapping_add(ABOVE_SPACE) & HIGHEST;
    let mut length = 8;
    while spaces != 0 {
        // The last one first, so that the others stay where they are.
        let at = spaces.ilog2() & !7;
        let before = (1 << at) - 1;
        word = (word & before) | (word >> 8 & !before);
        spaces &= before;
        length -= 1;
    }
    (word.to_le_bytes(), length)
}
