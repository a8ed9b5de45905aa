//! Rules of crates: permitted dependencies, purity, module docs.

use super::finding::Finding;
use super::tree::{TextFile, Tree};
use crate::metadata::Package;

/// Wings of the workspace, folders below `crates/`, each with the other wings that its crates may
/// ship with. So data path and cluster do not know each other.
const WINGS: [(&str, &[&str]); 6] = [
    (PURE, &[]),
    ("io", &[PURE]),
    ("data-path", &[PURE, "io"]),
    ("cluster", &[PURE, "io"]),
    ("node", &[PURE, "io", "data-path", "cluster"]),
    (LAB, &[PURE, "io", "data-path", "cluster", "node"]),
];

/// Wing of the crates that decide and never wait: they ship without runtime and network.
const PURE: &str = "pure";

/// Wing of emulator, simulator, benchmarks and helpers of tests.
const LAB: &str = "lab";

/// Crates of the laboratory that keep the rules of pure crates.
const PURE_IN_LAB: [&str; 2] = ["spillway-engine", "spillway-sim"];

/// The program, and what of the laboratory it ships with: `emulate` and `demo`.
const PROGRAM: (&str, [&str; 2]) = ("spillway", ["spillway-emulator", "spillway-harness"]);

/// Packages that make a crate impure.
const IMPURE: [&str; 6] = ["tokio", "mio", "quinn", "hyper", "h2", "openraft"];

/// Page with a row for each crate.
const ARCHITECTURE: &str = "docs/architecture.md";

/// Checks every crate of the workspace, and the table of crates in the documents.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let of_packages = tree.metadata.members().flat_map(|package| {
        let mut findings = arrows(tree, package);
        findings.extend(purity(tree, package));
        findings.extend(module_docs(tree, package));
        findings
    });
    let undocumented = tree.file(ARCHITECTURE).into_iter().flat_map(|page| rows(tree, page));
    of_packages.chain(undocumented).collect()
}

/// Finds crates without a row `| crate | .. |` on the page.
fn rows(tree: &Tree, page: &TextFile) -> Vec<Finding> {
    let folders = tree.metadata.members().map(|package| folder(tree, package));
    let names = folders.filter_map(|path| path.strip_prefix("crates/").map(str::to_owned));
    names
        .filter_map(|path| {
            let name = path.rsplit('/').next()?.to_owned();
            let row = format!("| `{name}` |");
            let message = format!("no row for crates/{path}");
            (!page.text.contains(&row))
                .then(|| Finding::violation("documented-crates", &page.path, message))
        })
        .collect()
}

/// Returns the folder of a package, such as `crates/pure/types`.
fn folder(tree: &Tree, package: &Package) -> String {
    let manifest = tree.metadata.relative(&package.manifest_path);
    manifest.trim_end_matches("/Cargo.toml").to_owned()
}

/// Returns the wing of a package; `None` for one that stands beside the wings.
fn wing(tree: &Tree, package: &Package) -> Option<String> {
    let folder = folder(tree, package);
    let (wing, _) = folder.strip_prefix("crates/")?.split_once('/')?;
    Some(wing.to_owned())
}

fn arrows(tree: &Tree, package: &Package) -> Vec<Finding> {
    let manifest = tree.metadata.relative(&package.manifest_path);
    let own = wing(tree, package);
    let Some(below) = own.as_deref().map_or(Some(&[][..]), |own| {
        WINGS.iter().find(|(wing, _)| *wing == own).map(|(_, below)| *below)
    }) else {
        let message = format!("{} is in no known wing", package.name);
        return vec![Finding::violation("arrows", &manifest, message)];
    };
    package
        .dependencies
        .iter()
        .filter_map(|dependency| Some((dependency, tree.metadata.member(&dependency.name)?)))
        .filter(|(dependency, used)| {
            let is_test = dependency.kind.as_deref() == Some("dev");
            !match wing(tree, used).as_deref() {
                // Tests of all crates use its helpers.
                Some(LAB) if is_test => true,
                Some(LAB) if package.name == PROGRAM.0 => PROGRAM.1.contains(&used.name.as_str()),
                wing if own.is_none() || wing == own.as_deref() => true,
                wing => wing.is_some_and(|wing| below.contains(&wing)),
            }
        })
        .map(|(_, used)| {
            let message = format!("{} may not use {}", package.name, used.name);
            Finding::violation("arrows", &manifest, message)
        })
        .collect()
}

fn purity(tree: &Tree, package: &Package) -> Vec<Finding> {
    let is_pure = wing(tree, package).as_deref() == Some(PURE);
    if !is_pure && !PURE_IN_LAB.contains(&package.name.as_str()) {
        return Vec::new();
    }
    let manifest = tree.metadata.relative(&package.manifest_path);
    tree.metadata
        .ways_from(package)
        .values()
        .filter(|way| way.last().is_some_and(|name| IMPURE.contains(name)))
        .map(|way| {
            let message = format!("a pure crate may not ship with it: {}", way.join(" -> "));
            Finding::violation("purity", &manifest, message)
        })
        .collect()
}

fn module_docs(tree: &Tree, package: &Package) -> Vec<Finding> {
    let documented = |kind: &String| matches!(kind.as_str(), "lib" | "bin");
    package
        .targets
        .iter()
        .filter(|target| target.kind.iter().any(documented))
        .map(|target| tree.metadata.relative(&target.src_path))
        .filter(|path| !tree.file(path).is_some_and(|file| file.text.starts_with("//! ")))
        .map(|path| {
            Finding::violation(
                "module-doc",
                &path,
                "a crate begins with a //! that says what it is",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tree::testing::tree_with;
    use super::*;

    const DOCUMENTED: &str = "//! What it is.\n";

    /// Edge of the graph: the crate that depends, the one it needs, and the kind of dependency.
    type Edge<'a> = (&'a str, &'a str, Option<&'a str>);

    /// Returns the findings for a workspace of `members`, named by their folders, with these
    /// dependencies between the last parts of the names.
    fn check_edges(members: &[&str], others: &[&str], edges: &[Edge<'_>]) -> Vec<String> {
        let paths: Vec<String> = members.iter().map(|path| format!("{path}/lib.rs")).collect();
        let files: Vec<(&str, &str)> =
            paths.iter().map(|path| (path.as_str(), DOCUMENTED)).collect();
        check_files(members, others, edges, &files)
    }

    fn check_files(
        members: &[&str],
        others: &[&str],
        edges: &[Edge<'_>],
        files: &[(&str, &str)],
    ) -> Vec<String> {
        let name_of = |path: &str| match path.rsplit('/').next().unwrap() {
            "spillway" => "spillway".to_owned(),
            name => format!("spillway-{name}"),
        };
        let own: Vec<(String, &str)> = members.iter().map(|path| (name_of(path), *path)).collect();
        let of = |name: &str| edges.iter().filter(move |edge| edge.0 == name).collect::<Vec<_>>();
        let package = |(name, path): (&str, &str)| {
            json!({
                "id": name, "name": name, "version": "0.1.0", "manifest_path": format!("/tree/{path}/Cargo.toml"),
                "targets": [{ "kind": ["lib"], "src_path": format!("/tree/{path}/lib.rs") }],
                "dependencies": of(name).iter()
                    .map(|(_, to, kind)| json!({ "name": to, "kind": kind })).collect::<Vec<_>>(),
            })
        };
        let node = |name: &str| {
            json!({ "id": name, "deps": of(name).iter()
                .map(|(_, to, kind)| json!({ "pkg": to, "dep_kinds": [{ "kind": kind }] }))
                .collect::<Vec<_>>() })
        };
        let all = own.iter().map(|(name, path)| (name.as_str(), *path));
        let all: Vec<(&str, &str)> = all.chain(others.iter().map(|name| (*name, *name))).collect();
        let names: Vec<&str> = own.iter().map(|(name, _)| name.as_str()).collect();
        let metadata = json!({
            "packages": all.iter().copied().map(package).collect::<Vec<Value>>(),
            "workspace_members": names, "target_directory": "/t", "workspace_root": "/tree",
            "resolve": { "nodes": all.iter().map(|(name, _)| node(name)).collect::<Vec<Value>>() },
        });
        check(&tree_with(files, metadata)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_arrow_out_of_a_wing_is_found_unless_it_leads_down() {
        let members =
            ["crates/pure/types", "crates/data-path/proxy", "crates/cluster/link", "crates/node/n"];
        let check = |from: &str, to: &str| check_edges(&members, &[], &[(from, to, None)]);
        for (from, to) in [("proxy", "types"), ("link", "types"), ("n", "proxy"), ("n", "link")] {
            let (from, to) = (format!("spillway-{from}"), format!("spillway-{to}"));
            assert_eq!(check(&from, &to), [""; 0], "{from} {to}");
        }
        for (from, to) in [("types", "proxy"), ("proxy", "link"), ("link", "proxy"), ("link", "n")]
        {
            let (from, to) = (format!("spillway-{from}"), format!("spillway-{to}"));
            let found = check(&from, &to);
            assert_eq!(found.len(), 1, "{from} {to}");
            assert!(found[0].ends_with(&format!("{from} may not use {to}")), "{found:?}");
        }
    }

    #[test]
    fn the_laboratory_ships_with_nothing_and_every_crate_may_test_with_it() {
        let members = ["crates/pure/types", "crates/node/node", "crates/lab/testkit"];
        for user in ["spillway-types", "spillway-node"] {
            let tests = [(user, "spillway-testkit", Some("dev"))];
            assert_eq!(check_edges(&members, &[], &tests), [""; 0]);
            let shipped = [(user, "spillway-testkit", None)];
            assert_eq!(check_edges(&members, &[], &shipped).len(), 1, "{user}");
        }
    }

    #[test]
    fn the_program_ships_with_the_emulator_and_with_nothing_else_of_the_laboratory() {
        let members = ["crates/spillway", "crates/lab/emulator", "crates/lab/sim", "chaos"];
        let check = |from: &str, to: &str| check_edges(&members, &[], &[(from, to, None)]).len();
        assert_eq!(check("spillway", "spillway-emulator"), 0);
        assert_eq!(check("spillway", "spillway-sim"), 1);
        assert_eq!(check("spillway-chaos", "spillway-sim"), 0);
    }

    #[test]
    fn a_crate_in_an_unknown_wing_is_found() {
        let found = check_edges(&["crates/attic/new"], &[], &[]);
        assert!(found[0].ends_with("spillway-new is in no known wing"), "{found:?}");
        assert_eq!(check_edges(&["chaos"], &[], &[]), [""; 0], "it stands beside them");
    }

    #[test]
    fn a_crate_that_the_architecture_does_not_name_is_found() {
        let members = ["crates/pure/types", "crates/pure/route", "chaos"];
        let page = (ARCHITECTURE, "| `types` | ids |\n");
        let mut files =
            members.map(|path| (format!("{path}/lib.rs"), DOCUMENTED.to_owned())).to_vec();
        files.push((page.0.to_owned(), page.1.to_owned()));
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let found = check_files(&members, &[], &[], &files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].ends_with("no row for crates/pure/route"), "{found:?}");
    }

    #[test]
    fn a_runtime_behind_a_dependency_of_a_pure_crate_is_found_with_the_way_to_it() {
        let edges = |from| [(from, "helper", None), ("helper", "tokio", None)] as [Edge<'_>; 2];
        for (path, name) in
            [("crates/pure/protocol", "spillway-protocol"), ("crates/lab/sim", "spillway-sim")]
        {
            let found = check_edges(&[path], &["helper", "tokio"], &edges(name));
            assert_eq!(found.len(), 1);
            assert!(found[0].ends_with(&format!("{name} -> helper -> tokio")), "{found:?}");
        }
    }

    #[test]
    fn tests_of_a_pure_crate_and_impure_crates_may_have_a_runtime() {
        let edges =
            [("spillway-route", "tokio", Some("dev")), ("spillway-telemetry", "tokio", None)];
        let members = ["crates/pure/route", "crates/node/telemetry"];
        assert_eq!(check_edges(&members, &["tokio"], &edges), [""; 0]);
    }

    #[test]
    fn a_crate_without_a_module_doc_is_found() {
        let metadata = json!({
            "packages": [{
                "id": "xtask", "name": "xtask", "version": "0.1.0", "manifest_path": "/tree/xtask/Cargo.toml",
                "targets": [{ "kind": ["bin"], "src_path": "/tree/xtask/main.rs" }],
                "dependencies": [],
            }],
            "workspace_members": ["xtask"], "target_directory": "/t", "workspace_root": "/tree",
            "resolve": { "nodes": [] },
        });
        let found = check(&tree_with(&[("xtask/main.rs", "fn main() {}\n")], metadata.clone()));
        assert_eq!(found[0].rule, "module-doc");
        assert_eq!(check(&tree_with(&[("xtask/main.rs", DOCUMENTED)], metadata)), []);
    }
}
