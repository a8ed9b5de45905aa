//! Limits on the length of files.

use super::finding::Finding;
use super::tree::{TextFile, Tree};

/// Number of lines above which most files have more than one subject.
const LINES_WARN: usize = 400;
/// Most lines of any file.
const LINES_MAX: usize = 800;
/// Number of lines that `main.rs` stays below: it reads arguments, builds, runs and drains.
const MAIN_LINES: usize = 100;

/// Checks the length of every source file.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().filter(|file| is_source(file)).filter_map(check_file).collect()
}

fn check_file(file: &TextFile) -> Option<Finding> {
    let lines = file.text.lines().count();
    if file.name() == "main.rs" && lines >= MAIN_LINES {
        let message = format!("{lines} lines; main.rs must have fewer than {MAIN_LINES}");
        return Some(Finding::violation("main-lines", &file.path, message));
    }
    let finding = |limit| {
        let message = format!("{lines} lines; more than {limit}: split it by subject");
        Finding::violation("file-lines", &file.path, message)
    };
    match lines {
        lines if lines > LINES_MAX => Some(finding(LINES_MAX)),
        lines if lines > LINES_WARN => Some(finding(LINES_WARN).into_warning()),
        _ => None,
    }
}

fn is_source(file: &TextFile) -> bool {
    matches!(file.extension(), "rs" | "py" | "sh" | "tf") || file.text.starts_with("#!")
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::super::tree::testing::tree;
    use super::*;

    fn severity(path: &str, lines: usize) -> Option<Severity> {
        let tree = tree(&[(path, &"\n".repeat(lines))]);
        check(&tree).first().map(|finding| finding.severity)
    }

    #[test]
    fn a_long_file_warns_and_a_very_long_one_fails() {
        assert_eq!(severity("crates/a/src/b.rs", LINES_WARN), None);
        assert_eq!(severity("crates/a/src/b.rs", LINES_WARN + 1), Some(Severity::Warning));
        assert_eq!(severity("crates/a/src/b.rs", LINES_MAX), Some(Severity::Warning));
        assert_eq!(severity("crates/a/src/b.rs", LINES_MAX + 1), Some(Severity::Violation));
        assert_eq!(severity("tests/clients/a.py", LINES_MAX + 1), Some(Severity::Violation));
    }

    #[test]
    fn a_long_main_fails() {
        assert_eq!(severity("crates/a/src/main.rs", MAIN_LINES - 1), None);
        assert_eq!(severity("crates/a/src/main.rs", MAIN_LINES), Some(Severity::Violation));
    }

    #[test]
    fn what_nobody_writes_by_hand_may_be_long() {
        assert_eq!(severity("Cargo.lock", 5000), None);
    }
}
