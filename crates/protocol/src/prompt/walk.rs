//! Walks over JSON that has been found valid before. Of anything else it makes little sense, but
//! it ends, and it never looks beyond the end.

use memchr::memchr2;

/// Bytes that are looked at one by one before a search is begun, which costs as much as some of them:
/// code has an escape every few bytes.
const NEAR_BYTES: usize = 16;

/// A place in the members of an object or the elements of an array.
#[derive(Debug)]
pub(super) struct Walk<'b> {
    json: &'b [u8],
    at: usize,
}

impl<'b> Walk<'b> {
    /// Before the first member or element of `json`; of what is neither object nor array there is
    /// none.
    pub(super) fn into(json: &'b [u8]) -> Self {
        let is_container = matches!(json.first(), Some(b'{' | b'['));
        Self { json, at: if is_container { 1 } else { json.len() } }
    }

    /// The next element of an array.
    pub(super) fn element(&mut self) -> Option<&'b [u8]> {
        self.skip(|byte| is_space(byte) || byte == b',');
        let start = self.at;
        self.at = value_end(self.json, start);
        self.json.get(start..self.at).filter(|value| !value.is_empty())
    }

    /// The next member of an object: its key, with quotes and as it was written, and its value.
    pub(super) fn member(&mut self) -> Option<(&'b [u8], &'b [u8])> {
        self.skip(|byte| is_space(byte) || byte == b',');
        if self.json.get(self.at) != Some(&b'"') {
            return None;
        }
        let key = self.element()?;
        self.skip(|byte| is_space(byte) || byte == b':');
        Some((key, self.element()?))
    }

    fn skip(&mut self, is_skipped: impl Fn(u8) -> bool) {
        while self.json.get(self.at).is_some_and(|byte| is_skipped(*byte)) {
            self.at += 1;
        }
    }
}

pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Just behind the value that starts at `start`; `start` itself if none does.
fn value_end(json: &[u8], start: usize) -> usize {
    match json.get(start) {
        Some(b'"') => string_end(json, start),
        Some(b'{' | b'[') => container_end(json, start),
        _ => {
            let ends = |byte: &u8| is_space(*byte) || matches!(byte, b',' | b']' | b'}' | b':');
            let rest = json.get(start..).unwrap_or_default();
            start + rest.iter().position(ends).unwrap_or(rest.len())
        }
    }
}

/// Just behind the string whose first quote stands at `start`.
pub(super) fn string_end(json: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        let near = json.len().min(at + NEAR_BYTES);
        while at < near {
            match json[at] {
                b'"' => return at + 1,
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
        let Some(found) = json.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) else {
            return json.len();
        };
        at += found;
        if json[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
}

fn container_end(json: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => {
                at = string_end(json, at);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    json.len()
}
