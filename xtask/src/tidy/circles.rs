//! Import circles: files of one crate that need each other, directly or through others.
//!
//! No file of a large circle can be read without the rest. Two or three files may form one, as a
//! parent and its child often do. Files are read as text: paths that macros build are not seen, nor
//! are methods, whose file no path names. Code for tests does not count.

mod components;
mod imports;
mod source;
mod tokens;

use std::collections::BTreeMap;

use super::finding::Finding;
use super::tree::Tree;
use components::{Graph, components, shortest_circle};

/// Most files that may form a circle.
const FILES_MAX: usize = 3;

/// Checks every crate.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let texts: BTreeMap<&str, &str> =
        tree.files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    texts
        .keys()
        .filter(|path| is_root(path))
        .flat_map(|root| check_crate(&imports::graph(root, &texts)))
        .collect()
}

fn check_crate(graph: &Graph) -> Vec<Finding> {
    let large = components(graph).into_iter().filter(|files| files.len() > FILES_MAX);
    large
        .map(|files| {
            let message = format!(
                "{} files import each other; at most {FILES_MAX} may. Files: {}. A shortest circle: {}",
                files.len(),
                files.iter().copied().collect::<Vec<_>>().join(", "),
                shortest_circle(graph, &files).join(" -> "),
            );
            Finding::violation("import-circle", files.first().unwrap_or(&""), message)
        })
        .collect()
}

/// Returns true if `path` is the file that a crate begins with.
fn is_root(path: &str) -> bool {
    let Some((_, inner)) = path.rsplit_once("src/") else { return false };
    matches!(inner, "lib.rs" | "main.rs")
        || inner
            .strip_prefix("bin/")
            .is_some_and(|name| name.ends_with(".rs") && !name.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::super::tree::testing::tree;
    use super::*;

    /// Returns the messages about a crate of `files`, which are named from its `src` folder.
    fn check_files(files: &[(&str, &str)]) -> Vec<String> {
        let paths: Vec<String> = files.iter().map(|(path, _)| format!("a/src/{path}")).collect();
        let files: Vec<(&str, &str)> =
            paths.iter().zip(files).map(|(path, (_, text))| (path.as_str(), *text)).collect();
        check(&tree(&files)).into_iter().map(|finding| finding.message).collect()
    }

    /// Returns a crate with four files, of which each imports the next one, and the last `last`.
    fn chain(last: &str) -> Vec<String> {
        check_files(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use crate::c::C; pub struct B;"),
            ("c.rs", "use crate::d::D; pub struct C;"),
            ("d.rs", last),
        ])
    }

    #[test]
    fn a_circle_of_four_files_is_found_and_named() {
        let message = "4 files import each other; at most 3 may. \
                       Files: a/src/a.rs, a/src/b.rs, a/src/c.rs, a/src/d.rs. \
                       A shortest circle: a/src/a.rs -> a/src/b.rs -> a/src/c.rs -> a/src/d.rs -> a/src/a.rs";
        assert_eq!(chain("use crate::a::A; pub struct D;"), [message]);
    }

    #[test]
    fn three_files_may_form_a_circle() {
        assert_eq!(chain("use crate::b::B; pub struct D;"), [""; 0]);
        assert_eq!(chain("pub struct D;"), [""; 0]);
    }

    #[test]
    fn a_shortest_circle_of_several_is_shown() {
        let found = chain("use crate::{a::A, c::C}; pub struct D;");
        assert_eq!(found.len(), 1);
        assert!(found[0].ends_with("A shortest circle: a/src/c.rs -> a/src/d.rs -> a/src/c.rs"));
    }

    #[test]
    fn an_import_for_tests_closes_no_circle() {
        assert_eq!(chain("#[cfg(test)] use crate::a::A; pub struct D;"), [""; 0]);
        assert_eq!(chain("#[cfg(test)]\nmod tests { use crate::a::A; }"), [""; 0]);
    }

    #[test]
    fn a_path_in_code_counts_as_an_import() {
        assert_eq!(chain("pub fn d() { crate::a::A }").len(), 1);
        assert_eq!(chain("use crate::a; pub fn d() { a::A }").len(), 1);
    }
}
