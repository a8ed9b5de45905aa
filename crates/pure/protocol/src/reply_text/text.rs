//! Strings of a reply, as a client writes them into its next prompt.

use std::fmt::Write;

use serde_json::value::RawValue;

use super::To;
use crate::json_string;

/// Writes the text of a JSON string without its quotes. Escapes become those of usual clients:
/// servers may escape more or less. Returns `None` for a value that is no string of characters.
pub(super) fn write_string(string: &RawValue, is_ascii: bool, to: To<'_>) -> Option<()> {
    let text = string.get().strip_prefix('"')?.strip_suffix('"')?;
    let is_as_written = !is_ascii || text.is_ascii();
    if is_as_written && !text.contains('\\') {
        to(text.as_bytes());
        return Some(());
    }
    let decoded: String = serde_json::from_str(string.get()).ok()?;
    let written = json_string(&decoded);
    let written = written.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if is_ascii {
        to(escaped(written)?.as_bytes());
    } else {
        to(written);
    }
    Some(())
}

/// Returns JSON text with escapes in place of characters that are not ASCII.
fn escaped(json: &[u8]) -> Option<String> {
    let mut all = String::with_capacity(json.len() * 2);
    for character in std::str::from_utf8(json).ok()?.chars() {
        if character.is_ascii() {
            all.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(all, "\\u{unit:04x}").ok()?;
        }
    }
    Some(all)
}
