//! Texts of JSON strings.

/// Most bytes of an error's message that are kept.
pub(super) const MESSAGE_BYTES_MAX: usize = 512;

/// Returns the text of a JSON string; `None` if it is none.
pub(super) fn text_of(json: &[u8]) -> Option<Box<str>> {
    let inner = json.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if inner.contains(&b'\\') {
        return serde_json::from_slice(json).ok();
    }
    Some(std::str::from_utf8(inner).ok()?.into())
}

/// Returns the text of a JSON string whose end may be missing, up to the limit of messages.
pub(super) fn beginning_of(json: &[u8]) -> Option<Box<str>> {
    /// Length of the longest escape, of two UTF-16 units.
    const ESCAPE_BYTES_MAX: usize = 12;
    let inner = json.strip_prefix(b"\"")?;
    let inner = inner.strip_suffix(b"\"").filter(|_| text_of(json).is_some()).unwrap_or(inner);
    let mut kept = inner;
    // An escape or a character that is cut in two is left out.
    for _ in 0..=ESCAPE_BYTES_MAX {
        if let Some(mut text) = text_of(&[b"\"", kept, b"\""].concat()).map(String::from) {
            text.truncate(text.floor_char_boundary(MESSAGE_BYTES_MAX));
            return Some(text.into());
        }
        kept = kept.split_last()?.1;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_is_what_the_string_says() {
        let check = |json: &str, expected: Option<&str>| {
            assert_eq!(text_of(json.as_bytes()).as_deref(), expected, "{json}");
        };
        check(r#""abc""#, Some("abc"));
        check(r#""a\"b\u00e9""#, Some("a\"b\u{e9}"));
        check(r#""""#, Some(""));
        check(r#"""#, None);
        check("null", None);
        check("5", None);
        check(r#""a\q""#, None);
        assert_eq!(text_of(b"\"\xff\""), None);
    }

    #[test]
    fn a_text_that_is_cut_ends_before_the_cut_character() {
        let check = |json: &str, expected: Option<&str>| {
            assert_eq!(beginning_of(json.as_bytes()).as_deref(), expected, "{json}");
        };
        check(r#""abc""#, Some("abc"));
        check(r#""abc"#, Some("abc"));
        check(r#""abc\"#, Some("abc"));
        check(r#""abc\""#, Some("abc\""));
        check(r#""abc\u00e"#, Some("abc"));
        check(r#""abc\ud83d\ude0"#, Some("abc"));
        check("null", None);
        assert_eq!(beginning_of(b"\"ab\xc3").as_deref(), Some("ab"));
    }

    proptest! {
        #[test]
        fn every_beginning_of_a_string_is_one_of_its_text(text in any::<String>(), cut in any::<prop::sample::Index>()) {
            let json = serde_json::to_string(&text).unwrap();
            let cut = 1 + cut.index(json.len());
            let beginning = beginning_of(&json.as_bytes()[..cut]).unwrap();
            prop_assert!(text.starts_with(&*beginning) && beginning.len() <= MESSAGE_BYTES_MAX);
            let whole = text_of(json.as_bytes());
            prop_assert_eq!(whole.as_deref(), Some(&*text));
        }
    }
}
