//! JSON with numbers that are not finite. Python writes and reads them, and so do the engines that are
//! written in it.

use memchr::memmem;

/// Numbers that are not finite, and finite ones of the same length.
const WORDS: [(&[u8], &[u8]); 2] = [(b"NaN", b"1e1"), (b"Infinity", b"10000000")];

/// Returns the JSON with finite numbers in place of the others, so that all else keeps its place; `None`
/// if it has no others.
pub(super) fn finite(json: &str) -> Option<String> {
    if WORDS.iter().all(|(word, _)| memmem::find(json.as_bytes(), word).is_none()) {
        return None;
    }
    let mut bytes = json.as_bytes().to_vec();
    let (mut is_text, mut is_escaped) = (false, false);
    for at in 0..bytes.len() {
        match bytes[at] {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b'N' | b'I' if !is_text => replace_word(&mut bytes, at),
            _ => {}
        }
    }
    String::from_utf8(bytes).ok()
}

/// Replaces the word at `at`, if it is one of [`WORDS`] and no part of a longer one.
fn replace_word(bytes: &mut [u8], at: usize) {
    let is_apart =
        |byte: Option<&u8>| !byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'.');
    for (word, number) in WORDS {
        let end = at + word.len();
        let is_whole =
            is_apart(bytes.get(end)) && is_apart(at.checked_sub(1).and_then(|at| bytes.get(at)));
        if bytes[at..].starts_with(word) && is_whole {
            bytes[at..end].copy_from_slice(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_of_strings_become_finite() {
        for (json, expected) in [
            (r#"{"a":NaN}"#, Some(r#"{"a":1e1}"#)),
            (r#"[NaN,-Infinity, Infinity]"#, Some(r#"[1e1,-10000000, 10000000]"#)),
            (r#"{"NaN":"Infinity","\"NaN":[NaN]}"#, Some(r#"{"NaN":"Infinity","\"NaN":[1e1]}"#)),
            (r#"{"a":"\\","b":NaN}"#, Some(r#"{"a":"\\","b":1e1}"#)),
            (r#"[NaN5,1NaN,xInfinity,.NaN]"#, Some(r#"[NaN5,1NaN,xInfinity,.NaN]"#)),
            (r#"{"a":nan,"b":Inf}"#, None),
        ] {
            assert_eq!(finite(json).as_deref(), expected, "{json}");
        }
    }
}
