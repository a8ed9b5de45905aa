//! Graph of the files of one crate: each with the files whose items it names.
//!
//! A re-export is no import of its own: who names an item through it needs the file that defines
//! the item, and needs nothing of the file with the re-export.

use std::collections::BTreeMap;

use super::components::Graph;
use super::source::{self, Import, Module};

/// Most names that are followed, each to the next one. Ends the search for a name that leads to
/// itself.
const STEPS_MAX: usize = 24;

/// Builds the graph of the crate that begins with the file `root`. `texts` are files by path.
pub(super) fn graph(root: &str, texts: &BTreeMap<&str, &str>) -> Graph {
    let mut modules = Modules::default();
    modules.add_file(&[], root, texts);
    modules.graph()
}

/// Modules by their path from the root of the crate.
#[derive(Default)]
struct Modules(BTreeMap<Vec<String>, Placed>);

/// Module and the file that it is written in.
struct Placed {
    file: String,
    module: Module,
}

/// End of a path.
enum Target<'a> {
    /// Path of a module.
    Module(Vec<String>),
    /// File that defines an item.
    Item(&'a str),
}

impl Modules {
    /// Adds the module of a file, and those below it.
    fn add_file(&mut self, path: &[String], file: &str, texts: &BTreeMap<&str, &str>) {
        let Some(text) = texts.get(file) else { return };
        let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
        let below = match name {
            "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
            // Modules of a program in `bin/` are beside it.
            _ if path.is_empty() => folder.to_owned(),
            _ => file.trim_end_matches(".rs").to_owned(),
        };
        for (path, folder, name) in self.add_module(path, file, source::parse(text), &below) {
            for child in [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")] {
                self.add_file(&path, &child, texts);
            }
        }
    }

    /// Adds a module and those in its braces. Returns path, folder and name of modules that have
    /// files of their own.
    fn add_module(
        &mut self,
        path: &[String],
        file: &str,
        mut module: Module,
        folder: &str,
    ) -> Vec<(Vec<String>, String, String)> {
        let child = |name: &String| [path, std::slice::from_ref(name)].concat();
        let declared = std::mem::take(&mut module.declared);
        let mut files: Vec<_> =
            declared.into_iter().map(|name| (child(&name), folder.to_owned(), name)).collect();
        for (name, inner) in std::mem::take(&mut module.inline) {
            files.extend(self.add_module(&child(&name), file, inner, &format!("{folder}/{name}")));
        }
        self.0.insert(path.to_vec(), Placed { file: file.to_owned(), module });
        files
    }

    fn graph(&self) -> Graph {
        let mut graph = Graph::new();
        for (path, placed) in &self.0 {
            let imports = placed.module.imports.iter().filter(|import| !import.is_public);
            let named = imports.filter_map(|import| self.imported(path, import));
            let in_code =
                placed.module.paths.iter().filter_map(|code| self.defining_file(path, code));
            let files = named.chain(in_code).filter(|file| *file != placed.file);
            graph.entry(placed.file.clone()).or_default().extend(files.map(str::to_owned));
        }
        graph
    }

    /// Returns the file that an import needs. An import of a module needs none; the names used
    /// through it do.
    fn imported(&self, module: &[String], import: &Import) -> Option<&str> {
        match (self.follow(module, &import.path, STEPS_MAX)?, &import.name) {
            (Target::Item(file), _) => Some(file),
            (Target::Module(path), None) => Some(&self.0.get(&path)?.file),
            (Target::Module(_), Some(_)) => None,
        }
    }

    fn defining_file(&self, module: &[String], path: &[String]) -> Option<&str> {
        match self.follow(module, path, STEPS_MAX)? {
            Target::Item(file) => Some(file),
            Target::Module(_) => None,
        }
    }

    /// Follows a path that is written in `module`. None for items of other crates and of the module
    /// itself.
    fn follow(&self, module: &[String], path: &[String], steps: usize) -> Option<Target<'_>> {
        let (head, rest) = path.split_first()?;
        match head.as_str() {
            "crate" => self.descend(&[], rest, steps),
            "self" => self.descend(module, rest, steps),
            "super" => {
                let above = &module[..module.len().checked_sub(1)?];
                // After the first `super` come others, or a name in that module.
                if rest.first().is_some_and(|next| next == "super") {
                    return self.follow(above, rest, steps);
                }
                self.descend(above, rest, steps)
            }
            _ => self.find(module, path, steps),
        }
    }

    /// Follows a path whose head must be in `module`: a name that is not found there is made by a
    /// macro.
    fn descend(&self, module: &[String], path: &[String], steps: usize) -> Option<Target<'_>> {
        if path.is_empty() {
            return Some(Target::Module(module.to_vec()));
        }
        self.find(module, path, steps).or_else(|| Some(Target::Item(&self.0.get(module)?.file)))
    }

    /// Follows a path whose head is a module, an item or an import of `module`. None if nothing of
    /// that name is seen there.
    fn find(&self, module: &[String], path: &[String], steps: usize) -> Option<Target<'_>> {
        let steps = steps.checked_sub(1)?;
        let (head, rest) = path.split_first()?;
        let child = [module, std::slice::from_ref(head)].concat();
        if !self.0.contains_key(&child) {
            return self.find_item(module, path, steps);
        }
        // A function may have the name of a module beside it. A path that ends at this name may
        // mean both, and needs a file only for the function.
        if rest.is_empty()
            && let Some(Target::Item(file)) = self.find_item(module, path, steps)
        {
            return Some(Target::Item(file));
        }
        self.descend(&child, rest, steps)
    }

    /// Follows a path whose head is an item or an import of `module`.
    fn find_item(&self, module: &[String], path: &[String], steps: usize) -> Option<Target<'_>> {
        let placed = self.0.get(module)?;
        let (head, rest) = path.split_first()?;
        if placed.module.items.contains(head) {
            return Some(Target::Item(&placed.file));
        }
        let imports = &placed.module.imports;
        let named = imports.iter().filter(|import| import.name.as_ref() == Some(head));
        let mut ends = named
            .filter_map(|import| self.follow(module, &[&import.path, rest].concat(), steps))
            .peekable();
        if ends.peek().is_some() {
            return ends.next();
        }
        let all = imports.iter().filter(|import| import.name.is_none());
        all.filter_map(|import| self.follow(module, &import.path, steps)).find_map(|target| {
            match target {
                Target::Module(other) if other != module => self.find(&other, path, steps),
                Target::Module(_) | Target::Item(_) => None,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the files that `a.rs` of a crate of `files` needs.
    fn needed(files: &[(&str, &str)]) -> Vec<String> {
        let texts: BTreeMap<&str, &str> = files.iter().copied().collect();
        graph("src/lib.rs", &texts).remove("src/a.rs").unwrap().into_iter().collect()
    }

    /// Returns the files that `code` in `a.rs` needs, beside a folder `b` with a file `c.rs`.
    fn needed_by(code: &str, b: &str) -> Vec<String> {
        let c = "mod d { pub struct D; } pub struct C; pub fn go() {}";
        needed(&[
            ("src/lib.rs", "mod a; mod b; pub use b::Shown; pub struct Root;"),
            ("src/a.rs", code),
            ("src/b/mod.rs", b),
            ("src/b/c.rs", c),
        ])
    }

    #[test]
    fn an_item_of_a_mod_file_is_needed_from_there() {
        assert_eq!(needed_by("use crate::b::B;", "mod c; pub struct B;"), ["src/b/mod.rs"]);
        assert_eq!(needed_by("use crate::Root;", "mod c;"), ["src/lib.rs"]);
        assert_eq!(needed_by("use super::Root;", "mod c;"), ["src/lib.rs"]);
        assert_eq!(needed_by("mod i { use super::super::Root; }", "mod c;"), ["src/lib.rs"]);
    }

    #[test]
    fn a_reexport_leads_to_the_file_that_defines_the_item() {
        assert_eq!(needed_by("use crate::b::C;", "mod c; pub use c::C;"), ["src/b/c.rs"]);
        assert_eq!(
            needed_by("use crate::b::X;", "mod c; pub use self::c::C as X;"),
            ["src/b/c.rs"]
        );
        assert_eq!(needed_by("use crate::b::C;", "mod c; pub use c::*;"), ["src/b/c.rs"]);
        assert_eq!(needed_by("use crate::Shown;", "mod c; pub use c::C as Shown;"), ["src/b/c.rs"]);
    }

    #[test]
    fn a_private_import_of_a_parent_is_followed_too() {
        let b = "mod c; use c::C; fn f() -> C {}";
        assert_eq!(needed_by("use crate::b::C;", b), ["src/b/c.rs"]);
    }

    #[test]
    fn a_module_that_is_imported_is_needed_when_it_is_named() {
        assert_eq!(needed_by("use crate::b::c;", "pub mod c;"), [""; 0]);
        assert_eq!(needed_by("use crate::b::c; fn f() { c::go() }", "pub mod c;"), ["src/b/c.rs"]);
        assert_eq!(needed_by("use crate::b; fn f() { b::c::go() }", "pub mod c;"), ["src/b/c.rs"]);
        assert_eq!(needed_by("use crate::b::c::d::D;", "pub mod c;"), ["src/b/c.rs"]);
    }

    #[test]
    fn a_function_with_the_name_of_a_module_beside_it_is_needed() {
        let b = "mod c; pub use c::go as c;";
        assert_eq!(needed_by("use crate::b::c;", b), ["src/b/c.rs"]);
        assert_eq!(needed_by("use crate::b::c; fn f() { c() }", b), ["src/b/c.rs"]);
        assert_eq!(needed_by("use crate::b::c;", "mod c; pub fn c() {}"), ["src/b/mod.rs"]);
    }

    #[test]
    fn a_reexport_alone_needs_nothing_unless_its_file_names_the_item() {
        assert_eq!(needed_by("pub use crate::b::C;", "mod c; pub use c::C;"), [""; 0]);
        let code = "pub use crate::b::C; fn f(c: C) {}";
        assert_eq!(needed_by(code, "mod c; pub use c::C;"), ["src/b/c.rs"]);
    }

    #[test]
    fn an_item_that_a_macro_makes_is_needed_from_the_module_of_its_path() {
        assert_eq!(needed_by("use crate::b::Made;", "mod c; make!();"), ["src/b/mod.rs"]);
    }

    #[test]
    fn all_names_of_a_module_are_needed_from_its_file() {
        assert_eq!(needed_by("use crate::b::*;", "mod c; pub struct B;"), ["src/b/mod.rs"]);
        assert_eq!(needed_by("use super::*;", "mod c;"), ["src/lib.rs"]);
    }

    #[test]
    fn other_crates_are_no_files() {
        assert_eq!(needed_by("use std::b::C; fn f() { std::mem::take() }", "mod c;"), [""; 0]);
        assert_eq!(needed_by("use bytes; fn f() { bytes::g() }", "mod c;"), [""; 0]);
    }
}
