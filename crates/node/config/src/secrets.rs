//! Masks secrets in the shown parts of a config: lines beside an error, since terminals are shared
//! and logs are kept, and files that are given away.

use toml::{Table, Value};

/// Keys whose values are not shown.
const SECRETS: [&str; 8] =
    ["value", "hash", "salt", "tokens", "api_key", "api-key", "x-api-key", "authorization"];
/// Last words of further such keys.
const SECRET_ENDS: [&str; 3] = ["token", "secret", "password"];
/// Beginnings of texts that are secrets under whatever key: of this gateway, and of well-known APIs.
const SECRET_STARTS: [&str; 6] = ["sw_", "swj_", "sk-", "hf_", "Bearer ", "Basic "];

/// Keys whose texts may have secrets, such as a key of an API in a request for a check. Not shown in files
/// that are given away.
const PRIVATE: [&str; 5] = ["prefix", "prefix_key", "body", "expect", "warm_up"];
/// In place of a secret.
const HIDDEN: &str = "****";

/// Returns true if the value of this key is not shown.
pub(crate) fn is_secret(key: &str) -> bool {
    let is_in = |text: &str, all: &[&str]| all.iter().any(|it| text.eq_ignore_ascii_case(it));
    let last = key.rsplit(['_', '-']).next().unwrap_or_default();
    is_in(key, &SECRETS) || is_in(last, &SECRET_ENDS)
}

/// Returns the settings of a config as TOML, without its comments and with asterisks in place of secrets,
/// for files that are given away. Of a text that is no TOML only the keys are left.
#[must_use]
pub fn shareable(text: &str) -> String {
    let Ok(mut table) = text.parse::<Table>() else { return keys_of(text) };
    table.iter_mut().for_each(|(key, value)| hide_secrets(key, value));
    toml::to_string(&table).unwrap_or_else(|_| keys_of(text))
}

fn hide_secrets(key: &str, value: &mut Value) {
    match value {
        Value::Table(table) => {
            for (inner, value) in table {
                // Every value inside a secret is secret.
                hide_secrets(if is_secret(key) { key } else { inner }, value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| hide_secrets(key, item)),
        _ if is_secret(key) => *value = HIDDEN.into(),
        Value::String(text) => {
            let is_private = PRIVATE.iter().any(|it| key.eq_ignore_ascii_case(it));
            *text = if is_private { HIDDEN.to_owned() } else { without_credentials(text) };
        }
        _ => {}
    }
}

/// Returns the lines of a text that could be headers of tables, and the keys of the others.
fn keys_of(text: &str) -> String {
    let is_key = |key: &str| {
        let is_of_key = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
        !key.is_empty() && key.chars().all(is_of_key)
    };
    let shown = |line: &str| {
        let line = line.trim();
        let header = line.trim_start_matches('[').trim_end_matches(']');
        match line.split_once('=') {
            None if line.starts_with('[') && line.ends_with(']') && is_key(header) => {
                format!("{line}\n")
            }
            Some((key, _)) if is_key(key.trim()) => format!("{} = {HIDDEN}\n", key.trim()),
            _ => String::new(),
        }
    };
    text.lines().map(shown).collect()
}

/// Returns a text without what gives itself away as a credential, whatever its key.
fn without_credentials(text: &str) -> String {
    let mut shown = text.to_owned();
    hide_credentials(text, &mut shown);
    shown
}

/// Hides users and passwords of URLs, values in queries and texts that look like keys of `line` in
/// `shown`, which has the same length.
fn hide_credentials(line: &str, shown: &mut String) {
    hide_users(line, shown);
    hide_queries(line, shown);
    hide_known_starts(line, shown);
}

/// Hides the values in the query of each path and URL.
fn hide_queries(line: &str, shown: &mut String) {
    let ends = ['&', '"', '\'', ' ', '\t', '\r', '\n', '#', ','];
    for (mark, _) in line.match_indices('?') {
        let query_end = line[mark..].find(['"', '\'', ' ', '\t', '\r', '\n']);
        let query_end = query_end.map_or(line.len(), |end| mark + end);
        for (equals, _) in line[mark..query_end].match_indices('=') {
            let value = mark + equals + 1;
            let end = line[value..].find(ends).map_or(line.len(), |end| value + end);
            hide(shown, value..end);
        }
    }
}

/// Hides what follows a text that only keys begin with.
fn hide_known_starts(line: &str, shown: &mut String) {
    for start in SECRET_STARTS {
        for (at, _) in line.match_indices(start) {
            let is_inside = line[..at].ends_with(|letter: char| letter.is_ascii_alphanumeric());
            let value = at + start.len();
            let is_of_key =
                |letter: char| letter.is_ascii_alphanumeric() || "_-.=+/~".contains(letter);
            let end = line[value..].find(|letter| !is_of_key(letter));
            if !is_inside {
                hide(shown, value..end.map_or(line.len(), |end| value + end));
            }
        }
    }
}

/// Hides the user and the password in front of the host of each URL of `line` in `shown`, which has the
/// same length.
fn hide_users(line: &str, shown: &mut String) {
    for (scheme, _) in line.match_indices("://") {
        let rest = &line[scheme + 3..];
        let authority = rest.find(['/', '"', '\'', ' ', '\n']).unwrap_or(rest.len());
        if let Some(at) = rest[..authority].rfind('@') {
            hide(shown, scheme + 3..scheme + 3 + at);
        }
    }
}

/// Returns a text of the same length with asterisks in place of secrets. It looks at lines, not at
/// TOML, since a file that does not parse has secrets, too.
#[must_use]
pub(crate) fn masked(text: &str) -> String {
    text.split_inclusive('\n').map(masked_line).collect()
}

fn masked_line(line: &str) -> String {
    let mut shown = line.to_owned();
    for (equals, _) in line.match_indices('=') {
        let key = line[..equals].trim_end().trim_end_matches(['"', '\'']);
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
        let name = key.rsplit(|letter| !is_of_name(letter)).next();
        if name.is_some_and(is_secret) {
            let value = equals + 1..value_end(line, equals + 1);
            hide(&mut shown, value);
        }
    }
    hide_credentials(line, &mut shown);
    shown
}

/// Returns the end of the value that begins after the white space at `start`.
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
            ("join_token = \"swj_a\"", "join_token = \"*****\""),
            ("first_token_ms = 5", "first_token_ms = 5"),
            ("path = \"/h?a=bc&t=d\" # why?", "path = \"/h?a=**&t=*\" # why?"),
            ("keys = [\"sw_ab_cd\", \"sk-x\"]", "keys = [\"sw_*****\", \"sk-*\"]"),
            ("Authorization = \"Bearer ab\"", "Authorization = \"****** **\""),
            ("a = [\"Bearer ab\", \"disk-1\"]", "a = [\"Bearer **\", \"disk-1\"]"),
        ] {
            assert_eq!(masked(line), shown);
            assert_eq!(masked(line).len(), line.len());
        }
    }

    #[test]
    fn files_that_are_given_away_have_no_secret_in_any_spelling() {
        for text in [
            "[a]\nvalue = \"SECRET\"",
            "[a]\nvalue = \"esc\\\"SECRET\"",
            "[a]\nvalue = \"\"\"\nfirst\nSECRET\"\"\"",
            "[a]\nvalue = \'\'\'\nfirst\nSECRET\'\'\'",
            "[a]\nvalue = 'SECRET'",
            "a.credential.value = \"SECRET\"",
            "a = { credential = { value = \"SECRET\" } }",
            "[a.credential]\n\"value\" = \"SECRET\"",
            "[a.credential]\n'VALUE' = \"SECRET\"",
            "[a.credential]\n\"v\\u0061lue\" = \"SECRET\"",
            "[[a]]\nvalue = [\"x\", [\"SECRET\"]]",
            "[[a]]\nvalue = { inner = \"SECRET\" }",
            "[a]\ntoken = \"SECRET\" # SECRET",
            "# value = \"SECRET\"\n[a]",
            "[a.credential]\nprefix = \"Bearer SECRET\"",
            "[a.deep]\nbody = \'{\"api_key\": \"SECRET\"}\'",
            "[a]\nwarm_up = [\"SECRET\"]",
            "[a]\nurl = \"https://user:SECRET@host:1/x\"",
            "[admin.tokens]\nada = \"SECRET\"",
            "[a.headers]\nAuthorization = \"SECRET\"",
            "[cluster]\njoin_token = \"SECRET\"",
            "[cluster]\nprefix_key = \"SECRET\"",
            "[a]\npath = \"/health?token=SECRET\"",
            "[a]\nurl = \"http://h/x?a=b&key=SECRET\"",
            "[a]\nkeys = [\"sw_SECRET\", \"sk-SECRET\"]",
            "[a]\nname = \"key:sw_ab_SECRET\"",
            // No TOML.
            "[a\nvalue = \"SECRET\"",
            "value = \"\"\"\nSECRET\n[SECRET]\nSECRET SECRET = 1",
            "value = \"SECRET\nname = b",
        ] {
            let shown = shareable(text);
            let shown = shown.replace("[SECRET]", "");
            assert!(!shown.contains("SECRET"), "{text}\n---\n{shown}");
        }
    }

    #[test]
    fn what_is_no_secret_is_given_away_whole() {
        let text =
            "[node]\nname = \"a\"\n\n[[replica]]\nurl = \"http://h:1/x\"\nvalue_file = \"f\"\n";
        assert_eq!(shareable(text), text);
        assert_eq!(shareable("[node]\nname = \"a\nport = 1"), "[node]\nname = ****\nport = ****\n");
    }
}
