//! Rules of crates: permitted dependencies, purity, module docs.

use std::collections::BTreeSet;

use super::finding::Finding;
use super::tree::{TextFile, Tree};
use crate::metadata::Package;

/// Crates from the bottom up, each with the crates of this workspace that it may ship with.
///
/// Tests of a crate may use any crate before it in this table.
const LAYERS: [(&str, &[&str]); 44] = [
    // Runs the targets of all crates, but uses none of them in its own tests.
    (
        "spillway-fuzz",
        &[
            "spillway-quota",
            "spillway-cluster-state",
            "spillway-pulse",
            "spillway-protocol",
            "spillway-replicas",
            "spillway-link",
            "spillway-geo",
            "spillway-raft",
            "spillway-control-plane",
            "spillway-admin",
            "spillway-front",
            "spillway-proxy",
            "spillway-config",
            "spillway-node",
        ],
    ),
    // Depends on the link, yet is above it here: nothing ships with it, and tests of all crates may
    // use it.
    ("spillway-testkit", &["spillway-link"]),
    ("spillway-types", &[]),
    ("spillway-prefix", &["spillway-types"]),
    ("spillway-route", &["spillway-types", "spillway-prefix"]),
    ("spillway-journey", &["spillway-types", "spillway-route"]),
    ("spillway-health", &["spillway-types", "spillway-route"]),
    ("spillway-protocol", &["spillway-types"]),
    ("spillway-codec", &["spillway-types"]),
    ("spillway-quota", &["spillway-types"]),
    ("spillway-usage", &["spillway-types"]),
    (
        "spillway-cluster-state",
        &["spillway-types", "spillway-prefix", "spillway-codec", "spillway-quota"],
    ),
    ("spillway-pulse", &["spillway-types", "spillway-codec"]),
    ("spillway-geo", &["spillway-types"]),
    ("spillway-engine", &[]),
    (
        "spillway-sim",
        &[
            "spillway-types",
            "spillway-prefix",
            "spillway-route",
            "spillway-journey",
            "spillway-health",
            "spillway-pulse",
            "spillway-engine",
        ],
    ),
    ("spillway-docs", &[]),
    ("spillway-telemetry", &["spillway-types", "spillway-route", "spillway-usage"]),
    ("spillway-emulator", &["spillway-engine"]),
    ("spillway-harness", &[]),
    ("spillway-tasks", &[]),
    ("spillway-resolver", &["spillway-types", "spillway-tasks"]),
    ("spillway-sockets", &[]),
    (
        "spillway-replicas",
        &["spillway-types", "spillway-tasks", "spillway-resolver", "spillway-sockets"],
    ),
    ("spillway-link", &["spillway-types", "spillway-codec", "spillway-tasks", "spillway-resolver"]),
    ("spillway-raft", &["spillway-types", "spillway-codec", "spillway-tasks", "spillway-link"]),
    (
        "spillway-usage-store",
        &["spillway-types", "spillway-codec", "spillway-usage", "spillway-raft"],
    ),
    (
        "spillway-control-plane",
        &[
            "spillway-types",
            "spillway-codec",
            "spillway-cluster-state",
            "spillway-tasks",
            "spillway-link",
            "spillway-raft",
        ],
    ),
    (
        "spillway-admin",
        &[
            "spillway-types",
            "spillway-route",
            "spillway-protocol",
            "spillway-geo",
            "spillway-cluster-state",
            "spillway-quota",
            "spillway-usage",
            "spillway-raft",
            "spillway-control-plane",
            "spillway-docs",
        ],
    ),
    (
        "spillway-upstream",
        &[
            "spillway-types",
            "spillway-prefix",
            "spillway-route",
            "spillway-journey",
            "spillway-protocol",
            "spillway-geo",
            "spillway-resolver",
            "spillway-sockets",
        ],
    ),
    (
        "spillway-front",
        &[
            "spillway-types",
            "spillway-prefix",
            "spillway-protocol",
            "spillway-cluster-state",
            "spillway-upstream",
        ],
    ),
    (
        "spillway-request",
        &[
            "spillway-types",
            "spillway-prefix",
            "spillway-route",
            "spillway-journey",
            "spillway-protocol",
            "spillway-quota",
            "spillway-usage",
            "spillway-upstream",
            "spillway-front",
        ],
    ),
    (
        "spillway-proxy",
        &[
            "spillway-types",
            "spillway-prefix",
            "spillway-route",
            "spillway-journey",
            "spillway-protocol",
            "spillway-quota",
            "spillway-usage",
            "spillway-upstream",
            "spillway-front",
            "spillway-request",
        ],
    ),
    (
        "spillway-config",
        &[
            "spillway-types",
            "spillway-prefix",
            "spillway-route",
            "spillway-health",
            "spillway-protocol",
            "spillway-geo",
            "spillway-resolver",
            "spillway-replicas",
            "spillway-link",
            "spillway-cluster-state",
            "spillway-quota",
            "spillway-usage",
            "spillway-admin",
            "spillway-upstream",
            "spillway-front",
            "spillway-request",
        ],
    ),
    (
        "spillway-knowledge",
        &[
            "spillway-types",
            "spillway-prefix",
            "spillway-route",
            "spillway-codec",
            "spillway-pulse",
            "spillway-tasks",
            "spillway-link",
            "spillway-cluster-state",
            "spillway-raft",
            "spillway-control-plane",
            "spillway-replicas",
            "spillway-upstream",
            "spillway-request",
            "spillway-proxy",
            "spillway-config",
        ],
    ),
    (
        "spillway-quota-division",
        &[
            "spillway-types",
            "spillway-codec",
            "spillway-cluster-state",
            "spillway-quota",
            "spillway-raft",
            "spillway-control-plane",
            "spillway-admin",
            "spillway-request",
            "spillway-telemetry",
        ],
    ),
    (
        "spillway-dns",
        &[
            "spillway-types",
            "spillway-geo",
            "spillway-upstream",
            "spillway-config",
            "spillway-telemetry",
        ],
    ),
    ("spillway-traces", &["spillway-types", "spillway-config", "spillway-resolver"]),
    (
        "spillway-node",
        &[
            "spillway-types",
            "spillway-prefix",
            "spillway-route",
            "spillway-protocol",
            "spillway-health",
            "spillway-tasks",
            "spillway-resolver",
            "spillway-sockets",
            "spillway-replicas",
            "spillway-pulse",
            "spillway-geo",
            "spillway-usage",
            "spillway-link",
            "spillway-cluster-state",
            "spillway-raft",
            "spillway-usage-store",
            "spillway-control-plane",
            "spillway-admin",
            "spillway-config",
            "spillway-upstream",
            "spillway-front",
            "spillway-request",
            "spillway-proxy",
            "spillway-telemetry",
            "spillway-knowledge",
            "spillway-quota-division",
            "spillway-dns",
            "spillway-traces",
        ],
    ),
    (
        "spillway",
        &[
            "spillway-types",
            "spillway-protocol",
            "spillway-health",
            "spillway-emulator",
            "spillway-harness",
            "spillway-geo",
            "spillway-link",
            "spillway-quota",
            "spillway-cluster-state",
            "spillway-raft",
            "spillway-control-plane",
            "spillway-config",
            "spillway-node",
            "spillway-telemetry",
            "spillway-docs",
        ],
    ),
    ("spillway-bench", &["spillway-harness"]),
    ("spillway-chaos", &["spillway-harness"]),
    // Its library is helpers of its own tests.
    (
        "spillway-tests",
        &[
            "spillway-testkit",
            "spillway-harness",
            "spillway-emulator",
            "spillway-link",
            "spillway-config",
            "spillway-node",
            "spillway-telemetry",
        ],
    ),
    ("xtask", &[]),
];

/// Pure crates, which decide and never wait: they ship without runtime and network.
const PURE: [&str; 14] = [
    "spillway-types",
    "spillway-prefix",
    "spillway-route",
    "spillway-journey",
    "spillway-health",
    "spillway-protocol",
    "spillway-codec",
    "spillway-quota",
    "spillway-usage",
    "spillway-cluster-state",
    "spillway-pulse",
    "spillway-geo",
    "spillway-engine",
    "spillway-sim",
];

/// Packages that make a crate impure.
const IMPURE: [&str; 6] = ["tokio", "mio", "quinn", "hyper", "h2", "openraft"];

/// Page with the same table for people.
const ARCHITECTURE: &str = "docs/architecture.md";

/// Page that names the pure crates.
const CONTRIBUTING: &str = "CONTRIBUTING.md";

/// Checks every crate of the workspace, and the documents about the crates.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let of_packages = tree.metadata.members().flat_map(|package| {
        let mut findings = arrows(tree, package);
        findings.extend(purity(tree, package));
        findings.extend(module_docs(tree, package));
        findings
    });
    let documented = tree.file(ARCHITECTURE).into_iter().flat_map(documented_arrows);
    let pure = tree.file(CONTRIBUTING).into_iter().flat_map(documented_purity);
    of_packages.chain(documented).chain(pure).collect()
}

/// Compares the rows `| crate | .. | may use |` with [`LAYERS`]; `–` means none.
fn documented_arrows(page: &TextFile) -> Vec<Finding> {
    let rows = page.numbered().filter_map(|(number, line)| {
        let name = line.strip_prefix("| `")?.split_once("` |")?.0;
        let uses = line.strip_suffix(" |")?.rsplit(" | ").next()?;
        let layer = LAYERS.iter().find(|(layer, _)| short(layer) == name)?;
        Some((number, layer, uses))
    });
    let differs = |shipped: &[&str], uses: &str| {
        let written: BTreeSet<&str> = uses.split(", ").filter(|word| *word != NO_CRATE).collect();
        let shipped: BTreeSet<&str> = shipped.iter().map(|name| short(name)).collect();
        !uses.starts_with("for ") && written != shipped
    };
    rows.filter(|(_, (_, shipped), uses)| differs(shipped, uses))
        .map(|(number, (name, shipped), _)| {
            let uses: Vec<&str> = shipped.iter().map(|name| short(name)).collect();
            let message = format!("{name} may use: {}", uses.join(", "));
            Finding::violation("documented-arrows", &page.path, message).at(number)
        })
        .collect()
}

fn documented_purity(page: &TextFile) -> Vec<Finding> {
    PURE.iter()
        .filter(|name| !page.text.contains(&format!("`{}`", short(name))))
        .map(|name| {
            let message = format!("{name} is a pure crate and not named as one");
            Finding::violation("documented-purity", &page.path, message)
        })
        .collect()
}

/// Means no crate in the table of the documents.
const NO_CRATE: &str = "–";

/// Returns the name of a crate's folder.
fn short(name: &str) -> &str {
    name.strip_prefix("spillway-").unwrap_or(name)
}

fn arrows(tree: &Tree, package: &Package) -> Vec<Finding> {
    let manifest = tree.metadata.relative(&package.manifest_path);
    let Some(layer) = LAYERS.iter().position(|(name, _)| *name == package.name) else {
        let message = format!("{} has no place in the table of layers", package.name);
        return vec![Finding::violation("arrows", &manifest, message)];
    };
    let (_, shipped) = LAYERS[layer];
    package
        .dependencies
        .iter()
        .filter(|dependency| tree.metadata.members().any(|member| member.name == dependency.name))
        .filter(|dependency| match dependency.kind.as_deref() {
            Some("dev") => !LAYERS[..layer].iter().any(|(name, _)| *name == dependency.name),
            _ => !shipped.contains(&dependency.name.as_str()),
        })
        .map(|dependency| {
            let message = format!("{} may not use {}", package.name, dependency.name);
            Finding::violation("arrows", &manifest, message)
        })
        .collect()
}

fn purity(tree: &Tree, package: &Package) -> Vec<Finding> {
    if !PURE.contains(&package.name.as_str()) {
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

    use super::super::tree::testing::{tree, tree_with};
    use super::*;

    #[test]
    fn documents_that_differ_from_the_tables_are_found() {
        let rows = "| `types` | ids | – |\n| `route` | policies | types |\n";
        let files = [(ARCHITECTURE, rows), (CONTRIBUTING, "`types` and `route`")];
        let found = check(&tree(&files));
        let message = "spillway-route may use: types, prefix";
        assert_eq!(found[0].message, message);
        assert_eq!(found[0].line, Some(2));
        assert_eq!(found.len(), 1 + PURE.len() - 2, "{found:?}");
    }

    const DOCUMENTED: &str = "//! What it is.\n";

    /// Edge of the graph: the crate that depends, the one it needs, and the kind of dependency.
    type Edge<'a> = (&'a str, &'a str, Option<&'a str>);

    /// Returns the findings for a workspace of `members` with these dependencies.
    fn check_edges(members: &[&str], others: &[&str], edges: &[Edge<'_>]) -> Vec<String> {
        let packages: Vec<&str> = members.iter().chain(others).copied().collect();
        let of = |name: &str| edges.iter().filter(move |edge| edge.0 == name).collect::<Vec<_>>();
        let package = |name: &&str| {
            json!({
                "id": name, "name": name, "version": "0.1.0", "manifest_path": format!("/tree/{name}/Cargo.toml"),
                "targets": [{ "kind": ["lib"], "src_path": format!("/tree/{name}/lib.rs") }],
                "dependencies": of(name).iter()
                    .map(|(_, to, kind)| json!({ "name": to, "kind": kind })).collect::<Vec<_>>(),
            })
        };
        let node = |name: &&str| {
            json!({ "id": name, "deps": of(name).iter()
                .map(|(_, to, kind)| json!({ "pkg": to, "dep_kinds": [{ "kind": kind }] }))
                .collect::<Vec<_>>() })
        };
        let metadata = json!({
            "packages": packages.iter().map(package).collect::<Vec<Value>>(),
            "workspace_members": members, "target_directory": "/t", "workspace_root": "/tree",
            "resolve": { "nodes": packages.iter().map(node).collect::<Vec<Value>>() },
        });
        let paths: Vec<String> = members.iter().map(|name| format!("{name}/lib.rs")).collect();
        let files: Vec<(&str, &str)> =
            paths.iter().map(|path| (path.as_str(), DOCUMENTED)).collect();
        check(&tree_with(&files, metadata)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_arrow_upwards_is_found() {
        let found = check_edges(
            &["spillway-types", "spillway-route"],
            &[],
            &[("spillway-types", "spillway-route", None)],
        );
        assert_eq!(
            found,
            ["error[arrows]: spillway-types/Cargo.toml: spillway-types may not use spillway-route"]
        );
    }

    #[test]
    fn tests_may_use_any_lower_crate_but_no_higher_one() {
        let members = ["spillway-proxy", "spillway-emulator", "spillway-node"];
        let down = [("spillway-proxy", "spillway-emulator", Some("dev"))];
        assert_eq!(check_edges(&members, &[], &down), [""; 0]);
        let shipped = [("spillway-proxy", "spillway-emulator", None)];
        assert_eq!(check_edges(&members, &[], &shipped).len(), 1);
        let up = [("spillway-proxy", "spillway-node", Some("dev"))];
        assert_eq!(check_edges(&members, &[], &up).len(), 1);
    }

    #[test]
    fn helpers_of_tests_ship_with_nothing_and_every_crate_may_test_with_them() {
        let members = ["spillway-types", "spillway-link", "spillway-testkit", "spillway-node"];
        for user in ["spillway-types", "spillway-link", "spillway-node"] {
            let tests = [(user, "spillway-testkit", Some("dev"))];
            assert_eq!(check_edges(&members, &[], &tests), [""; 0]);
            let shipped = [(user, "spillway-testkit", None)];
            assert_eq!(check_edges(&members, &[], &shipped).len(), 1, "{user}");
        }
    }

    #[test]
    fn a_crate_without_a_layer_is_found() {
        let found = check_edges(&["spillway-new"], &[], &[]);
        assert!(
            found[0].ends_with("spillway-new has no place in the table of layers"),
            "{found:?}"
        );
    }

    #[test]
    fn a_runtime_behind_a_dependency_of_a_pure_crate_is_found_with_the_way_to_it() {
        let edges = [("spillway-protocol", "helper", None), ("helper", "tokio", None)];
        let found = check_edges(&["spillway-protocol"], &["helper", "tokio"], &edges);
        assert_eq!(found.len(), 1);
        assert!(found[0].ends_with("spillway-protocol -> helper -> tokio"), "{found:?}");
    }

    #[test]
    fn tests_of_a_pure_crate_and_impure_crates_may_have_a_runtime() {
        let edges =
            [("spillway-route", "tokio", Some("dev")), ("spillway-telemetry", "tokio", None)];
        let members = ["spillway-route", "spillway-telemetry"];
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
