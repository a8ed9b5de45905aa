//! Check that tests which pages name exist, and that the operators' pages name some.
//!
//! A page names the test below the procedure's heading: `<!-- test: FILE name_of_the_test -->`,
//! once for each test.

use super::finding::Finding;
use super::tree::{TextFile, Tree};

/// Pages whose procedures each name a test. Others may name some.
const PAGES: [&str; 6] = [
    "docs/guides/deploy.md",
    "docs/guides/install.md",
    "docs/guides/upgrade.md",
    "docs/guides/disaster-recovery.md",
    "docs/guides/certificates.md",
    "docs/guides/steering.md",
];
const BEGIN: &str = "<!-- test:";
const END: &str = "-->";

/// Compares the names in the pages with the tests. Each page of [`PAGES`] must name at least one.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let is_page = |file: &&TextFile| file.path == "README.md" || file.path.starts_with("docs/");
    let pages = tree.files.iter().filter(is_page).filter(|file| file.extension() == "md");
    pages.flat_map(|page| check_page(tree, page)).collect()
}

fn check_page(tree: &Tree, page: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut tests = 0;
    for (number, line) in page.numbered() {
        // One line may name several tests.
        for named in line.split(BEGIN).skip(1) {
            tests += 1;
            if let Err(message) = find(tree, named) {
                findings.push(Finding::violation("procedures", &page.path, message).at(number));
            }
        }
    }
    if tests == 0 && PAGES.contains(&page.path.as_str()) {
        let message = format!("names no test: add `{BEGIN} FILE TEST {END}` to each procedure");
        findings.push(Finding::violation("procedures", &page.path, message));
    }
    findings
}

/// Finds the test that a mark names: a file of the tree, and a function in it that is run.
fn find(tree: &Tree, named: &str) -> Result<(), String> {
    let words = named.split_once(END).map(|(words, _)| words.trim());
    let Some((path, test)) = words.and_then(|words| words.split_once(' ')) else {
        return Err(format!("expected `{BEGIN} FILE TEST {END}`"));
    };
    let test = test.trim();
    let file = tree.file(path).ok_or_else(|| format!("{path} does not exist"))?;
    let has_test = match file.extension() {
        "rs" => is_rust_test(file, test),
        // In files of other languages it is enough that the name occurs.
        _ => file.text.contains(test),
    };
    if has_test { Ok(()) } else { Err(format!("{path} has no test `{test}`")) }
}

/// Returns true if a function with this name has a test attribute and is run.
fn is_rust_test(file: &TextFile, test: &str) -> bool {
    let heads = [format!("fn {test}("), format!("async fn {test}(")];
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let found = lines.iter().position(|line| heads.iter().any(|head| line.starts_with(head)));
    found.is_some_and(|at| {
        let is_attribute = |line: &&&str| line.starts_with("#[") || line.starts_with("//");
        let above: Vec<_> = lines[..at].iter().rev().take_while(is_attribute).collect();
        let is_test =
            above.iter().any(|line| line.starts_with("#[test") || line.contains("::test"));
        // An ignored test has to be run by an `xtask` command, which its reason names.
        let is_aside =
            |line: &&&str| line.starts_with("#[ignore") && !line.contains("cargo xtask ");
        is_test && !above.iter().any(is_aside)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tree::testing::tree;
    use super::*;

    const PAGE: &str = "docs/guides/disaster-recovery.md";
    const TESTS: &str = "#[tokio::test(flavor = \"multi_thread\")]\nasync fn a_loss() {}\n\n\
                         #[test]\n#[ignore = \"slow\"]\nfn never_run() {}\n\nfn helper() {}\n\n\
                         #[test]\n#[ignore = \"cargo xtask chaos\"]\nfn a_trial() {}\n";

    fn messages(page: &str) -> Vec<String> {
        let tree =
            tree(&[(PAGE, page), ("tests/a.rs", TESTS), ("deploy/try.py", "def test_it():")]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_page_whose_tests_are_there_is_right() {
        let page = "# A\n<!-- test: tests/a.rs a_loss --> <!-- test: deploy/try.py test_it -->\n";
        assert_eq!(messages(page), Vec::<String>::new());
        assert_eq!(messages("<!-- test: tests/a.rs a_trial -->\n"), Vec::<String>::new());
    }

    #[test]
    fn a_test_that_is_gone_or_not_run_is_noticed() {
        for (named, message) in [
            ("tests/a.rs a_los", "tests/a.rs has no test `a_los`"),
            ("tests/a.rs helper", "tests/a.rs has no test `helper`"),
            ("tests/a.rs never_run", "tests/a.rs has no test `never_run`"),
            ("tests/b.rs a_loss", "tests/b.rs does not exist"),
            ("tests/a.rs", "expected `<!-- test: FILE TEST -->`"),
        ] {
            assert_eq!(messages(&format!("<!-- test: {named} -->\n")), [message], "{named}");
        }
    }

    #[test]
    fn a_page_without_any_test_is_noticed() {
        assert_eq!(messages("# A\nDo this.\n").len(), 1);
        assert!(check(&tree(&[("docs/other.md", "# A\n")])).is_empty());
    }

    #[test]
    fn a_test_that_is_gone_is_noticed_on_any_page() {
        let page = "<!-- test: tests/a.rs a_los -->\n";
        for (path, findings) in [("docs/other.md", 1), ("README.md", 1), ("CHANGELOG.md", 0)] {
            let found = check(&tree(&[(path, page), ("tests/a.rs", TESTS)]));
            assert_eq!(found.len(), findings, "{path}");
        }
    }
}
