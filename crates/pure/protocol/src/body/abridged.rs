//! JSON without the text of its long strings, which is most of a body with a prompt.
//!
//! `serde_json` alone decides what is JSON; this only spares it text. A string is taken to end at its
//! first unescaped quote. An escape or a control character that no string may have, and a long name
//! of a member, which has to be read, make this give up. If `serde_json` accepts what is left, no
//! backslash stands outside of a string in it; so none does in the JSON itself, its strings end where
//! they were taken to end, and it is the same JSON with longer strings. If `serde_json` refuses, it
//! is given the JSON itself, and its error counts.

use std::ops::Range;

use smallvec::SmallVec;

use crate::window::{Escapes, WINDOW_BYTES, Window};

/// Size from which on JSON is abridged; shorter JSON is read as quickly.
const JSON_MIN: usize = 4 << 10;
/// Length from which on a string's text is left out.
const TEXT_MIN: usize = 256;
/// Length that may be kept before it is given up for lack of long strings.
const KEPT_MAX: usize = 8 << 10;
/// Length after which this is looked at again.
const STRETCH_BYTES: usize = 1 << 10;

/// True for the bytes that a backslash may escape, apart from `u`.
const ESCAPABLE: [bool; 256] = {
    let (mut table, mut at) = ([false; 256], 0);
    let bytes = br#""\/bfnrt"#;
    while at < bytes.len() {
        table[bytes[at] as usize] = true;
        at += 1;
    }
    table
};

/// Places of the texts of long strings, without their quotes. Few prompts have many.
pub(crate) type LongTexts = SmallVec<[Range<usize>; 2]>;

/// JSON with empty strings in place of long ones.
#[derive(Debug)]
pub(super) struct Abridged<'j> {
    json: &'j str,
    text: String,
    cuts: SmallVec<[Cut; 8]>,
}

/// Text that was left out.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Offset in the abridged JSON.
    at: usize,
    /// Number of bytes left out up to here.
    bytes: usize,
}

impl<'j> Abridged<'j> {
    /// Abridges JSON; `None` if that is not worth it, or has to be given up.
    pub(super) fn of(json: &'j str) -> Option<Self> {
        if json.len() < JSON_MIN {
            return None;
        }
        let mut scan = Scan::new(json);
        for start in (0..json.len()).step_by(STRETCH_BYTES) {
            let end = json.len().min(start + STRETCH_BYTES);
            for start in (start..end).step_by(WINDOW_BYTES) {
                scan.look(start)?;
            }
            let kept = scan.kept(end);
            if kept > KEPT_MAX && kept > end / 2 {
                return None;
            }
        }
        scan.finish()
    }

    /// Returns the abridged JSON.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the places in the JSON of the texts that were left out: those of long strings, in
    /// order.
    pub(super) fn long_texts(&self) -> LongTexts {
        let mut before = 0;
        let text = |cut: &Cut| {
            let start = cut.at + std::mem::replace(&mut before, cut.bytes);
            start..cut.at + cut.bytes
        };
        self.cuts.iter().map(text).collect()
    }

    /// Returns a value of the abridged JSON as it is in the JSON.
    pub(super) fn whole(&self, value: &str) -> Option<&'j str> {
        let at = value.as_ptr().addr().checked_sub(self.text.as_ptr().addr())?;
        self.json.get(self.offset(at)..self.offset(at + value.len()))
    }

    /// Returns the offset in the JSON of an offset in the abridged JSON that is not inside a string.
    fn offset(&self, at: usize) -> usize {
        let before = self.cuts.partition_point(|cut| cut.at < at);
        at + before.checked_sub(1).map_or(0, |last| self.cuts[last].bytes)
    }
}

/// State of leaving text out.
struct Scan<'j> {
    abridged: Abridged<'j>,
    /// Offset behind what was kept or left out.
    done: usize,
    /// Offset of the quote that opened the current string.
    opened: Option<usize>,
    escapes: Escapes,
}

impl<'j> Scan<'j> {
    fn new(json: &'j str) -> Self {
        let text = String::with_capacity(JSON_MIN / 2);
        let abridged = Abridged { json, text, cuts: SmallVec::new() };
        Self { abridged, done: 0, opened: None, escapes: Escapes::default() }
    }

    /// Reads the window at `start`. Returns `None` to give up.
    fn look(&mut self, start: usize) -> Option<()> {
        let bytes = self.abridged.json.as_bytes();
        let window = Window::new(&bytes[start..]);
        if !self.escapes.are_open() && window.is_plain() {
            return Some(());
        }
        let [marks, backslashes, lines] = [b'"', b'\\', b'n'].map(|byte| window.places(byte));
        let escaped = self.escapes.escaped(backslashes);
        let quotes = marks & !escaped;
        let controls = window.controls();
        if controls != 0 && controls & inside(quotes, self.opened.is_some()) != 0 {
            return None;
        }
        // The most frequent escapes need no look at each.
        let mut left = escaped & !(marks | backslashes | lines);
        while left != 0 {
            let at = start + left.trailing_zeros() as usize;
            let byte = *bytes.get(at)?;
            if !ESCAPABLE[usize::from(byte)] {
                let hex = bytes.get(at + 1..at + 5).filter(|_| byte == b'u')?;
                hex.iter().all(u8::is_ascii_hexdigit).then_some(())?;
            }
            left &= left - 1;
        }
        let mut left = quotes;
        while left != 0 {
            self.quote(start + left.trailing_zeros() as usize)?;
            left &= left - 1;
        }
        Some(())
    }

    /// Returns the number of bytes up to `end` that are kept, without the current string.
    fn kept(&self, end: usize) -> usize {
        self.abridged.text.len() + self.opened.unwrap_or(end).saturating_sub(self.done)
    }

    /// Takes an unescaped quote. Returns `None` behind a long name of a member, which has to be read.
    fn quote(&mut self, at: usize) -> Option<()> {
        let Some(opened) = self.opened.take() else {
            self.opened = Some(at);
            return Some(());
        };
        let bytes = at - opened - 1;
        if bytes >= TEXT_MIN {
            let Abridged { json, text, cuts } = &mut self.abridged;
            if json[at + 1..].trim_ascii_start().starts_with(':') {
                return None;
            }
            text.push_str(&json[self.done..=opened]);
            let before = cuts.last().map_or(0, |cut| cut.bytes);
            cuts.push(Cut { at: text.len(), bytes: before + bytes });
            self.done = at;
        }
        Some(())
    }

    fn finish(mut self) -> Option<Abridged<'j>> {
        let Abridged { json, text, cuts } = &mut self.abridged;
        text.push_str(&json[self.done..]);
        (!cuts.is_empty()).then_some(self.abridged)
    }
}

/// Returns the places in strings, their opening quotes included, by the unescaped quotes of a
/// window that begins inside a string or not.
fn inside(quotes: u64, begins_inside: bool) -> u64 {
    let passed = [1, 2, 4, 8, 16, 32].iter().fold(quotes, |passed, step| passed ^ passed << step);
    if begins_inside { !passed } else { passed }
}
