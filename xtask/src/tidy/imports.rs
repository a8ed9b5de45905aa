//! Imports at the head of a file: one block for the standard library, one for other crates, one for
//! this crate.

use super::finding::Finding;
use super::tree::{TextFile, Tree};

/// Origin of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Std,
    OtherCrate,
    ThisCrate,
}

/// Checks every Rust file.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().filter(|file| file.extension() == "rs").filter_map(check_file).collect()
}

/// Finds the first import that stands apart from those of its origin, or among others.
fn check_file(file: &TextFile) -> Option<Finding> {
    let modules: Vec<&str> = file.text.lines().filter_map(declared_module).collect();
    let mut blocks: Vec<Origin> = Vec::new();
    let (mut is_new_block, mut is_inside) = (true, false);
    for (number, line) in file.numbered().skip_while(|(_, line)| !line.starts_with("use ")) {
        if is_inside {
            is_inside = !line.ends_with(';');
        } else if line.is_empty() {
            is_new_block = true;
        } else if let Some(path) = line.strip_prefix("use ") {
            let origin = origin(path, &modules);
            if is_new_block && !blocks.contains(&origin) {
                blocks.push(origin);
            } else if is_new_block || blocks.last() != Some(&origin) {
                let message = "imports have one block for std, for other crates, for this crate";
                return Some(Finding::violation("import-blocks", &file.path, message).at(number));
            }
            (is_new_block, is_inside) = (false, !line.ends_with(';'));
        } else if !line.starts_with("#[") {
            break;
        }
    }
    None
}

/// Returns the name of the module that a line declares.
fn declared_module(line: &str) -> Option<&str> {
    let (visibility, rest) = line.split_once("mod ")?;
    let is_declaration = visibility.is_empty() || visibility.starts_with("pub");
    let name = rest.strip_suffix(';').or_else(|| rest.strip_suffix(" {"))?;
    is_declaration.then_some(name)
}

fn origin(path: &str, modules: &[&str]) -> Origin {
    match path.split([':', ';', ' ']).next() {
        Some("std" | "core" | "alloc") => Origin::Std,
        Some("crate" | "super" | "self") => Origin::ThisCrate,
        Some(module) if modules.contains(&module) => Origin::ThisCrate,
        _ => Origin::OtherCrate,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::testing::tree;
    use super::*;

    fn line_of(text: &str) -> Option<usize> {
        check(&tree(&[("a.rs", text)])).first().and_then(|finding| finding.line)
    }

    #[test]
    fn a_block_for_each_origin_passes() {
        let text = "//! Doc.\n\nuse std::fmt;\n\nuse bytes::{\n    Buf,\n    Bytes,\n};\nuse http::Uri;\n\n\
            use crate::a;\n#[cfg(test)]\nuse super::b;\n\nfn f() {\n    use std::io;\n}\n";
        assert_eq!(line_of(text), None);
    }

    #[test]
    fn a_second_block_of_an_origin_is_found() {
        assert_eq!(line_of("use http::Uri;\n\nuse crate::a;\n\nuse bytes::Buf;\n"), Some(5));
        assert_eq!(line_of("use crate::{\n    a,\n};\n\nuse super::b;\n"), Some(5));
    }

    #[test]
    fn a_module_of_the_file_is_of_this_crate() {
        let text = |imports: &str| format!("mod a;\npub(crate) mod b;\n\n{imports}");
        assert_eq!(line_of(&text("use http::Uri;\n\nuse a::A;\nuse b::B;\nuse super::c;\n")), None);
        assert_eq!(line_of(&text("use a::A;\nuse http::Uri;\n")), Some(5));
    }

    #[test]
    fn a_block_of_two_origins_is_found() {
        assert_eq!(line_of("use std::fmt;\n\nuse crate::a;\nuse http::Uri;\n"), Some(4));
    }
}
