//! Reasons that nothing gives: a variant of `reasons!` that the code only reads.

use super::finding::Finding;
use super::tree::{TextFile, Tree};

/// Enums whose variants are found by their name, in what clients and operators write, or come from
/// nodes of earlier releases.
const READ_ONLY: [&str; 3] = ["FilterField", "ReasonKind", "RefusedReason"];

/// An enum that `reasons!` declares.
struct Declared<'t> {
    file: &'t TextFile,
    /// The declaration.
    text: &'t str,
    name: &'t str,
}

/// Checks every reason that is declared below `crates/`.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let is_code = |file: &&TextFile| file.path.starts_with("crates/") && file.extension() == "rs";
    let is_test = |file: &&TextFile| {
        file.path.contains("/tests/") || file.path.contains("test_") || file.path.contains("_test")
    };
    let code: Vec<&TextFile> =
        tree.files.iter().filter(is_code).filter(|it| !is_test(it)).collect();
    code.iter().flat_map(|file| declared(file)).flat_map(|it| unproduced(&it, &code)).collect()
}

fn declared(file: &TextFile) -> Vec<Declared<'_>> {
    let blocks = without_tests(&file.text).split("\nreasons! {\n").skip(1);
    let declared = blocks.filter_map(|block| {
        let text = block.split("\n}\n").next()?;
        let name = text.split_once(" enum ")?.1.split(' ').next()?;
        (!READ_ONLY.contains(&name)).then_some(Declared { file, text, name })
    });
    declared.collect()
}

fn unproduced(declared: &Declared<'_>, code: &[&TextFile]) -> Vec<Finding> {
    let variants = declared.text.lines().filter_map(|line| {
        let variant = line.trim().split_once(" = \"")?.0;
        variant.chars().all(char::is_alphanumeric).then_some(variant)
    });
    let is_produced = |variant: &&str| {
        let path = format!("{}::{variant}", declared.name);
        let by_self = format!("Self::{variant}");
        code.iter().any(|file| produces(&file.text, &path))
            || produces(&declared.file.text, &by_self)
    };
    let finding = |variant: &str| {
        let message = format!("nothing gives the reason {}::{variant}", declared.name);
        Finding::violation("unproduced-reason", &declared.file.path, message)
    };
    variants.filter(|variant| !is_produced(variant)).map(finding).collect()
}

/// Returns true if the code names the variant other than as a pattern.
fn produces(text: &str, path: &str) -> bool {
    let text = without_tests(text);
    text.match_indices(path).any(|(at, _)| {
        let before = text[..at].trim_end();
        let after = &text[at + path.len()..];
        let is_whole = !after.starts_with(|next: char| next.is_alphanumeric() || next == '_');
        let after = after.trim_start();
        let is_pattern =
            before.ends_with('|') || ["=>", "|", "if "].iter().any(|it| after.starts_with(it));
        is_whole && !is_pattern
    })
}

fn without_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::super::tree::testing::tree;
    use super::*;

    const DECLARED: &str = "use spillway_types::reasons;\n\nreasons! {\n    /// Weather.\n    pub \
        enum Weather {\n        /// Sun.\n        Fair = \"fair\";\n        /// Rain.\n        \
        Wet = \"wet\";\n    }\n}\n";

    fn found(code: &str) -> Vec<String> {
        let tree = tree(&[("crates/a/weather.rs", DECLARED), ("crates/b/lib.rs", code)]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_reason_that_something_gives_passes() {
        assert!(found("f(Weather::Fair);\nlet it = Weather::Wet;\n").is_empty());
    }

    #[test]
    fn a_reason_that_is_only_read_or_tested_is_found() {
        let wet = ["nothing gives the reason Weather::Wet"];
        assert_eq!(found("f(Weather::Fair);\nmatch it {\n    Weather::Wet => 1,\n}\n"), wet);
        assert_eq!(found("f(Weather::Fair);\nf(Weather::Wetter);\n"), wet);
        let tested = "f(Weather::Fair);\n\n#[cfg(test)]\nmod tests {\n    f(Weather::Wet);\n}\n";
        assert_eq!(found(tested), wet);
    }
}
