//! Links of documents lead somewhere, and the glossary names files that exist.

use std::collections::BTreeSet;

use super::finding::Finding;
use super::tree::{TextFile, Tree};

/// Page that explains words of this project; the last column of its tables has paths.
const GLOSSARY: &str = "docs/glossary.md";

/// Checks every Markdown file.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let pages = || tree.files.iter().filter(|file| file.extension() == "md");
    let links = pages().flat_map(|page| broken_links(tree, page));
    let paths = tree.file(GLOSSARY).into_iter().flat_map(|page| missing_paths(tree, page));
    links.chain(paths).collect()
}

fn broken_links(tree: &Tree, page: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in prose(page) {
        for link in links(line).filter(|link| !is_external(link)) {
            if let Err(message) = resolve(tree, page, link) {
                findings.push(Finding::violation("links", &page.path, message).at(number));
            }
        }
    }
    findings
}

/// Finds the target of a link: a tracked file or folder and, after a `#`, one of its headings.
fn resolve(tree: &Tree, page: &TextFile, link: &str) -> Result<(), String> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = if path.is_empty() { page.path.clone() } else { join(&page.path, path) };
    match tree.file(&path) {
        Some(file) if anchor.is_empty() || anchors(file).contains(anchor) => Ok(()),
        Some(_) => Err(format!("{path} has no heading `#{anchor}`")),
        None if anchor.is_empty() && exists(tree, &path) => Ok(()),
        None => Err(format!("{path} does not exist")),
    }
}

fn missing_paths(tree: &Tree, page: &TextFile) -> Vec<Finding> {
    let finding = |(number, path): (usize, &str)| {
        let message = format!("{path} does not exist; name where it lives now");
        Finding::violation("glossary", &page.path, message).at(number)
    };
    prose(page)
        .filter_map(|(number, line)| Some((number, line.trim_end().strip_suffix("` |")?)))
        .filter_map(|(number, line)| Some((number, line.rsplit('`').next()?)))
        .filter(|(_, path)| !exists(tree, path))
        .map(finding)
        .collect()
}

/// Returns true if `path` is a tracked file, or a folder with a text file.
fn exists(tree: &Tree, path: &str) -> bool {
    let folder = format!("{}/", path.trim_end_matches('/'));
    let is_text = tree.files.iter().any(|file| file.path == path || file.path.starts_with(&folder));
    is_text || tree.binaries.iter().any(|binary| binary == path)
}

/// Returns the lines outside fenced code, with their numbers.
fn prose(page: &TextFile) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    page.numbered().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

fn is_external(link: &str) -> bool {
    link.contains("://") || link.starts_with("mailto:")
}

/// Returns `link`, found on the page at `from`, as a path from the root.
fn join(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the anchors that GitHub gives the headings of a page.
fn anchors(page: &TextFile) -> BTreeSet<String> {
    let headings = prose(page).filter_map(|(_, line)| line.strip_prefix('#'));
    headings.map(|heading| anchor(heading.trim_start_matches('#'))).collect()
}

fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::super::tree::testing::tree;
    use super::*;

    const GUIDE: &str = "# Guide\n\n## `Retry-After`, told twice\n\n```sh\n# no heading\n```\n";

    fn messages(page: &str) -> Vec<String> {
        let tree = tree(&[("docs/guide.md", GUIDE), ("docs/more/a.md", page), ("xtask/a.rs", "")]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let page = "# A\n[b](../guide.md#retry-after-told-twice) [c](../../xtask) [d](#a) [e](https://e.f/#g)\n";
        assert_eq!(messages(page), [""; 0]);
        assert_eq!(messages("```\n[in code](nowhere.md)\n```\n"), [""; 0]);
    }

    #[test]
    fn a_link_to_nothing_is_found() {
        for (page, message) in [
            ("[b](guide.md)", "docs/more/guide.md does not exist"),
            ("[b](../guide.md#no-heading)", "docs/guide.md has no heading `#no-heading`"),
            ("[b](#a)", "docs/more/a.md has no heading `#a`"),
        ] {
            assert_eq!(messages(page), [message]);
        }
    }

    #[test]
    fn a_picture_is_a_file_like_others() {
        let page = [("docs/a.md", "![b](b.png)\n")];
        let mut known = tree(&page);
        assert_eq!(check(&known).len(), 1);
        known.binaries.push("docs/b.png".to_owned());
        assert_eq!(check(&known).len(), 0);
    }

    #[test]
    fn a_word_whose_place_is_gone_is_found() {
        let rows =
            "| our word | where it lives |\n|---|---|\n| pulse | `a/b.rs` |\n| view | `a/c.rs` |\n";
        let found = check(&tree(&[(GLOSSARY, rows), ("a/b.rs", "")]));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].rule, found[0].line), ("glossary", Some(4)));
    }
}
