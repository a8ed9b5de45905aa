//! Check that every metric is documented and every documented metric exists.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::tree::{TextFile, Tree};

/// The only file with metric names.
const NAMES: &str = "crates/telemetry/src/names.rs";
/// Document that explains the metrics to operators.
const DOCUMENT: &str = "docs/reference/metrics.md";
/// Prefix of all metrics of this project.
const PREFIX: &str = "spillway_";
/// Suffixes that the text format adds to the name of a counter, histogram or info.
const SUFFIXES: [&str; 6] = ["_total", "_bucket", "_sum", "_count", "_created", "_info"];

/// Compares the names with the document. Returns no findings if there is no file of names.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(names_file) = tree.file(NAMES) else { return Vec::new() };
    let Some(document) = tree.file(DOCUMENT) else {
        return vec![Finding::violation("metrics", DOCUMENT, format!("missing; {NAMES} exists"))];
    };
    let names = names(names_file);
    let documented = words(document);
    let undocumented = names
        .iter()
        .filter(|(name, _)| !documented.keys().any(|word| is_name_of(word, name)))
        .map(|(name, line)| {
            let message = format!("{name} is not in {DOCUMENT}");
            Finding::violation("metrics", NAMES, message).at(*line)
        });
    let unknown = documented
        .iter()
        .filter(|(word, _)| !names.keys().any(|name| is_name_of(word, name)))
        .map(|(word, line)| {
            let message = format!("{word} is not in {NAMES}");
            Finding::violation("metrics", DOCUMENT, message).at(*line)
        });
    undocumented.chain(unknown).collect()
}

fn is_name_of(word: &str, name: &str) -> bool {
    word.strip_prefix(name).is_some_and(|rest| rest.is_empty() || SUFFIXES.contains(&rest))
}

/// Returns the metric names in string literals, each with its line.
fn names(file: &TextFile) -> BTreeMap<&str, usize> {
    file.numbered()
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .flat_map(|(number, line)| {
            // Every second part stands between quotes.
            line.split('"').skip(1).step_by(2).map(move |text| (text, number))
        })
        .filter(|(text, _)| text.starts_with(PREFIX))
        .collect()
}

/// Returns the words that look like metric names, each with the last line that has it.
fn words(file: &TextFile) -> BTreeMap<&str, usize> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    file.numbered()
        .flat_map(|(number, line)| line.split(|c| !is_part(c)).map(move |word| (word, number)))
        .filter(|(word, _)| word.starts_with(PREFIX))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::testing::tree;
    use super::*;

    const TWO: &str = "/// Served.\npub const REQUESTS: &str = \"spillway_requests\";\n\
                       pub const WAIT: &str =\n    \"spillway_wait_seconds\";\n";

    fn check_both(names: &str, document: &str) -> Vec<String> {
        let tree = tree(&[(NAMES, names), (DOCUMENT, document)]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_with_the_suffixes_of_the_text_format_are_documented() {
        let document = "| `spillway_requests_total` | served |\n\
                        rate(spillway_wait_seconds_bucket{le=\"1\"}[5m])\n";
        assert_eq!(check_both(TWO, document), [""; 0]);
    }

    #[test]
    fn an_undocumented_name_is_found() {
        assert_eq!(
            check_both(TWO, "`spillway_requests`\n"),
            [format!("error[metrics]: {NAMES}:4: spillway_wait_seconds is not in {DOCUMENT}")]
        );
    }

    #[test]
    fn a_documented_name_that_does_not_exist_is_found() {
        let document = "`spillway_requests` `spillway_wait_seconds`\n`spillway_requests_lost`\n";
        assert_eq!(
            check_both(TWO, document),
            [format!("error[metrics]: {DOCUMENT}:2: spillway_requests_lost is not in {NAMES}")]
        );
    }

    #[test]
    fn names_without_a_document_are_found_and_no_names_are_fine() {
        assert_eq!(check(&tree(&[(NAMES, TWO)])).len(), 1);
        assert_eq!(check(&tree(&[("README.md", "")])), []);
    }
}
