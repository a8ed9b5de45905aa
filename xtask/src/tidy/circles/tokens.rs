//! Words and marks of Rust source, without comments.

/// Piece of source text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// Identifier, keyword or number.
    Word(&'a str),
    /// String literal, with its quotes.
    Text(&'a str),
    /// `::`.
    Colons,
    /// Any other character that is no blank.
    Mark(char),
}

/// Splits `text` into its tokens. Lifetimes, characters and comments are left out.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (token, bytes) = first_token(rest, first);
        found.extend(token);
        rest = &rest[bytes..];
    }
    found
}

/// Returns the token that `rest` begins with, if it is one, and the bytes up to its end.
fn first_token(rest: &str, first: char) -> (Option<Token<'_>>, usize) {
    if rest.starts_with("//") {
        return (None, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (None, comment_bytes(rest));
    }
    if let Some(bytes) = string_bytes(rest) {
        return (Some(Token::Text(&rest[..bytes])), bytes);
    }
    if first == '\'' {
        return (None, quote_bytes(rest));
    }
    if is_of_word(first) {
        let bytes = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
        return (Some(Token::Word(&rest[..bytes])), bytes);
    }
    if rest.starts_with("::") {
        return (Some(Token::Colons), 2);
    }
    ((!first.is_whitespace()).then_some(Token::Mark(first)), first.len_utf8())
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the length of the block comment at the start of `rest`. Such comments nest.
fn comment_bytes(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Returns the length of the string literal that `rest` begins with, if it does.
fn string_bytes(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r"].iter().find(|prefix| rest.starts_with(**prefix));
    let prefix = prefix.map_or("", |prefix| *prefix);
    let body = &rest[prefix.len()..];
    if !prefix.ends_with('r') {
        let inner = body.strip_prefix('"')?;
        return Some(prefix.len() + 1 + escaped_bytes(inner, '"'));
    }
    let hashes = body.len() - body.trim_start_matches('#').len();
    let inner = body[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let bytes = inner.find(&end).map_or(inner.len(), |at| at + end.len());
    Some(prefix.len() + hashes + 1 + bytes)
}

/// Returns the length up to and with the first `end` without a backslash before it.
fn escaped_bytes(inner: &str, end: char) -> usize {
    let mut escaped = false;
    for (at, c) in inner.char_indices() {
        if c == end && !escaped {
            return at + c.len_utf8();
        }
        escaped = c == '\\' && !escaped;
    }
    inner.len()
}

/// Returns the length of the character or lifetime at the start of `rest`.
fn quote_bytes(rest: &str) -> usize {
    let inner = &rest[1..];
    let mut chars = inner.chars();
    let first = chars.next();
    if first == Some('\\') || chars.next() == Some('\'') {
        return 1 + escaped_bytes(inner, '\'');
    }
    1 + inner.find(|c| !is_of_word(c)).unwrap_or(inner.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        let word = |token| if let Token::Word(word) = token { Some(word) } else { None };
        tokens(text).into_iter().filter_map(word).collect()
    }

    #[test]
    fn comments_and_literals_hold_no_words() {
        assert_eq!(words("a // b\nc /* d /* e */ f */ g"), ["a", "c", "g"]);
        assert_eq!(words(r##"a "b \" c" d r#"e " f"# g b"h" i"##), ["a", "d", "g", "i"]);
        assert_eq!(words(r"a '\'' b 'c' d '\u{e}' f"), ["a", "b", "d", "f"]);
        assert_eq!(words("a<'b> c: &'static str"), ["a", "c", "str"]);
    }

    #[test]
    fn colons_of_a_path_are_one_token() {
        let expected = [Token::Word("a"), Token::Colons, Token::Word("b"), Token::Mark(':')];
        assert_eq!(tokens("a::b:"), expected);
    }
}
