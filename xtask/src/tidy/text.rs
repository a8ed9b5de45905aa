//! Text that must not occur in a file, or not without a reason beside it.

use super::finding::Finding;
use super::tree::{TextFile, Tree};

/// Folders that belong to one machine or person. Without slashes, so that this file passes.
const MACHINE_FOLDERS: [&str; 3] = ["work", "root", "home"];

/// Checks every text file.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let files = || tree.files.iter().filter(|file| file.name() != "Cargo.lock");
    let paths = files().flat_map(machine_paths);
    let ignored = files().filter(|file| file.extension() == "rs").flat_map(bare_ignores);
    let sleeps = files().flat_map(bare_sleeps);
    paths.chain(ignored).chain(sleeps).collect()
}

fn machine_paths(file: &TextFile) -> Vec<Finding> {
    let found = |line: &str| {
        MACHINE_FOLDERS
            .iter()
            .map(|folder| format!("/{folder}/"))
            .find(|folder| has_path_from_root(line, folder))
    };
    let finding = |(number, folder): (usize, String)| {
        let message = format!("a path below {folder} exists on one machine only");
        Finding::violation("machine-path", &file.path, message).at(number)
    };
    file.numbered()
        .filter_map(|(number, line)| found(line).map(|folder| (number, folder)))
        .map(finding)
        .collect()
}

/// Returns true if an absolute path in `line` begins with `folder`.
fn has_path_from_root(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        // After such a character the path begins elsewhere: at a folder, a variable, a home folder.
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~*/})>]$".contains(c))
    })
}

fn bare_ignores(file: &TextFile) -> Vec<Finding> {
    file.numbered()
        .filter(|(_, line)| line.trim_start().starts_with("#[ignore]"))
        .map(|(number, _)| {
            let message = "say why: #[ignore = \"...\"]";
            Finding::violation("ignore-reason", &file.path, message).at(number)
        })
        .collect()
}

/// Finds sleeps in tests without a comment that gives the reason: a test that sleeps is slow or
/// flaky.
fn bare_sleeps(file: &TextFile) -> Vec<Finding> {
    let Some(comment) = comment_mark(file) else { return Vec::new() };
    let lines: Vec<&str> = file.text.lines().collect();
    let Some(first) = first_test_line(file, &lines) else { return Vec::new() };
    let excused = format!("{comment} wait:");
    (first..lines.len())
        .filter(|&index| calls_sleep(lines[index], comment))
        .filter(|&index| !is_excused(&lines, index, comment, &excused))
        .map(|index| {
            let message = format!("wait for the event, or say why not in a `{excused}` comment");
            Finding::violation("sleep-in-test", &file.path, message).at(index + 1)
        })
        .collect()
}

fn comment_mark(file: &TextFile) -> Option<&'static str> {
    match file.extension() {
        "rs" => Some("//"),
        "py" => Some("#"),
        _ => None,
    }
}

/// Returns the first line of tests: the top of a test file, else the test module; None without
/// tests.
fn first_test_line(file: &TextFile, lines: &[&str]) -> Option<usize> {
    let in_folder = file.path.split('/').rev().skip(1).any(|part| part == "tests");
    if in_folder || file.name().ends_with("_test.rs") || file.name() == "tests.rs" {
        return Some(0);
    }
    (0..lines.len())
        .find(|&index| lines[index].trim() == "#[cfg(test)]" && opens_module(&lines[index + 1..]))
}

/// Returns true if the next item is a module with its body in this file.
fn opens_module(lines: &[&str]) -> bool {
    let item = lines.iter().map(|line| line.trim()).find(|line| !line.starts_with("#["));
    item.is_some_and(|line| line.contains("mod ") && line.ends_with('{'))
}

fn calls_sleep(line: &str, comment: &str) -> bool {
    let code = line.split(comment).next().unwrap_or_default();
    // Written in two parts, so that this file passes.
    let call = ["sleep", "("].concat();
    code.contains(&call) && !code.contains(&format!("fn {call}"))
}

/// Returns true if `excused` is on the same line or in the comment right above.
fn is_excused(lines: &[&str], index: usize, comment: &str, excused: &str) -> bool {
    let above =
        lines[..index].iter().rev().take_while(|line| line.trim_start().starts_with(comment));
    lines[index].contains(excused) || above.into_iter().any(|line| line.contains(excused))
}

#[cfg(test)]
mod tests {
    use super::super::tree::testing::tree;
    use super::*;

    /// Checks one file. `SLEEP` and `ROOT` in it are placeholders for text that this file must not
    /// contain.
    fn check_one(path: &str, text: &str) -> Vec<(&'static str, Option<usize>)> {
        let text = text.replace("SLEEP", &["sleep", "("].concat());
        let text = text.replace("ROOT", &["/", "root", "/"].concat());
        let findings = check(&tree(&[(path, &text)]));
        findings.iter().map(|finding| (finding.rule, finding.line)).collect()
    }

    #[test]
    fn a_path_of_one_machine_is_found_in_any_file() {
        let found = [("machine-path", Some(2))];
        assert_eq!(check_one("docs/a.md", "one\nsee ROOTproject\n"), found);
        assert_eq!(check_one("docs/a.md", "one\n`ROOTproject`\n"), found);
        assert_eq!(check_one(".ci/run", "one\ncd ROOT\n"), found);
        assert_eq!(check_one("a.toml", "one\npath=\"ROOT\"\n"), found);
    }

    #[test]
    fn a_folder_inside_a_path_is_nobodys_machine() {
        assert_eq!(check_one("docs/a.md", "deployROOTx and $HOMEROOTx and ${dir}ROOTx\n"), []);
    }

    #[test]
    fn an_ignored_test_needs_a_reason() {
        assert_eq!(check_one("a.rs", "#[test]\n    #[ignore]\n"), [("ignore-reason", Some(2))]);
        assert_eq!(check_one("a.rs", "#[ignore = \"needs a GPU\"]\n"), []);
    }

    #[test]
    fn a_sleeping_test_is_found() {
        let found = [("sleep-in-test", Some(2))];
        assert_eq!(check_one("tests/tests/a.rs", "\nthread::SLEEPd);\n"), found);
        assert_eq!(check_one("crates/a/src/b_test.rs", "\nthread::SLEEPd);\n"), found);
        assert_eq!(check_one("tests/clients/a.py", "\ntime.SLEEP1)\n"), found);
        let inline = "#[cfg(test)]\nmod tests {\n    SLEEPd).await\n}\n";
        assert_eq!(check_one("a/src/b.rs", inline), [("sleep-in-test", Some(3))]);
    }

    #[test]
    fn a_sleep_that_says_what_it_waits_for_passes() {
        assert_eq!(check_one("tests/a.rs", "SLEEPd); // wait: the poll interval\n"), []);
        assert_eq!(check_one("tests/a.rs", "// wait: the\n// poll interval\nSLEEPd);\n"), []);
        assert_eq!(check_one("tests/a.py", "# wait: the poll interval\ntime.SLEEP1)\n"), []);
        let other = "// wait: another one\nf();\nSLEEPd);\n";
        assert_eq!(check_one("tests/a.rs", other), [("sleep-in-test", Some(3))]);
    }

    #[test]
    fn sleeping_outside_tests_is_not_this_rules_business() {
        assert_eq!(check_one("a/src/b.rs", "SLEEPd);\n#[cfg(test)]\nmod tests {}\n"), []);
        assert_eq!(check_one("tests/a.rs", "// SLEEP in a comment)\n"), []);
        let elsewhere = "#[cfg(test)]\nmod b_test;\n\nfn f() {\n    SLEEPd);\n}\n";
        assert_eq!(check_one("a/src/b.rs", elsewhere), []);
    }
}
