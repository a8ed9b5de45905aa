//! Puts a prompt together from runs of bytes, without copying the long ones.

use super::PromptPiece;
use super::walk::{is_space, string_end};

/// Runs up to this length are gathered: what takes them costs tens of nanoseconds a call, and JSON
/// with spaces in it is cut into runs of a few bytes.
const GATHERED_BYTES_MAX: usize = 512;
/// Shorter data URLs are text: an icon of this size has about as many tokens either way.
const BLOB_BYTES_MIN: usize = 1024;

/// Hands pieces to `take`.
pub(super) struct Writer<F> {
    take: F,
    gathered: [u8; GATHERED_BYTES_MAX],
    length: usize,
}

impl<F: FnMut(PromptPiece<'_>)> Writer<F> {
    pub(super) fn new(take: F) -> Self {
        Self { take, gathered: [0; GATHERED_BYTES_MAX], length: 0 }
    }

    /// Text as it is.
    pub(super) fn text(&mut self, run: &[u8]) {
        if self.length + run.len() > GATHERED_BYTES_MAX {
            self.flush();
        }
        match self.gathered.get_mut(self.length..self.length + run.len()) {
            Some(room) => {
                room.copy_from_slice(run);
                self.length += run.len();
            }
            None => (self.take)(PromptPiece::Text(run)),
        }
    }

    /// A JSON value without the white space outside its strings; data URLs in it are blobs.
    pub(super) fn compact(&mut self, json: &[u8]) {
        if json.first() == Some(&b'"') {
            // A string alone, whose end is known already.
            return if is_blob(json) { self.blob(json) } else { self.text(json) };
        }
        let (mut run_start, mut at) = (0, 0);
        while let Some(byte) = json.get(at) {
            if *byte == b'"' {
                let end = string_end(json, at);
                let string = &json[at..end];
                if is_blob(string) {
                    self.text(&json[run_start..at]);
                    self.blob(string);
                    run_start = end;
                }
                at = end;
            } else if is_space(*byte) {
                self.text(&json[run_start..at]);
                at += 1;
                run_start = at;
            } else {
                at += 1;
            }
        }
        self.text(&json[run_start..]);
    }

    fn blob(&mut self, url: &[u8]) {
        self.flush();
        (self.take)(PromptPiece::Blob(url));
    }

    /// To be called at the end.
    pub(super) fn finish(mut self) {
        self.flush();
    }

    fn flush(&mut self) {
        if self.length > 0 {
            (self.take)(PromptPiece::Text(&self.gathered[..self.length]));
            self.length = 0;
        }
    }
}

fn is_blob(string: &[u8]) -> bool {
    string.len() >= BLOB_BYTES_MIN && string.starts_with(b"\"data:")
}
