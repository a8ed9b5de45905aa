//! Explains the errors of a text that is no TOML, by common mistakes.

use std::ops::Range;

use crate::error::ConfigError;
use crate::numbers::{plain_number, unit_of};
use crate::source::Source;

/// Remedy for errors without a better one.
const REMEDY: &str = "correct the syntax: strings stand in quotes, lists in [ ], tables in { }";

/// Quotation marks that word processors put in place of straight ones.
const CURLY: [char; 6] = ['\u{201c}', '\u{201d}', '\u{201e}', '\u{2018}', '\u{2019}', '\u{201a}'];

/// Returns the errors of the parser in words. A file in another format has one alone, since all the
/// others follow from it.
pub(crate) fn explain(source: &Source, wrong: &[toml::de::Error]) -> Vec<ConfigError> {
    if let Some(error) = other_format(source) {
        return vec![error];
    }
    let all: Vec<ConfigError> = wrong.iter().filter_map(|error| one(source, error)).collect();
    if !all.is_empty() {
        return all;
    }
    // A file with a fault never passes without an error.
    let span = |error: &toml::de::Error| error.span().unwrap_or(0..0);
    wrong.iter().map(|error| other(source, error, span(error))).collect()
}

/// Returns the error of a file in YAML or JSON; None if the first line may be TOML.
fn other_format(source: &Source) -> Option<ConfigError> {
    let mut start = 0;
    let line = source.text().split_inclusive('\n').find(|line| {
        let is_said = !line.trim().is_empty() && !line.trim_start().starts_with('#');
        start += if is_said { 0 } else { line.len() };
        is_said
    })?;
    let line = line.trim_end();
    let is_word = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    let is_yaml = line == "---"
        || line.starts_with("- ")
        || line
            .split_once(':')
            .is_some_and(|(key, rest)| is_word(key) && (rest.is_empty() || rest.starts_with(' ')));
    let format = match () {
        () if line.starts_with('{') => "JSON",
        () if is_yaml => "YAML",
        () => return None,
    };
    let message = format!("this looks like {format}, and a config is TOML");
    let remedy = "write sections as [name] or [[name]], and settings as key = value; `spillway \
                  config reference` lists all";
    Some(source.fault(start..start + line.len(), message, remedy))
}

/// Explains one error; None for a key of a table that is there twice, since the error of that table
/// covers it.
fn one(source: &Source, error: &toml::de::Error) -> Option<ConfigError> {
    let span = error.span().unwrap_or(0..0);
    if error.message() == "duplicate key" {
        return twice(source, &span);
    }
    Some(other(source, error, span))
}

fn other(source: &Source, error: &toml::de::Error, span: Range<usize>) -> ConfigError {
    let written = source.part(span.clone());
    if written.contains(CURLY) {
        let straight: String = written.replace(CURLY, "\"");
        let message = "typographic quotes do not enclose a string";
        return source.fault(span, message, format!("write straight ones: {straight}"));
    }
    let key = key_of(source.text(), span.start);
    if let Some(number) = plain_number(written, unit_of(key)) {
        let message = format!("{written} is no number: numbers have no unit");
        return source.fault(span, message, format!("write {key} = {number}"));
    }
    source.fault(span, error.message(), REMEDY)
}

/// Returns the key of the line that a position is in, up to there.
fn key_of(text: &str, at: usize) -> &str {
    let before = text.get(..at).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    line.split('=').next().unwrap_or_default().trim()
}

/// Returns the error of a table or key that is there twice, with the position of the first one; None if
/// that is not found.
fn twice(source: &Source, span: &Range<usize>) -> Option<ConfigError> {
    let (text, name) = (source.text(), source.part(span.clone()));
    let line_at = text.get(..span.start)?.rfind('\n').map_or(0, |at| at + 1);
    let line = text.get(line_at..)?.lines().next()?.trim();
    let is_table = line.starts_with('[');
    let (mut start, mut first, mut number) = (0, None, 0);
    for (at, earlier) in text.get(..line_at)?.split_inclusive('\n').enumerate() {
        let is_header = earlier.trim_start().starts_with('[');
        let said = earlier.split('#').next().unwrap_or_default().trim();
        match () {
            () if is_table && first.is_none() && is_header && said == without_comment(line) => {
                (first, number) = (Some(start), at + 1);
            }
            // A key belongs to the table above it.
            () if !is_table && is_header => first = None,
            () if !is_table
                && first.is_none()
                && said.split('=').next().map(str::trim) == Some(name) =>
            {
                (first, number) = (Some(start), at + 1);
            }
            () => {}
        }
        start += earlier.len();
    }
    let first = first?;
    let indent = text.get(first..)?.find(|letter: char| !letter.is_whitespace())?;
    let (shown, earlier) = match is_table {
        // Both marks are of the name alone.
        true => (format!("[{name}]"), first + indent + 1..first + indent + 1 + name.len()),
        false => (format!("`{name}`"), first + indent..first + indent + name.len()),
    };
    let remedy = match is_table {
        true => format!("merge the two, the first is at line {number}"),
        false => format!("remove one of the two, the first is at line {number}"),
    };
    Some(source.collision(span.clone(), earlier, format!("{shown} is there twice"), remedy))
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use toml::de::DeTable;

    use super::*;

    fn told(text: &str) -> Vec<String> {
        let source = Source::new(Path::new("c.toml"), text);
        let (_, wrong) = DeTable::parse_recoverable(text);
        let errors = explain(&source, &wrong);
        errors.iter().map(|it| format!("{}; {}", it.message, it.remedy)).collect()
    }

    #[test]
    fn another_format_is_one_error() {
        for (text, format) in [
            ("# a node\nlistener:\n  - address: a\nreplica:\n  - name: a\n", "YAML"),
            ("---\nnode: {}\n", "YAML"),
            ("{ \"node\": {} }\n", "JSON"),
        ] {
            let told = told(text);
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].contains(format) && told[0].contains("a config is TOML"), "{told:?}");
        }
    }

    #[test]
    fn what_is_there_twice_names_the_first_one() {
        let tables = told("[admin]\na = 1\n[node]\n[admin] # again\nb = 1\n");
        assert_eq!(tables, ["[admin] is there twice; merge the two, the first is at line 1"]);
        let both = told("[admin]\naddress = 1\n[x]\n[admin]\naddress = 1\n");
        assert_eq!(both, ["[admin] is there twice; merge the two, the first is at line 1"]);
        let keys = told("[a]\nx = 1\n[b]\nx = 1\ny = 2\nx = 3\n");
        assert_eq!(keys, ["`x` is there twice; remove one of the two, the first is at line 4"]);
    }

    #[test]
    fn units_and_curly_quotes_are_corrected() {
        let limit = told("[[limit]]\ntokens_per_min = 600k\n");
        assert_eq!(
            limit,
            ["600k is no number: numbers have no unit; write tokens_per_min = 600_000"]
        );
        let quotes = told("name = \u{201c}gpu-a\u{201d}\n");
        assert!(quotes[0].ends_with("write straight ones: \"gpu-a\""), "{quotes:?}");
        assert!(told("name = gpu-a\n")[0].ends_with(REMEDY));
    }
}
