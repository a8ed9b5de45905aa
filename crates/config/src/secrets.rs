//! Masks secrets in lines that are shown beside an error: terminals are shared and logs are kept.

/// Keys whose values are not shown.
const SECRETS: [&str; 7] = ["value", "hash", "salt", "token", "secret", "password", "api_key"];

/// Returns true if the value of this key is not shown.
pub(crate) fn is_secret(key: &str) -> bool {
    SECRETS.iter().any(|secret| key.eq_ignore_ascii_case(secret))
}

/// Returns a text of the same length with asterisks in place of secrets. It looks at lines, not at
/// TOML, since a file that does not parse has secrets, too.
#[must_use]
pub fn masked(text: &str) -> String {
    text.split_inclusive('\n').map(masked_line).collect()
}

fn masked_line(line: &str) -> String {
    let mut shown = line.to_owned();
    for (equals, _) in line.match_indices('=') {
        let key = line[..equals].trim_end().trim_end_matches(['"', '\'']);
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let name = key.rsplit(|letter| !is_of_name(letter)).next();
        if name.is_some_and(is_secret) {
            let value = equals + 1..value_end(line, equals + 1);
            hide(&mut shown, value);
        }
    }
    // A user and a password before the host of a URL.
    for (scheme, _) in line.match_indices("://") {
        let rest = &line[scheme + 3..];
        let authority = rest.find(['/', '"', '\'', ' ', '\n']).unwrap_or(rest.len());
        if let Some(at) = rest[..authority].rfind('@') {
            hide(&mut shown, scheme + 3..scheme + 3 + at);
        }
    }
    shown
}

/// Returns the end of the value that begins behind the white space at `start`.
fn value_end(line: &str, start: usize) -> usize {
    let rest = line[start..].trim_start();
    let begin = line.len() - rest.len();
    let end = match rest.chars().next() {
        Some(quote @ ('"' | '\'')) => rest[1..].find(quote).map(|end| end + 2),
        _ => rest.find([',', '}', ']', '#', '\n']),
    };
    // A text whose quote is not closed goes on to the end of the line.
    end.map_or(line.len(), |end| begin + end)
}

/// Replaces all but quotes and white space by asterisks, one for each byte.
fn hide(line: &mut String, at: std::ops::Range<usize>) {
    let hidden: String = line[at.clone()]
        .chars()
        .map(|letter| match letter {
            '"' | '\'' | ' ' | '\t' | '\r' | '\n' => letter.to_string(),
            other => "*".repeat(other.len_utf8()),
        })
        .collect();
    line.replace_range(at, &hidden);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_and_nothing_else() {
        for (line, shown) in [
            ("hash = \"12ab\" # c\n", "hash = \"****\" # c\n"),
            ("a = { header = \"h\", value = 'a \"b' }", "a = { header = \"h\", value = '* \"*' }"),
            ("\"salt\"=12, b = 3", "\"salt\"=**, b = 3"),
            ("value = \"open", "value = \"****"),
            ("value_file = \"f\"\nprice_value = 1", "value_file = \"f\"\nprice_value = 1"),
            ("password = \"ä\"", "password = \"**\""),
            ("ܤ=1 ütoken=2", "ܤ=1 ütoken=*"),
            ("url = \"http://u:p@h:1/x@y\"", "url = \"http://***@h:1/x@y\""),
            ("url = \"http://h:1\"", "url = \"http://h:1\""),
        ] {
            assert_eq!(masked(line), shown);
            assert_eq!(masked(line).len(), line.len());
        }
    }
}
